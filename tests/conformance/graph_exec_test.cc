// Executable graphs: instantiating and launching them, and changing what they do.
#include <atomic>
#include <thread>

#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

using GraphExecTest = GraphFixture;

TEST_F(GraphExecTest, EveryWayToInstantiateWorks) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_add(graph, {}, 0, &node));
  CUgraphExec execs[3] = {};
  CUgraphNode wrong = node;
  char log[64] = "x";
  CU_OK(cu().cuGraphInstantiate_v2(&execs[0], graph, &wrong, log, sizeof log));
  CU_OK(cu().cuGraphInstantiateWithFlags(&execs[1], graph, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  params.result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  CU_OK(cu().cuGraphInstantiateWithParams(&execs[2], graph, &params));
  EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_SUCCESS, params.result_out);
  cuuint64_t flags = 0;
  // NVIDIA's driver told 0 here.
  CU_OK(cu().cuGraphExecGetFlags(execs[2], &flags));
  for (const CUgraphExec exec : execs) {
    CU_OK(run(exec));
    CU_OK(cu().cuGraphExecDestroy(exec));
  }
  EXPECT_EQ(3u, read(0));
}

TEST_F(GraphExecTest, InstantiatingChecksItsArguments) {
  const OwnedGraph graph;
  CUgraphExec exec = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphInstantiateWithFlags(nullptr, graph, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphInstantiateWithFlags(&exec, graph, 0x1000));
}

TEST_F(GraphExecTest, UploadingComesBeforeLaunchingIfAtAll) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_add(graph, {}, 0, &node));
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  params.hUploadStream = *stream;
  CUgraphExec exec = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphInstantiateWithFlags(&exec, graph, params.flags));
  CU_OK(cu().cuGraphInstantiateWithParams(&exec, graph, &params));
  CU_OK(cu().cuGraphUpload(exec, *stream));
  CU_OK(run(exec));
  CU_OK(cu().cuGraphExecDestroy(exec));
  EXPECT_EQ(1u, read(0));
}

TEST_F(GraphExecTest, ACycleCannotBeInstantiated) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_empty(graph, {}, &a));
  CU_OK(add_empty(graph, {a}, &b));
  // The driver may notice it at once.
  if (cu().cuGraphAddDependencies(graph, &b, &a, 1) != CUDA_SUCCESS) return;
  CUgraphExec exec = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
}

TEST_F(GraphExecTest, ALaunchIsWorkOfItsStream) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_add(graph, {}, 0, &node));
  const OwnedExec exec(graph);
  Gate gate;
  gate.close(*stream);
  CU_OK(store(*stream, 0, 10));
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuMemcpyDtoDAsync_v2(word(1), word(0), 4, *stream));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(*stream));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(11u, read(1));
}

TEST_F(GraphExecTest, LaunchesOfOneGraphFollowEachOtherInAllStreams) {
  const OwnedGraph graph;
  CUgraphNode last = nullptr;
  CU_OK(add_add(graph, {}, 0, &last));
  for (int i = 1; i < 4; ++i) CU_OK(add_add(graph, {last}, 0, &last));
  const OwnedExec exec(graph);
  const Stream other;
  const Stream third;
  for (int i = 0; i < 20; ++i) {
    CU_OK(cu().cuGraphLaunch(exec, *stream));
    CU_OK(cu().cuGraphLaunch(exec, other));
    CU_OK(cu().cuGraphLaunch(exec, third));
  }
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(240u, read(0));
}

// Two sides that each come back only when the other one is there, too.
struct Meeting {
  std::atomic<int> there{0};
  std::atomic<bool> met{true};
};

void meet(void* data) {
  auto* meeting = static_cast<Meeting*>(data);
  ++meeting->there;
  if (!eventually([meeting] { return meeting->there.load() == 2; })) meeting->met = false;
}

TEST_F(GraphExecTest, ABranchGoesOnWhileAnotherWaits) {
  const OwnedGraph graph;
  const Event event;
  CUgraphNode waits = nullptr;
  CUgraphNode held = nullptr;
  CUgraphNode free = nullptr;
  Gate gate;
  const Stream gated;
  gate.close(gated);
  CU_OK(cu().cuEventRecord(event, gated));
  CU_OK(cu().cuGraphAddEventWaitNode(&waits, graph, nullptr, 0, event));
  CU_OK(add_store(graph, {waits}, 0, 1, &held));
  Meeting meeting;
  CUDA_HOST_NODE_PARAMS host{&meet, &meeting};
  CU_OK(cu().cuGraphAddHostNode(&free, graph, nullptr, 0, &host));
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  meet(&meeting);
  EXPECT_TRUE(meeting.met.load());
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(*stream));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(1u, read(0));
}

TEST_F(GraphExecTest, DestroyingAGraphLeavesWhatWasLaunched) {
  CUgraphExec exec = nullptr;
  {
    const OwnedGraph graph;
    CUgraphNode node = nullptr;
    CU_OK(add_store(graph, {}, 0, 7, &node));
    CU_OK(cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  }
  Gate gate;
  gate.close(*stream);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuGraphExecDestroy(exec));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(7u, read(0));
}

TEST_F(GraphExecTest, NodesOfAnExecutableGraphTakeNewParameters) {
  const OwnedGraph graph;
  CUgraphNode kernel = nullptr;
  CUgraphNode copy = nullptr;
  CUgraphNode fill = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &kernel));
  CUDA_MEMCPY3D between_words = between(word(1), word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, &kernel, 1, &between_words, context));
  CUDA_MEMSET_NODE_PARAMS words = fill_words(word(2), 5, 1);
  CU_OK(cu().cuGraphAddMemsetNode(&fill, graph, &copy, 1, &words, context));
  const OwnedExec exec(graph);
  CUdeviceptr to = word(0);
  std::uint32_t value = 9;
  void* pointers[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers);
  CU_OK(cu().cuGraphExecKernelNodeSetParams_v2(exec, kernel, &params));
  between_words = between(word(3), word(0), 4);
  CU_OK(cu().cuGraphExecMemcpyNodeSetParams(exec, copy, &between_words, context));
  words.value = 6;
  CU_OK(cu().cuGraphExecMemsetNodeSetParams(exec, fill, &words, context));
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{9, 0, 6, 9}), memory->read<std::uint32_t>());
  // The graph itself stays what it was.
  CUDA_MEMSET_NODE_PARAMS told{};
  CU_OK(cu().cuGraphMemsetNodeGetParams(fill, &told));
  EXPECT_EQ(5u, told.value);
}

TEST_F(GraphExecTest, ChangesConcernLaterLaunchesOnly) {
  const OwnedGraph graph;
  CUgraphNode kernel = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &kernel));
  const OwnedExec exec(graph);
  CUdeviceptr to = word(1);
  std::uint32_t value = 2;
  void* pointers[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers);
  Gate gate;
  gate.close(*stream);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuGraphExecKernelNodeSetParams_v2(exec, kernel, &params));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 0, 0, 0}), memory->read<std::uint32_t>());
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2, 0, 0}), memory->read<std::uint32_t>());
}

TEST_F(GraphExecTest, NodesThatItWasNotMadeFromAreRefused) {
  const OwnedGraph graph;
  CUgraphNode first = nullptr;
  CUgraphNode late = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &first));
  const OwnedExec exec(graph);
  CU_OK(add_store(graph, {}, 1, 1, &late));
  CUdeviceptr to = word(0);
  std::uint32_t value = 9;
  void* pointers[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphExecKernelNodeSetParams_v2(exec, late, &params));
  const CUDA_MEMCPY3D copy = between(word(1), word(0), 4);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphExecMemcpyNodeSetParams(exec, first, &copy, context));
}

TEST_F(GraphExecTest, CopiesKeepTheirDirection) {
  const OwnedGraph graph;
  const PinnedMemory host(4);
  CUgraphNode node = nullptr;
  CUDA_MEMCPY3D copy = between(word(1), word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  const OwnedExec exec(graph);
  copy = to_host(host.data(), word(0), 4);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context));
}

void store_five(void* at) { *static_cast<std::uint32_t*>(at) = 5; }
void store_six(void* at) { *static_cast<std::uint32_t*>(at) = 6; }

TEST_F(GraphExecTest, HostNodesTakeAnotherFunction) {
  const OwnedGraph graph;
  std::uint32_t value = 0;
  CUgraphNode node = nullptr;
  CUDA_HOST_NODE_PARAMS params{&store_five, &value};
  CU_OK(cu().cuGraphAddHostNode(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  params.fn = &store_six;
  CU_OK(cu().cuGraphExecHostNodeSetParams(exec, node, &params));
  CU_OK(run(exec));
  EXPECT_EQ(6u, value);
}

TEST_F(GraphExecTest, DisabledNodesDoNothing) {
  const OwnedGraph graph;
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  CUgraphNode empty = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &first));
  CU_OK(add_add(graph, {first}, 0, &second));
  CU_OK(add_empty(graph, {second}, &empty));
  const OwnedExec exec(graph);
  unsigned enabled = 7;
  CU_OK(cu().cuGraphNodeGetEnabled(exec, second, &enabled));
  EXPECT_EQ(1u, enabled);
  CU_OK(cu().cuGraphNodeSetEnabled(exec, second, 0));
  CU_OK(cu().cuGraphNodeGetEnabled(exec, second, &enabled));
  EXPECT_EQ(0u, enabled);
  CU_OK(run(exec));
  EXPECT_EQ(1u, read(0));
  CU_OK(cu().cuGraphNodeSetEnabled(exec, second, 1));
  CU_OK(run(exec));
  EXPECT_EQ(2u, read(0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphNodeSetEnabled(exec, empty, 0));
}

TEST_F(GraphExecTest, AnUpdateTakesOverParameters) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &a));
  CU_OK(add_store(graph, {a}, 1, 2, &b));
  const OwnedExec exec(graph);
  const OwnedGraph other;
  CU_OK(add_store(other, {}, 2, 3, &a));
  CU_OK(add_store(other, {a}, 3, 4, &b));
  CUgraphExecUpdateResultInfo info{};
  info.result = CU_GRAPH_EXEC_UPDATE_ERROR;
  CU_OK(cu().cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{0, 0, 3, 4}), memory->read<std::uint32_t>());
}

TEST_F(GraphExecTest, AnUpdateToAnotherShapeIsRefused) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &a));
  CU_OK(add_store(graph, {a}, 1, 2, &b));
  const OwnedExec exec(graph);
  const OwnedGraph longer;
  CU_OK(add_store(longer, {}, 2, 3, &a));
  CU_OK(add_store(longer, {a}, 2, 3, &a));
  CU_OK(add_store(longer, {a}, 2, 3, &a));
  CUgraphExecUpdateResultInfo info{};
  CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cu().cuGraphExecUpdate_v2(exec, longer, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
  EXPECT_EQ(nullptr, info.errorNode);
  const OwnedGraph flat;
  CU_OK(add_store(flat, {}, 2, 3, &a));
  CU_OK(add_store(flat, {}, 3, 4, &b));
  CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cu().cuGraphExecUpdate_v2(exec, flat, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
  EXPECT_EQ(a, info.errorNode);  // There is no such second end.
  EXPECT_EQ(nullptr, info.errorFromNode);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphExecUpdate_v2(exec, nullptr, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
  // What was refused has changed nothing.
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 2, 0, 0}), memory->read<std::uint32_t>());
}

// Nodes are compared from the last ones on, along their dependencies.
TEST_F(GraphExecTest, AnUpdateMayHaveItsNodesInAnotherOrder) {
  const OwnedGraph graph;
  CUgraphNode first = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &first));
  CUgraphNode last = nullptr;
  CU_OK(add_add(graph, {first}, 0, &last));
  const OwnedExec exec(graph);
  const OwnedGraph other;
  CU_OK(add_add(other, {}, 1, &last));
  CU_OK(add_store(other, {}, 1, 5, &first));
  CU_OK(cu().cuGraphAddDependencies_v2(other, &first, &last, nullptr, 1));
  CU_OK(cu().cuGraphExecUpdate_v2(exec, other, nullptr));
  CU_OK(run(exec));
  EXPECT_EQ(6u, read(1));
}

TEST_F(GraphExecTest, AnUpdateToAnotherKindOfNodeIsRefused) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &node));
  const OwnedExec exec(graph);
  const OwnedGraph other;
  const CUDA_MEMSET_NODE_PARAMS words = fill_words(word(2), 5, 1);
  CU_OK(cu().cuGraphAddMemsetNode(&node, other, nullptr, 0, &words, context));
  CUgraphExecUpdateResultInfo info{};
  CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cu().cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, info.result);
  EXPECT_EQ(node, info.errorNode);
}

TEST_F(GraphExecTest, ACaptureUpdatesAnExecutableGraph) {
  CUgraphExec exec = nullptr;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    CaptureOf capture(*stream);
    CU_OK(store(*stream, 0, round));
    CU_OK(cu().cuMemcpyDtoDAsync_v2(word(round), word(0), 4, *stream));
    CUgraph captured = nullptr;
    CU_OK(capture.end(&captured));
    const OwnedGraph graph(captured);
    if (exec == nullptr) {
      CU_OK(cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
    } else {
      CUgraphExecUpdateResultInfo info{};
      CU_OK(cu().cuGraphExecUpdate_v2(exec, graph, &info));
    }
    CU_OK(run(exec));
  }
  CU_OK(cu().cuGraphExecDestroy(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{3, 1, 2, 3}), memory->read<std::uint32_t>());
}

TEST_F(GraphExecTest, ChildGraphsTakeParametersOfTheirShape) {
  const OwnedGraph inner;
  CUgraphNode node = nullptr;
  CU_OK(add_store(inner, {}, 0, 1, &node));
  const OwnedGraph graph;
  CUgraphNode child = nullptr;
  CU_OK(cu().cuGraphAddChildGraphNode(&child, graph, nullptr, 0, inner));
  const OwnedExec exec(graph);
  const OwnedGraph same;
  CU_OK(add_store(same, {}, 1, 2, &node));
  CU_OK(cu().cuGraphExecChildGraphNodeSetParams(exec, child, same));
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{0, 2, 0, 0}), memory->read<std::uint32_t>());
  CU_OK(add_store(same, {node}, 2, 2, &node));
  CU_IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        cu().cuGraphExecChildGraphNodeSetParams(exec, child, same));
}

}  // namespace
}  // namespace flyt::conformance
