// Nodes beyond kernels and copies: events, memory words, any kind by one call; edge data,
// attributes, pictures, and objects that graphs hold.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

using GraphNodeTest = GraphFixture;

TEST_F(GraphNodeTest, ARecordedEventIsReachedWhenTheGraphComesToIt) {
  const OwnedGraph graph;
  const Event event;
  CUgraphNode kernel = nullptr;
  CUgraphNode record = nullptr;
  CU_OK(add_store(graph, {}, 0, 3, &kernel));
  CU_OK(cu().cuGraphAddEventRecordNode(&record, graph, &kernel, 1, event));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_EVENT_RECORD, type_of(record));
  CUevent told = nullptr;
  CU_OK(cu().cuGraphEventRecordNodeGetEvent(record, &told));
  EXPECT_EQ(static_cast<CUevent>(event), told);
  const OwnedExec exec(graph);
  const Stream other;
  Gate gate;
  gate.close(*stream);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuStreamWaitEvent(other, event, 0));
  CU_OK(cu().cuMemcpyDtoDAsync_v2(word(1), word(0), 4, other));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuEventQuery(event));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(other));
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(event));
  EXPECT_EQ(3u, read(1));
}

TEST_F(GraphNodeTest, AWaitNodeWaitsForWorkOutsideTheGraph) {
  const OwnedGraph graph;
  const Event event;
  const Stream other;
  CUgraphNode wait = nullptr;
  CUgraphNode copy = nullptr;
  CU_OK(cu().cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_WAIT_EVENT, type_of(wait));
  const CUDA_MEMCPY3D params = between(word(1), word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, &wait, 1, &params, context));
  const OwnedExec exec(graph);
  Gate gate;
  gate.close(other);
  CU_OK(store(other, 0, 8));
  CU_OK(cu().cuEventRecord(event, other));
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(*stream));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(8u, read(1));
}

TEST_F(GraphNodeTest, EventNodesTakeOtherEvents) {
  const OwnedGraph graph;
  const Event first;
  const Event second;
  CUgraphNode record = nullptr;
  CU_OK(cu().cuGraphAddEventRecordNode(&record, graph, nullptr, 0, first));
  CU_OK(cu().cuGraphEventRecordNodeSetEvent(record, second));
  CUevent told = nullptr;
  CU_OK(cu().cuGraphEventRecordNodeGetEvent(record, &told));
  EXPECT_EQ(static_cast<CUevent>(second), told);
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphExecEventRecordNodeSetEvent(exec, record, first));
  CU_OK(run(exec));
  CU_IS(CUDA_SUCCESS, cu().cuEventQuery(first));
}

TEST_F(GraphNodeTest, MemoryWordsAreWrittenAndWaitedFor) {
  if (attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0) GTEST_SKIP();
  const OwnedGraph graph;
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = word(0);
  operations[0].writeValue.value = 4;
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = word(0);
  operations[1].waitValue.value = 4;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  params.ctx = context;
  params.count = 2;
  params.paramArray = operations;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, type_of(node));
  CUDA_BATCH_MEM_OP_NODE_PARAMS told{};
  CU_OK(cu().cuGraphBatchMemOpNodeGetParams(node, &told));
  EXPECT_EQ(2u, told.count);
  const OwnedExec exec(graph);
  operations[0].writeValue.value = 5;
  operations[1].waitValue.value = 5;
  CU_OK(run(exec));
  EXPECT_EQ(4u, read(0));
  CU_OK(cu().cuGraphExecBatchMemOpNodeSetParams(exec, node, &params));
  CU_OK(run(exec));
  EXPECT_EQ(5u, read(0));
  params.count = 0;
  CU_OK(cu().cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  params.ctx = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
}

TEST_F(GraphNodeTest, AsManyMemoryWordsAtOnceAsDriversTake) {
  if (attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0) GTEST_SKIP();
  std::vector<CUstreamBatchMemOpParams> operations(256);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    operations[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[i].writeValue.address = word(i % 4);
    operations[i].writeValue.value = static_cast<cuuint32_t>(i);
  }
  const OwnedGraph graph;
  CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
  params.ctx = context;
  params.count = 256;
  params.paramArray = operations.data();
  CUgraphNode node = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  params.count = 255;
  CU_OK(cu().cuGraphAddBatchMemOpNode(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(254u, read(2));
  EXPECT_EQ(251u, read(3));
  const Stream stream;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuStreamBatchMemOp_v2(stream, 256, operations.data(), 0));
  std::reverse(operations.begin(), operations.end());
  CU_OK(cu().cuStreamBatchMemOp_v2(stream, 255, operations.data(), 0));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(2u, read(2));
}

TEST_F(GraphNodeTest, OneCallAddsAnyKind) {
  const OwnedGraph graph;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUdeviceptr to = word(0);
  std::uint32_t value = 21;
  void* pointers[] = {&to, &value};
  params.kernel.func = store_value;
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = pointers;
  CUgraphNode kernel = nullptr;
  CU_OK(cu().cuGraphAddNode(&kernel, graph, nullptr, 0, &params));
  params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyCtx = context;
  params.memcpy.copyParams = between(word(1), word(0), 4);
  CUgraphNode copy = nullptr;
  CU_OK(cu().cuGraphAddNode_v2(&copy, graph, &kernel, nullptr, 1, &params));
  params.memcpy.copyParams = between(word(2), word(0), 4);
  CU_OK(cu().cuGraphNodeSetParams(copy, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{21, 0, 21, 0}), memory->read<std::uint32_t>());
  params.memcpy.copyParams = between(word(3), word(0), 4);
  CU_OK(cu().cuGraphExecNodeSetParams(exec, copy, &params));
  CU_OK(run(exec));
  EXPECT_EQ(21u, read(3));
  params.reserved0[1] = 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddNode(&copy, graph, nullptr, 0, &params));
}

TEST_F(GraphNodeTest, EdgesOfKernelsCarryData) {
  if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9) GTEST_SKIP();
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &a));
  CU_OK(add_store(graph, {}, 1, 2, &b));
  CUgraphEdgeData data{};
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  CU_OK(cu().cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
  CUgraphNode from = nullptr;
  CUgraphNode to = nullptr;
  std::size_t count = 1;
  CU_IS(CUDA_ERROR_LOSSY_QUERY, cu().cuGraphGetEdges(graph, &from, &to, &count));
  CUgraphEdgeData told{};
  count = 1;
  CU_OK(cu().cuGraphGetEdges_v2(graph, &from, &to, &told, &count));
  EXPECT_EQ(a, from);
  EXPECT_EQ(b, to);
  EXPECT_EQ(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, told.type);
  count = 1;
  CU_IS(CUDA_ERROR_LOSSY_QUERY, cu().cuGraphNodeGetDependencies(b, &from, &count));
  CU_OK(cu().cuGraphNodeGetDependencies_v2(b, &from, &told, &count));
  EXPECT_EQ(a, from);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(2u, read(1));
  CU_OK(cu().cuGraphRemoveDependencies(graph, &a, &b, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphRemoveDependencies_v2(graph, &a, &b, &data, 1));
  CU_OK(cu().cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
  CU_OK(cu().cuGraphRemoveDependencies_v2(graph, &a, &b, &data, 1));
}

TEST_F(GraphNodeTest, KernelNodesHaveAttributes) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &a));
  CU_OK(add_store(graph, {}, 1, 2, &b));
  CUkernelNodeAttrValue value{};
  CU_OK(cu().cuGraphKernelNodeGetAttribute(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  EXPECT_EQ(0, value.cooperative);
  value = {};
  value.cooperative = 1;
  CU_OK(cu().cuGraphKernelNodeSetAttribute(a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  CU_OK(cu().cuGraphKernelNodeCopyAttributes(b, a));
  value = {};
  CU_OK(cu().cuGraphKernelNodeGetAttribute(b, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  EXPECT_EQ(1, value.cooperative);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGraphKernelNodeGetAttribute(a, static_cast<CUlaunchAttributeID>(99), &value));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(2u, read(1));
}

TEST_F(GraphNodeTest, EventsAreNoAttributesOfKernelNodes) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_store(graph, {}, 0, 3, &node));
  CUkernelNodeAttrValue value{};
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, &value));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphKernelNodeSetAttribute(
                                      node, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, &value));
  CU_OK(cu().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
                                           &value));
  CU_OK(cu().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
}

TEST_F(GraphNodeTest, ParametersOfAnyKindHaveNothingInTheirReserve) {
  if (!cu().cuGraphExecNodeSetParams.present()) GTEST_SKIP() << "an older driver";
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset = {word(0), 0, 4, 4, 1, 1, context};
  CU_OK(cu().cuGraphAddNode(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphExecNodeSetParams(exec, node, &params));
  params.reserved2 = 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphExecNodeSetParams(exec, node, &params));
}

TEST_F(GraphNodeTest, WhatIsNullIsRefusedByItsKind) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddEventWaitNode(&node, graph, nullptr, 0, nullptr));
  CUgraphConditionalHandle handle = 0;
  if (cu().cuGraphConditionalHandleCreate.present()) {
    CU_IS(CUDA_ERROR_INVALID_CONTEXT,
          cu().cuGraphConditionalHandleCreate(&handle, graph, nullptr, 0, 0));
  }
}

TEST_F(GraphNodeTest, CopiesAndFillsWithoutAContextAreOfTheCurrentOne) {
  const OwnedGraph graph;
  CUgraphNode fill = nullptr;
  CUgraphNode copy = nullptr;
  CUDA_MEMSET_NODE_PARAMS filled{};
  filled.dst = word(0);
  filled.elementSize = 4;
  filled.value = 9;
  filled.width = filled.height = 1;
  CU_OK(cu().cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &filled, nullptr));
  const CUDA_MEMCPY3D params = between(word(1), word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &params, nullptr));
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphExecMemcpyNodeSetParams(exec, copy, &params, nullptr));
  CU_OK(cu().cuGraphExecMemsetNodeSetParams(exec, fill, &filled, nullptr));
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(9u, read(1));
}

TEST_F(GraphNodeTest, ABoxFarFromWhatItsCopyNamesIsCopied) {
  const OwnedGraph graph;
  constexpr std::size_t kFar = 64;
  std::vector<std::uint32_t> host(kFar * 1024 + 1, 7);
  host.back() = 8;
  CUDA_MEMCPY3D params{};
  params.srcMemoryType = CU_MEMORYTYPE_HOST;
  params.srcHost = host.data();
  params.srcPitch = 4096;
  params.srcHeight = 1;
  params.srcZ = kFar;
  params.srcLOD = 1;
  params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  params.dstDevice = word(0);
  params.WidthInBytes = 4;
  params.Height = params.Depth = 1;
  CUgraphNode copy = nullptr;
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, nullptr, 0, &params, context));
  CUDA_MEMCPY3D told{};
  CU_OK(cu().cuGraphMemcpyNodeGetParams(copy, &told));
  EXPECT_EQ(host.data(), told.srcHost);
  EXPECT_EQ(0u, told.srcXInBytes);
  EXPECT_EQ(kFar, told.srcZ);
  const OwnedExec exec(graph);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(8u, read(0));
  // What was told may be given again, with one thing changed.
  told.srcZ = kFar - 1;
  CU_OK(cu().cuGraphMemcpyNodeSetParams(copy, &told));
  const OwnedExec other(graph);
  CU_OK(cu().cuGraphLaunch(other, *stream));
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_EQ(7u, read(0));
}

TEST_F(GraphNodeTest, AGraphCanBeDrawn) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &a));
  CU_OK(add_empty(graph, {a}, &b));
  const std::string path = ::testing::TempDir() + "/flyt_graph_" + std::to_string(::getpid());
  CU_OK(cu().cuGraphDebugDotPrint(graph, path.c_str(), CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE));
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::remove(path.c_str());
  EXPECT_NE(std::string::npos, text.str().find("digraph"));
  EXPECT_NE(std::string::npos, text.str().find("->"));
  EXPECT_NE(std::string::npos, text.str().find("store_value"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphDebugDotPrint(graph, nullptr, 0));
}

using UserObjectTest = GraphFixture;

void count_up(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

TEST_F(UserObjectTest, TheDestructorIsCalledWithTheLastReference) {
  std::atomic<int> gone{0};
  CUuserObject object = nullptr;
  CU_OK(cu().cuUserObjectCreate(&object, &gone, &count_up, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_OK(cu().cuUserObjectRetain(object, 1));
  CU_OK(cu().cuUserObjectRelease(object, 2));
  EXPECT_EQ(0, gone.load());
  CU_OK(cu().cuUserObjectRelease(object, 1));
  EXPECT_TRUE(eventually([&gone] { return gone.load() == 1; }));
}

TEST_F(UserObjectTest, CreationChecksItsArguments) {
  std::atomic<int> gone{0};
  CUuserObject object = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuUserObjectCreate(&object, &gone, &count_up, 1, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuUserObjectCreate(&object, &gone, &count_up, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuUserObjectCreate(&object, &gone, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
}

TEST_F(UserObjectTest, GraphsAndExecutableGraphsHoldObjects) {
  std::atomic<int> gone{0};
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphCreate(&graph, 0));
  CU_OK(add_empty(graph, {}, &node));
  CUuserObject object = nullptr;
  CU_OK(cu().cuUserObjectCreate(&object, &gone, &count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_OK(cu().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  CUgraphExec exec = nullptr;
  CU_OK(cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(cu().cuGraphDestroy(graph));
  CU_OK(run(exec));
  EXPECT_EQ(0, gone.load());
  CU_OK(cu().cuGraphExecDestroy(exec));
  EXPECT_TRUE(eventually([&gone] { return gone.load() == 1; }));
}

TEST_F(UserObjectTest, ALaunchKeepsObjectsUntilItIsDone) {
  std::atomic<int> gone{0};
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphCreate(&graph, 0));
  CU_OK(add_store(graph, {}, 0, 1, &node));
  CUuserObject object = nullptr;
  CU_OK(cu().cuUserObjectCreate(&object, &gone, &count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_OK(cu().cuGraphRetainUserObject(graph, object, 1, 0));
  CU_OK(cu().cuUserObjectRelease(object, 1));
  CUgraphExec exec = nullptr;
  CU_OK(cu().cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU_OK(cu().cuGraphDestroy(graph));
  Gate gate;
  gate.close(*stream);
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuGraphExecDestroy(exec));
  EXPECT_EQ(0, gone.load());
  gate.open();
  EXPECT_TRUE(eventually([&gone] { return gone.load() == 1; }));
  CU_OK(cu().cuStreamSynchronize(*stream));
}

TEST_F(UserObjectTest, AGraphLetsGoOfWhatItHolds) {
  std::atomic<int> gone{0};
  const OwnedGraph graph;
  CUuserObject object = nullptr;
  CU_OK(cu().cuUserObjectCreate(&object, &gone, &count_up, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  CU_OK(cu().cuGraphRetainUserObject(graph, object, 2, 0));
  CU_OK(cu().cuUserObjectRelease(object, 1));
  CU_OK(cu().cuGraphReleaseUserObject(graph, object, 1));
  EXPECT_EQ(0, gone.load());
  CU_OK(cu().cuGraphReleaseUserObject(graph, object, 1));
  EXPECT_TRUE(eventually([&gone] { return gone.load() == 1; }));
}

}  // namespace
}  // namespace flyt::conformance
