// Host memory that graphs read and write each time that they are launched.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

using GraphHostMemoryTest = GraphFixture;

void double_it(void* at) {
  auto* values = static_cast<std::uint32_t*>(at);
  values[1] = 2 * values[0];
}

TEST_F(GraphHostMemoryTest, PageableMemoryOfACaptureIsUsedAtEachLaunch) {
  std::vector<std::uint32_t> in = {1, 2, 3, 4};
  std::vector<std::uint32_t> out(4);
  CaptureOf capture(*stream);
  CU_OK(cu().cuMemcpyHtoDAsync_v2(word(0), in.data(), 16, *stream));
  CU_OK(add(*stream, 1));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), word(0), 16, *stream));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  EXPECT_EQ((std::vector<std::uint32_t>(4)), out);
  const OwnedExec exec(graph);
  for (std::uint32_t i = 0; i < 3; ++i) {
    in = {i, 10 * i, 7, 8};
    CU_OK(run(exec));
    EXPECT_EQ((std::vector<std::uint32_t>{i, 10 * i + 1, 7, 8}), out);
  }
}

TEST_F(GraphHostMemoryTest, AHostNodeSeesWhatWasCopiedBeforeItAndTheCopyBehindItWhatItWrote) {
  for (const bool pinned : {false, true}) {
    const PinnedMemory page_locked(8);
    std::vector<std::uint32_t> pageable(2);
    auto* values = pinned ? page_locked.as<std::uint32_t>() : pageable.data();
    values[0] = values[1] = 0;
    const OwnedGraph graph;
    CUgraphNode up = nullptr;
    CUgraphNode host = nullptr;
    CUgraphNode down = nullptr;
    const CUDA_MEMCPY3D to = to_host(values, word(0), 4);
    const CUDA_MEMCPY3D from = to_device(word(1), values + 1, 4);
    const CUDA_HOST_NODE_PARAMS function{&double_it, values};
    CU_OK(cu().cuGraphAddMemcpyNode(&up, graph, nullptr, 0, &to, context));
    CU_OK(cu().cuGraphAddHostNode(&host, graph, &up, 1, &function));
    CU_OK(cu().cuGraphAddMemcpyNode(&down, graph, &host, 1, &from, context));
    const OwnedExec exec(graph);
    for (std::uint32_t i = 5; i < 8; ++i) {
      memory->write<std::uint32_t>({i, 0, 0, 0});
      CU_OK(run(exec));
      EXPECT_EQ(2 * i, read(1));
      EXPECT_EQ(i, values[0]);
      EXPECT_EQ(2 * i, values[1]);
    }
  }
}

TEST_F(GraphHostMemoryTest, ACopyBehindALaunchWritesOverWhatTheGraphCopied) {
  // A word, and what takes many pieces.
  for (const std::size_t count : {std::size_t{4}, std::size_t{2} << 20}) {
    const std::size_t bytes = count * sizeof(std::uint32_t);
    const DeviceMemory graphs(bytes);
    const DeviceMemory ours(bytes);
    std::vector<std::uint32_t> pageable(count);
    CU_OK(cu().cuMemsetD32_v2(graphs, 1, count));
    CU_OK(cu().cuMemsetD32_v2(ours, 2, count));
    CU_OK(cu().cuCtxSynchronize());
    CaptureOf capture(*stream);
    CU_OK(cu().cuMemcpyDtoHAsync_v2(pageable.data(), graphs, bytes, *stream));
    CUgraph captured = nullptr;
    CU_OK(capture.end(&captured));
    const OwnedGraph graph(captured);
    const OwnedExec exec(graph);
    CU_OK(cu().cuGraphLaunch(exec, *stream));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(pageable.data(), ours, bytes, *stream));
    CU_OK(cu().cuStreamSynchronize(*stream));
    EXPECT_EQ(std::vector<std::uint32_t>(count, 2), pageable);
    // And the other way around.
    CU_OK(cu().cuGraphLaunch(exec, *stream));
    CU_OK(cu().cuStreamSynchronize(*stream));
    EXPECT_EQ(std::vector<std::uint32_t>(count, 1), pageable);
  }
}

struct LateWriter {
  std::atomic<bool> ending{false};
  std::uint32_t* word = nullptr;
};

// The launch behind a host function that is under way is the last use of a graph that is destroyed.
TEST_F(GraphHostMemoryTest, WhatAHostFunctionWritesWhileAGraphIsDestroyedIsWrittenOver) {
  std::vector<std::uint32_t> pageable(1);
  LateWriter writer;
  writer.word = pageable.data();
  memory->write<std::uint32_t>({7, 0, 0, 0});
  CaptureOf capture(*stream);
  CU_OK(cu().cuMemcpyDtoHAsync_v2(pageable.data(), word(0), 4, *stream));
  CUgraph graph = nullptr;
  CU_OK(capture.end(&graph));
  CUgraphExec exec = nullptr;
  CU_OK(cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(run(exec));
  CU_OK(cu().cuLaunchHostFunc(
      *stream,
      [](void* data) {
        auto& late = *static_cast<LateWriter*>(data);
        while (!late.ending) std::this_thread::yield();
        // lint: allow(sleep): nobody can tell when the other thread is in the driver.
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        *late.word = 9;
      },
      &writer));
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  writer.ending = true;
  CU_OK(cu().cuGraphExecDestroy(exec));
  CU_OK(cu().cuGraphDestroy(graph));
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(7U, pageable[0]);
}

// Through a server it may be refused; what is not refused has to be right.
TEST_F(GraphHostMemoryTest, CopiesOfPageableMemoryThatOverlapAreOrderedOrRefused) {
  for (const bool captured : {true, false}) {
    const Unrecorded quiet;
    std::vector<std::uint32_t> pageable(8);
    memory->write<std::uint32_t>({7, 8, 0, 0});
    CUresult more = CUDA_ERROR_UNKNOWN;
    CUgraph graph = nullptr;
    const CUDA_MEMCPY3D up = to_host(pageable.data(), word(0), 8);
    const CUDA_MEMCPY3D down = to_device(word(2), pageable.data() + 1, 8);
    if (captured) {
      CaptureOf capture(*stream);
      CU_OK(cu().cuMemcpyDtoHAsync_v2(pageable.data(), word(0), 8, *stream));
      more = cu().cuMemcpyHtoDAsync_v2(word(2), pageable.data() + 1, 8, *stream);
      CU_OK(capture.end(&graph));
    } else {
      CUgraphNode first = nullptr;
      CUgraphNode second = nullptr;
      CU_OK(cu().cuGraphCreate(&graph, 0));
      CU_OK(cu().cuGraphAddMemcpyNode(&first, graph, nullptr, 0, &up, context));
      more = cu().cuGraphAddMemcpyNode(&second, graph, &first, 1, &down, context);
    }
    const OwnedGraph owned(graph);
    if (more == CUDA_ERROR_NOT_SUPPORTED) continue;
    CU_OK(more);
    const OwnedExec exec(owned);
    CU_OK(run(exec));
    EXPECT_EQ((std::vector<std::uint32_t>{7, 8, 8, 0}), memory->read<std::uint32_t>());
  }
}

TEST_F(GraphHostMemoryTest, CopyNodesTellTheProgramsOwnAddresses) {
  std::vector<std::uint32_t> pageable(4);
  const PinnedMemory pinned(16);
  for (void* at : {static_cast<void*>(pageable.data() + 1), pinned.data()}) {
    const OwnedGraph graph;
    CUgraphNode down = nullptr;
    CUgraphNode up = nullptr;
    const CUDA_MEMCPY3D to = to_device(word(0), at, 8);
    const CUDA_MEMCPY3D from = to_host(at, word(0), 8);
    CU_OK(cu().cuGraphAddMemcpyNode(&down, graph, nullptr, 0, &to, context));
    CU_OK(cu().cuGraphAddMemcpyNode(&up, graph, &down, 1, &from, context));
    CUDA_MEMCPY3D told{};
    CU_OK(cu().cuGraphMemcpyNodeGetParams(down, &told));
    EXPECT_EQ(at, told.srcHost);
    EXPECT_EQ(word(0), told.dstDevice);
    CU_OK(cu().cuGraphMemcpyNodeGetParams(up, &told));
    EXPECT_EQ(at, told.dstHost);
  }
}

TEST_F(GraphHostMemoryTest, AnExecutableGraphKeepsUsingMemoryWhenItsGraphIsGone) {
  std::vector<std::uint32_t> in = {1};
  CUgraphExec exec = nullptr;
  {
    const OwnedGraph graph;
    const OwnedGraph outer;
    CUgraphNode node = nullptr;
    const CUDA_MEMCPY3D to = to_device(word(0), in.data(), 4);
    CU_OK(cu().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &to, context));
    CU_OK(cu().cuGraphAddChildGraphNode(&node, outer, nullptr, 0, graph));
    CUgraph cloned = nullptr;
    CU_OK(cu().cuGraphClone(&cloned, outer));
    const OwnedGraph clone(cloned);
    CU_OK(cu().cuGraphInstantiateWithFlags(&exec, clone, 0));
  }
  in[0] = 77;
  CU_OK(run(exec));
  EXPECT_EQ(77u, read(0));
  CU_OK(cu().cuGraphExecDestroy(exec));
}

TEST_F(GraphHostMemoryTest, MemoryMayGoBeforeTheGraphThatNamesIt) {
  constexpr std::size_t kBytes = 1 << 16;
  void* mapped =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(MAP_FAILED, mapped);
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  const CUDA_MEMCPY3D to = to_device(word(0), mapped, 16);
  CU_OK(cu().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &to, context));
  const OwnedExec exec(graph);
  std::memset(mapped, 1, kBytes);
  CU_OK(run(exec));
  EXPECT_EQ(0x01010101u, read(3));
  ::munmap(mapped, kBytes);
  // It is not launched any more, but other work goes on.
  CU_OK(store(*stream, 0, 6));
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(6u, read(0));
}

TEST_F(GraphHostMemoryTest, KernelsOfGraphsReachPageLockedMemory) {
  const PinnedMemory host(8);
  auto* values = host.as<std::uint32_t>();
  values[0] = 41;
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  void* at = values;
  std::uint32_t count = 1;
  void* pointers[] = {&at, &count};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(add_one, pointers);
  CU_OK(cu().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(42u, values[0]);
  values[0] = 9;
  CU_OK(run(exec));
  EXPECT_EQ(10u, values[0]);
}

}  // namespace
}  // namespace flyt::conformance
