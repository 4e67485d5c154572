// A program whose server answers what no server would: its session ends, and nothing else of it.
#include "tests/hostile/lying_server.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <vector>

#include "client/context.h"
#include "client/current.h"
#include "client/session.h"
#include "commands/all.h"
#include "cuda/functions.h"
#include "wire/graphs.h"

namespace flyt::sim {
namespace {

constexpr char kPtx[] = ".version 8.0\n.target sm_90\n.address_size 64\n";

class ProgramOfALyingServer : public ::testing::Test {
 protected:
  Status try_to_open() {
    auto pair = transport::connection_pair();
    if (!pair) return pair.error();
    server.start(std::move(pair->second));
    client::SessionOptions options;
    options.connect_timeout = std::chrono::seconds(60);
    options.log_level = LogLevel::kOff;
    auto opened = client::Session::open(std::move(pair->first), options);
    if (!opened) return opened.error();
    session = std::move(*opened);
    scope = std::make_unique<client::SessionScope>(session.get());
    return {};
  }
  // With a context that is current, and a module.
  void open() {
    const Status opened = try_to_open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    CUcontext context = nullptr;
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleLoadData(&module, kPtx), CUDA_SUCCESS);
  }
  void TearDown() override {
    // A lost session does not let go of it.
    while (client::thread_state().current_state != nullptr) client::pop_current();
    scope.reset();
    session.reset();
  }
  // It was caught, and nothing that comes later is an answer.
  void expect_lost() {
    EXPECT_TRUE(session->channel().lost());
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_DEVICE_UNAVAILABLE);
  }

  LyingServer server;
  std::unique_ptr<client::Session> session;
  std::unique_ptr<client::SessionScope> scope;
  CUmodule module = nullptr;
};

TEST_F(ProgramOfALyingServer, MeetsTheLossAtLessThanItAskedFor) {
  static const std::vector<float> kTwo{1, 2};
  server.on<commands::CreateTextureReference>();
  server.on<commands::TexRefGetBorderColor>(
      [](const auto&, auto& reply) { reply.pBorderColor = wire::List<float>(kTwo); });
  open();
  CUtexref reference = nullptr;
  ASSERT_EQ(cuTexRefCreate(&reference), CUDA_SUCCESS);
  float border[4] = {};
  EXPECT_EQ(cuTexRefGetBorderColor(border, reference), CUDA_ERROR_DEVICE_UNAVAILABLE);
  EXPECT_EQ(border[0], 0);
  expect_lost();
}

TEST_F(ProgramOfALyingServer, MeetsTheLossAtParametersThatNoKernelHas) {
  // Their sum is small, in 32 bits.
  static const std::vector<std::uint32_t> kOffsets{0, 0xfffffff0};
  static const std::vector<std::uint32_t> kSizes{8, 0x20};
  server.on<commands::GetFunction>([](const auto&, auto& reply) {
    reply.offsets = wire::List<std::uint32_t>(kOffsets);
    reply.sizes = wire::List<std::uint32_t>(kSizes);
  });
  open();
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module, "kernel"), CUDA_ERROR_DEVICE_UNAVAILABLE);
  expect_lost();
}

class GraphOfALyingServer : public ProgramOfALyingServer {
 protected:
  // Each part of a list is that one.
  CUresult edges_where(std::uint64_t total, std::size_t nodes, std::size_t others,
                       std::size_t edge_bytes) {
    nodes_.assign(nodes, 1);
    others_.assign(others, 1);
    edges_.assign(edge_bytes, std::byte{0});
    server.on<commands::ListGraph>([this, total](const auto&, auto& reply) {
      reply.total = total;
      reply.nodes = wire::List<std::uint64_t>(nodes_);
      reply.others = wire::List<std::uint64_t>(others_);
      reply.edges = edges_;
    });
    open();
    std::size_t count = 0;
    return cuGraphGetEdges_v2(static_cast<CUgraph>(pointer_at(16)), nullptr, nullptr, nullptr,
                              &count);
  }

 private:
  std::vector<std::uint64_t> nodes_;
  std::vector<std::uint64_t> others_;
  std::vector<std::byte> edges_;
};

TEST_F(GraphOfALyingServer, MayHaveEdges) {
  EXPECT_EQ(edges_where(4, 2, 2, 2 * sizeof(CUgraphEdgeData)), CUDA_SUCCESS);
}

TEST_F(GraphOfALyingServer, HasNoPartsOfEdges) {
  EXPECT_EQ(edges_where(4, 1, 1, sizeof(CUgraphEdgeData) + 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
  expect_lost();
}

TEST_F(GraphOfALyingServer, HasNoEdgesThatOnlyBegin) {
  EXPECT_EQ(edges_where(4, 2, 1, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
  expect_lost();
}

TEST_F(GraphOfALyingServer, HasNoMoreEdgesThanItSays) {
  EXPECT_EQ(edges_where(1, 2, 2, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
  expect_lost();
}

TEST_F(GraphOfALyingServer, HasAnEnd) {
  EXPECT_EQ(edges_where(UINT64_MAX, wire::kGraphListPart, wire::kGraphListPart, 0),
            CUDA_ERROR_DEVICE_UNAVAILABLE);
  expect_lost();
}

TEST_F(GraphOfALyingServer, HasADrawingWithAnEnd) {
  static const std::vector<std::byte> kText(1000, std::byte{'x'});
  std::atomic<std::uint64_t> total{UINT64_MAX};
  server.on<commands::DrawGraph>([&total](const auto&, auto& reply) {
    reply.total = total.load();
    reply.text = kText;
  });
  open();
  const auto graph = static_cast<CUgraph>(pointer_at(16));
  EXPECT_EQ(cuGraphDebugDotPrint(graph, "/dev/null", 0), CUDA_ERROR_OUT_OF_MEMORY);
  total.store(2 * kText.size());
  EXPECT_EQ(cuGraphDebugDotPrint(graph, "/dev/null", 0), CUDA_SUCCESS);
  total.store(2 * kText.size() - 1);
  EXPECT_EQ(cuGraphDebugDotPrint(graph, "/dev/null", 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
  expect_lost();
}

class PageOfTheProgram : public ProgramOfALyingServer {
 protected:
  static constexpr std::size_t kBytes = 4096;

  void SetUp() override {
    page_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page_, MAP_FAILED);
  }
  void TearDown() override {
    ProgramOfALyingServer::TearDown();
    ::munmap(page_, kBytes);
  }
  std::uint64_t address() const { return address_of(page_); }
  // A managed variable of the server's is there.
  void expect_it_stays(std::uint64_t bytes) {
    server.on<commands::GetGlobal>([this, bytes](const auto&, auto& reply) {
      reply.address = address();
      reply.size = bytes;
      reply.managed = true;
    });
    open();
    CUdeviceptr found = 0;
    EXPECT_NE(cuModuleGetGlobal_v2(&found, nullptr, module, "variable"), CUDA_SUCCESS);
    std::memset(page_, 1, kBytes);
  }

 private:
  void* page_ = nullptr;
};

TEST_F(PageOfTheProgram, StaysWhereAManagedVariableIsNothing) { expect_it_stays(0); }

TEST_F(PageOfTheProgram, StaysWhereAManagedVariableReachesBeyondAllAddresses) {
  expect_it_stays(UINT64_MAX - address() + 1);
}

TEST_F(ProgramOfALyingServer, HasNoDeviceThatThereCannotBe) {
  server.attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 0;
  const Status opened = try_to_open();
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kInvalid);
}

TEST_F(ProgramOfALyingServer, ComputesWithWhateverNumbersItIsTold) {
  server.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = INT_MAX;
  static const std::vector<std::int32_t> kAttributes(CU_FUNC_ATTRIBUTE_MAX, INT_MAX);
  static const std::vector<std::uint8_t> kKnown(CU_FUNC_ATTRIBUTE_MAX, 1);
  server.on<commands::GetFunction>([](const auto&, auto& reply) {
    reply.attributes = wire::List<std::int32_t>(kAttributes);
    reply.known = wire::List<std::uint8_t>(kKnown);
  });
  server.on<commands::OccupancyBlocks>([](const auto&, auto& reply) { reply.blocks = INT_MAX; });
  server.on<commands::RetainPrimary>([](const auto&, auto& reply) {
    reply.least_priority = -5;
    reply.greatest_priority = 0;
  });
  open();
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&function, module, "kernel"), CUDA_SUCCESS);
  int blocks = 0;
  int size = 0;
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSize(
                &blocks, &size, function, [](int) { return std::size_t{0}; }, 0, 0),
            CUDA_SUCCESS);
  EXPECT_LE(size, 1024);
  int least = 0;
  int greatest = 0;
  EXPECT_EQ(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  EXPECT_EQ(least, 0);
  EXPECT_EQ(greatest, -5);
}

}  // namespace
}  // namespace flyt::sim
