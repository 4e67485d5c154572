// What graphs may cost, at most.
#include <algorithm>
#include <vector>

#include "server/graphs/graph_costs.h"
#include "server/graphs/graphs.h"
#include "server/memory/host_mirror.h"
#include "tests/hostile/hostile_graphs.h"

namespace flyt::sim {
namespace {

// The addresses of each stay taken, apart from each other.
TEST_F(HostileGraphs, HostMemoryThatCopiesOfGraphsNameHasABound) {
  constexpr std::size_t kMost = server::HostMirror::kInGraphsMax;
  constexpr std::size_t kTogether = 128;
  const auto place = [](std::size_t i) { return kHost + i * 2 * 4096; };
  std::vector<CUresult> added;
  for (std::size_t i = 0; i <= kMost; i += kTogether) {
    const auto for_each = [&](const auto& send_one) {
      std::vector<CUresult> results;
      for (std::size_t part = i; part < i + kTogether; ++part) send_one(place(part));
      while (results.size() < kTogether) results.push_back(answer());
      return results;
    };
    const std::vector<CUresult> good(kTogether, CUDA_SUCCESS);
    ASSERT_EQ(good, for_each([this](std::uint64_t address) {
                send(commands::MapHost{.address = address, .bytes = 4096});
              }));
    const auto results = for_each([this](std::uint64_t address) {
      const CUgraphNodeParams box = copy_to_host(address);
      send(commands::AddGraphNode{.graph = graph_, .parameters = bytes_at(&box, sizeof box)});
    });
    added.insert(added.end(), results.begin(), results.end());
    ASSERT_EQ(good, for_each([this](std::uint64_t address) {
                send(commands::UnmapHost{.address = address});
              }));
  }
  EXPECT_EQ(CUDA_SUCCESS, added[kMost - 1]);
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, added[kMost]);
  // Nor in parts of what is there already.
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, ask(commands::MapHost{.address = kHost, .bytes = 64}));
}

TEST_F(HostileGraphs, EdgesHaveABound) {
  constexpr std::size_t kEach = 8192;
  constexpr std::size_t kDense = 32;
  constexpr std::size_t kCopies = server::GraphCosts::kEdgesMax / (kEach * kDense) - 1;
  const std::vector<std::uint64_t> nodes = add_empty(kEach);
  for (std::size_t i = 0; i < kDense; ++i) ASSERT_EQ(CUDA_SUCCESS, add_behind(nodes)) << i;
  const std::uint64_t last = added();
  const commands::CloneGraph clone{.graph = graph_};
  for (std::size_t i = 0; i < kCopies; ++i) ASSERT_EQ(CUDA_SUCCESS, ask(clone)) << i;
  commands::CloneGraph::Reply copied;
  ASSERT_TRUE(wire::decode(fields(), copied));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, ask(clone));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, add_behind(nodes));
  const std::uint64_t exec = wire::Handle::make(wire::HandleKind::kGraphExec, 1, 1).value;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY,
            ask(commands::InstantiateGraph{.exec = exec, .graph = graph_}));
  // What is gone is counted no more.
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraphNode{.node = last}));
  EXPECT_EQ(CUDA_SUCCESS, add_behind(nodes));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, ask(clone));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = copied.clone}));
  EXPECT_EQ(CUDA_SUCCESS, ask(clone));
}

// Whoever looks into all of them would come to no end, or to that of his stack.
TEST_F(HostileGraphs, GraphsAreInEachOtherToABoundedDepth) {
  std::uint64_t around = graph_;
  for (unsigned depth = 1; depth <= server::GraphCosts::kDepthMax; ++depth) {
    const std::uint64_t inner = new_graph();
    ASSERT_EQ(CUDA_SUCCESS, add_to(around, child(inner, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)));
    around = inner;
  }
  const std::uint64_t another = new_graph();
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY,
            add_to(around, child(another, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY,
            add_to(around, child(another, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY,
            add_to(another, child(graph_, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)));
  // Nor is one in itself, or in two.
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            add_to(around, child(graph_, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            add_to(another, child(around, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ask(commands::DestroyGraph{.graph = around}));
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graph_}));
}

// One command would be millions of nodes.
TEST_F(HostileGraphs, SlicesOfCapturedCopiesHaveABound) {
  constexpr std::uint64_t kSlices = server::GraphCosts::kNodesMax + 1;
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = kSlices}));
  commands::MemAlloc::Reply allocated;
  ASSERT_TRUE(wire::decode(fields(), allocated));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::BeginCapture{.stream = stream_}));
  send(commands::CopyBoxOnDevice{.stream = stream_,
                                 .to = allocated.address,
                                 .to_slice_pitch = 1,
                                 .from = allocated.address,
                                 .from_slice_pitch = 1,
                                 .width = 1,
                                 .rows = 1,
                                 .slices = kSlices});
  expect_ended();
}

// Each is two of the one before: after 40 of them no machine has the memory.
TEST_F(HostileGraphs, CopiesOfGraphsHaveABound) {
  add_empty(16 * 1024);
  std::vector<std::uint64_t> graphs = {graph_};
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < 40 && result == CUDA_SUCCESS; ++i) {
    const std::uint64_t twice_that = new_graph();
    for (int twice = 0; twice < 2 && result == CUDA_SUCCESS; ++twice) {
      result = add_to(twice_that, child(graphs.back(), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE));
    }
    graphs.push_back(twice_that);
  }
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, result);
  const std::uint64_t largest = graphs[graphs.size() - 2];
  const std::uint64_t exec = wire::Handle::make(wire::HandleKind::kGraphExec, 1, 1).value;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, ask(commands::CloneGraph{.graph = largest}));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY,
            ask(commands::InstantiateGraph{.exec = exec, .graph = largest}));
  // What goes makes room.
  while (graphs.size() > 1) {
    EXPECT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graphs.back()}));
    graphs.pop_back();
  }
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::CloneGraph{.graph = graph_}));
  EXPECT_EQ(CUDA_SUCCESS, ask(commands::InstantiateGraph{.exec = exec, .graph = graph_}));
}

TEST_F(HostileGraphs, HaveSoManyConditionalHandlesUntilTheyEnd) {
  commands::CreateConditional::Reply made;
  ASSERT_EQ(CUDA_SUCCESS,
            ask(commands::CreateConditional{.graph = graph_, .context = context(kPrimary)}));
  ASSERT_TRUE(wire::decode(fields(), made));
  for (std::size_t i = 1; i < server::Graphs::kConditionalsMax;) {
    const std::size_t end = std::min(i + 128, server::Graphs::kConditionalsMax);
    for (std::size_t one = i; one < end; ++one) {
      send(commands::CreateConditional{.graph = graph_, .context = context(kPrimary)});
    }
    for (; i < end; ++i) ASSERT_EQ(CUDA_SUCCESS, answer()) << i;
  }
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY,
            ask(commands::CreateConditional{.graph = graph_, .context = context(kPrimary)}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::DestroyGraph{.graph = graph_}));
  ASSERT_EQ(CUDA_SUCCESS, ask(commands::CreateGraph{.flags = 0}));
  commands::CreateGraph::Reply graph;
  ASSERT_TRUE(wire::decode(fields(), graph));
  graph_ = graph.graph;
  EXPECT_EQ(CUDA_SUCCESS,
            ask(commands::CreateConditional{.graph = graph_, .context = context(kPrimary)}));
  // That of the graph that is gone.
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = made.handle;
  params.conditional.size = 1;
  EXPECT_NE(CUDA_SUCCESS, add(params));
}

TEST_F(HostileGraphs, NodesThatHaveNothingBesideTheirParametersTakeNothing) {
  const std::vector<std::byte> data(64 * kKiB);
  CUgraphNodeParams empty{};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add(empty, data));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add(fill(address_, 16), data));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add(copy(address_, address_, 16), data));
}

}  // namespace
}  // namespace flyt::sim
