// Calls on graphs that wait for the GPU: they hold up the thread that calls, and no other.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

using Time = std::chrono::steady_clock;

// Where the GPU waits for a function of the program, which gives up after a while.
struct Gate {
  std::atomic<bool> reached{false};
  std::atomic<bool> open{false};
  std::atomic<bool> gave_up{false};

  static void pass(void* data) {
    Gate& gate = *static_cast<Gate*>(data);
    const auto end = Time::now() + std::chrono::seconds(60);
    gate.reached = true;
    while (!gate.open && !gate.gave_up) {
      if (Time::now() > end) gate.gave_up = true;
      std::this_thread::yield();
    }
  }
};

class GraphWaitsTest : public GraphFixture {
 protected:
  // Makes a call in a thread of its own while the GPU is at the gate, and other calls meanwhile.
  void call_at(Gate& gate, const std::function<CUresult()>& call) {
    while (!gate.reached) std::this_thread::yield();
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread caller([&] {
      const Unrecorded quiet;
      EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
      result = call();
    });
    {
      // The other thread's call comes somewhere between these, which have nothing to wait for.
      const Unrecorded quiet;
      const auto end = Time::now() + std::chrono::milliseconds(200);
      while (Time::now() < end) {
        EXPECT_EQ(CUDA_SUCCESS, cu().cuEventRecord(event, other));
        EXPECT_EQ(CUDA_SUCCESS, cu().cuStreamSynchronize(other));
      }
    }
    EXPECT_FALSE(gate.gave_up);
    gate.open = true;
    caller.join();
    EXPECT_EQ(CUDA_SUCCESS, result);
  }

  void SetUp() override {
    GraphFixture::SetUp();
    CU_OK(cu().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    CU_OK(cu().cuEventCreate(&event, CU_EVENT_DEFAULT));
  }
  void TearDown() override {
    const Unrecorded quiet;
    cu().cuEventDestroy_v2(event);
    cu().cuStreamDestroy_v2(other);
    GraphFixture::TearDown();
  }

  CUstream other = nullptr;
  CUevent event = nullptr;
};

TEST_F(GraphWaitsTest, FreeingWhatAGraphAllocated) {
  if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) GTEST_SKIP();
  const OwnedGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  params.bytesize = 64;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  Gate gate;
  CU_OK(cu().cuLaunchHostFunc(*stream, &Gate::pass, &gate));
  call_at(gate, [&] { return cu().cuMemFree_v2(params.dptr); });
  CU_OK(cu().cuStreamSynchronize(*stream));
}

TEST_F(GraphWaitsTest, UpdatingAGraphThatRuns) {
  const OwnedGraph graph;
  Gate gate;
  const CUDA_HOST_NODE_PARAMS params{.fn = &Gate::pass, .userData = &gate};
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CUgraphExecUpdateResultInfo info{};
  call_at(gate, [&] { return cu().cuGraphExecUpdate_v2(exec, graph, &info); });
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
  CU_OK(cu().cuStreamSynchronize(*stream));
}

}  // namespace
}  // namespace flyt::conformance
