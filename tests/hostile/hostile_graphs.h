// HostileGraphs: a fixture with a session that has a stream, a graph and some memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/hostile/hostile_session.h"

namespace flyt::sim {

class HostileGraphs : public HostileSession {
 protected:
  void SetUp() override {
    HostileSession::SetUp();
    current_ = kPrimary;
    send(commands::StreamCreate{.stream = stream_, .flags = CU_STREAM_NON_BLOCKING});
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::CreateGraph{.flags = 0}));
    commands::CreateGraph::Reply made;
    ASSERT_TRUE(wire::decode(fields(), made));
    graph_ = made.graph;
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = 4096}));
    commands::MemAlloc::Reply allocated;
    ASSERT_TRUE(wire::decode(fields(), allocated));
    address_ = allocated.address;
  }
  // The error of what is posted.
  template <class Command>
  CUresult post(const Command& command) {
    send(command);
    EXPECT_EQ(CUDA_SUCCESS, ask(commands::HearPosts{}));
    return posted_;
  }
  // By the driver's call for its kind, and by that for any.
  CUresult add(const CUgraphNodeParams& params, Bytes data = {}) {
    commands::AddGraphNode command{
        .graph = graph_, .parameters = bytes_at(&params, sizeof params), .data = data};
    command.typed = true;
    const CUresult typed = ask(command);
    command.typed = false;
    const CUresult any = ask(command);
    EXPECT_EQ(typed == CUDA_SUCCESS, any == CUDA_SUCCESS) << typed << " " << any;
    return any;
  }
  std::uint64_t added() {
    commands::AddGraphNode::Reply reply;
    EXPECT_TRUE(wire::decode(fields(), reply));
    return reply.node;
  }
  CUgraphNodeParams fill(std::uint64_t address, std::uint64_t width, std::uint64_t height = 1,
                         std::uint64_t pitch = 0) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    params.memset = {address, pitch, 1, 1, width, height, nullptr};
    return params;
  }
  CUgraphNodeParams copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    CUDA_MEMCPY3D& box = params.memcpy.copyParams;
    box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = from;
    box.dstDevice = to;
    box.WidthInBytes = bytes;
    box.Height = box.Depth = 1;
    return params;
  }

  CUgraphNodeParams copy_to_host(std::uint64_t to) {
    CUgraphNodeParams params = copy(address_, address_, 64);
    params.memcpy.copyParams.dstMemoryType = CU_MEMORYTYPE_HOST;
    params.memcpy.copyParams.dstHost = pointer_at(to);
    return params;
  }
  CUgraphNodeParams child(std::uint64_t graph, CUgraphChildGraphNodeOwnership ownership) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = static_cast<CUgraph>(pointer_at(graph));
    params.graph.ownership = ownership;
    return params;
  }
  CUresult add_to(std::uint64_t graph, const CUgraphNodeParams& params) {
    return ask(
        commands::AddGraphNode{.graph = graph, .parameters = bytes_at(&params, sizeof params)});
  }
  // The numbers of so many nodes that do nothing, a multiple of 128.
  std::vector<std::uint64_t> add_empty(std::size_t count) {
    CUgraphNodeParams empty{};
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::vector<std::uint64_t> nodes;
    while (nodes.size() < count) {
      for (int i = 0; i < 128; ++i) {
        send(commands::AddGraphNode{.graph = graph_, .parameters = bytes_at(&empty, sizeof empty)});
      }
      for (int i = 0; i < 128; ++i) {
        EXPECT_EQ(CUDA_SUCCESS, answer());
        nodes.push_back(added());
      }
    }
    return nodes;
  }
  // One that does nothing behind all of these.
  CUresult add_behind(const std::vector<std::uint64_t>& nodes) {
    CUgraphNodeParams empty{};
    empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
    return ask(commands::AddGraphNode{.graph = graph_,
                                      .dependencies = wire::List<std::uint64_t>(nodes),
                                      .parameters = bytes_at(&empty, sizeof empty)});
  }
  std::uint64_t new_graph() {
    EXPECT_EQ(CUDA_SUCCESS, ask(commands::CreateGraph{.flags = 0}));
    commands::CreateGraph::Reply made;
    EXPECT_TRUE(wire::decode(fields(), made));
    return made.graph;
  }
  // Whether something of the server's lies at kHost.
  bool is_taken() {
    for (const pid_t pid : server().children()) {
      std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
      for (std::string line; std::getline(maps, line);) {
        if (std::strtoull(line.c_str(), nullptr, 16) == kHost) return true;
      }
    }
    return false;
  }

#if defined(__SANITIZE_THREAD__)
  static constexpr std::uint64_t kHost = 0x4100000000;
#else
  static constexpr std::uint64_t kHost = 0x381000000000;
#endif
  const CUstream stream_ = handle_as<CUstream>(wire::HandleKind::kStream, 1);
  std::uint64_t graph_ = 0;
  std::uint64_t address_ = 0;
};

}  // namespace flyt::sim
