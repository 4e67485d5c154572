// Graphs made by hand: their nodes, edges and clones, and what can be asked of them.
#include <algorithm>

#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

using GraphTest = GraphFixture;

TEST_F(GraphTest, CreationChecksItsArguments) {
  CUgraph graph = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphCreate(nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphCreate(&graph, 1));
  CU_OK(cu().cuGraphCreate(&graph, 0));
  ASSERT_NE(nullptr, graph);
  CU_OK(cu().cuGraphDestroy(graph));
}

TEST_F(GraphTest, NullHandlesAreRefused) {
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  std::size_t count = 0;
  CUgraphNodeType type{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphDestroy(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphGetNodes(nullptr, nullptr, &count));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphNodeGetType(nullptr, &type));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddEmptyNode(&node, nullptr, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphInstantiateWithFlags(&exec, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphExecDestroy(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphLaunch(nullptr, *stream));
}

TEST_F(GraphTest, AnEmptyGraphRuns) {
  const OwnedGraph graph;
  EXPECT_TRUE(nodes_of(graph).empty());
  const OwnedExec exec(graph);
  CU_OK(run(exec));
}

TEST_F(GraphTest, AKernelNodeRunsAtEachLaunch) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_add(graph, {}, 0, &node));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, type_of(node));
  EXPECT_EQ(0u, read(0));
  const OwnedExec exec(graph);
  EXPECT_EQ(0u, read(0));
  for (unsigned i = 1; i <= 3; ++i) {
    CU_OK(run(exec));
    EXPECT_EQ(i, read(0));
  }
}

TEST_F(GraphTest, KernelArgumentsAreTakenWhenTheNodeIsAdded) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUdeviceptr to = word(0);
  std::uint32_t value = 5;
  void* pointers[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers);
  CU_OK(cu().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  value = 6;
  to = word(1);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(5u, read(0));
  EXPECT_EQ(0u, read(1));
}

TEST_F(GraphTest, KernelArgumentsMayComeInABuffer) {
  const OwnedGraph graph;
  struct {
    CUdeviceptr to;
    std::uint32_t value;
  } arguments{word(0), 9};
  std::size_t size = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, nullptr);
  params.extra = extra;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(9u, read(0));
}

TEST_F(GraphTest, KernelNodesTellTheirParameters) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_store(graph, {}, 2, 77, &node));
  CUDA_KERNEL_NODE_PARAMS params{};
  CU_OK(cu().cuGraphKernelNodeGetParams_v2(node, &params));
  EXPECT_EQ(store_value, params.func);
  EXPECT_EQ(1u, params.gridDimX);
  EXPECT_EQ(1u, params.blockDimX);
  ASSERT_NE(nullptr, params.kernelParams);
  EXPECT_EQ(word(2), *static_cast<CUdeviceptr*>(params.kernelParams[0]));
  EXPECT_EQ(77u, *static_cast<std::uint32_t*>(params.kernelParams[1]));
}

TEST_F(GraphTest, WhatAKernelNodeToldStaysWhereItIs) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUgraphNode other = nullptr;
  CU_OK(add_store(graph, {}, 2, 77, &node));
  CU_OK(add_store(graph, {}, 3, 78, &other));
  CUDA_KERNEL_NODE_PARAMS first{};
  CUDA_KERNEL_NODE_PARAMS again{};
  CU_OK(cu().cuGraphKernelNodeGetParams_v2(node, &first));
  ASSERT_NE(nullptr, first.kernelParams);
  const void* value = first.kernelParams[1];
  CU_OK(cu().cuGraphKernelNodeGetParams_v2(other, &again));
  CU_OK(cu().cuGraphKernelNodeGetParams_v2(node, &again));
  EXPECT_EQ(first.kernelParams, again.kernelParams);
  EXPECT_EQ(value, again.kernelParams[1]);
  EXPECT_EQ(77u, *static_cast<const std::uint32_t*>(value));
}

TEST_F(GraphTest, KernelNodesTakeNewParameters) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &node));
  const OwnedExec before(graph);
  CUdeviceptr to = word(1);
  std::uint32_t value = 2;
  void* pointers[] = {&to, &value};
  const CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers);
  CU_OK(cu().cuGraphKernelNodeSetParams_v2(node, &params));
  const OwnedExec after(graph);
  // An executable graph does not follow the graph that it came from.
  CU_OK(run(before));
  EXPECT_EQ(1u, read(0));
  EXPECT_EQ(0u, read(1));
  CU_OK(run(after));
  EXPECT_EQ(2u, read(1));
}

TEST_F(GraphTest, KernelNodesRefuseWhatNoLaunchTakes) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUdeviceptr to = word(0);
  std::uint32_t value = 2;
  void* pointers[] = {&to, &value};
  CUDA_KERNEL_NODE_PARAMS params = kernel_params(store_value, pointers, 4096);
  EXPECT_NE(CUDA_SUCCESS, cu().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  params = kernel_params(store_value, nullptr);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
  EXPECT_TRUE(nodes_of(graph).empty());
}

TEST_F(GraphTest, DependenciesOrderTheNodes) {
  const OwnedGraph graph;
  CUgraphNode last = nullptr;
  CU_OK(add_store(graph, {}, 0, 10, &last));
  for (int i = 0; i < 20; ++i) {
    CUgraphNode next = nullptr;
    CU_OK(add_add(graph, {last}, 0, &next));
    last = next;
  }
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(30u, read(0));
}

TEST_F(GraphTest, BranchesJoinBeforeWhatDependsOnThem) {
  const OwnedGraph graph;
  CUgraphNode first = nullptr;
  CUgraphNode left = nullptr;
  CUgraphNode right = nullptr;
  CUgraphNode empty = nullptr;
  CUgraphNode copy = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &first));
  CU_OK(add_store(graph, {first}, 1, 20, &left));
  CU_OK(add_store(graph, {first}, 2, 30, &right));
  CU_OK(add_empty(graph, {left, right}, &empty));
  const CUDA_MEMCPY3D params = between(word(3), word(2), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, &empty, 1, &params, context));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 20, 30, 30}), memory->read<std::uint32_t>());
}

TEST_F(GraphTest, CopiesReadHostMemoryWhenTheyRun) {
  const OwnedGraph graph;
  const PinnedMemory host(8);
  auto* values = host.as<std::uint32_t>();
  CUgraphNode down = nullptr;
  CUgraphNode add = nullptr;
  CUgraphNode up = nullptr;
  const CUDA_MEMCPY3D to = to_device(word(0), values, 4);
  const CUDA_MEMCPY3D from = to_host(values + 1, word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&down, graph, nullptr, 0, &to, context));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEMCPY, type_of(down));
  CU_OK(add_add(graph, {down}, 0, &add));
  CU_OK(cu().cuGraphAddMemcpyNode(&up, graph, &add, 1, &from, context));
  const OwnedExec exec(graph);
  for (std::uint32_t i = 100; i < 103; ++i) {
    values[0] = i;
    CU_OK(run(exec));
    EXPECT_EQ(i + 1, values[1]);
  }
}

TEST_F(GraphTest, CopiesMayUsePageableMemory) {
  const OwnedGraph graph;
  std::vector<std::uint32_t> in = {1, 2, 3, 4};
  std::vector<std::uint32_t> out(4);
  CUgraphNode down = nullptr;
  CUgraphNode up = nullptr;
  const CUDA_MEMCPY3D to = to_device(word(0), in.data(), 16);
  const CUDA_MEMCPY3D from = to_host(out.data(), word(0), 16);
  CU_OK(cu().cuGraphAddMemcpyNode(&down, graph, nullptr, 0, &to, context));
  CU_OK(cu().cuGraphAddMemcpyNode(&up, graph, &down, 1, &from, context));
  const OwnedExec exec(graph);
  in = {5, 6, 7, 8};
  CU_OK(run(exec));
  EXPECT_EQ(in, out);
}

TEST_F(GraphTest, CopyNodesTellAndTakeParameters) {
  const OwnedGraph graph;
  memory->write<std::uint32_t>({1, 2, 3, 4});
  CUgraphNode node = nullptr;
  CUDA_MEMCPY3D params = between(word(3), word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &params, context));
  CUDA_MEMCPY3D told{};
  CU_OK(cu().cuGraphMemcpyNodeGetParams(node, &told));
  EXPECT_EQ(word(0), told.srcDevice);
  EXPECT_EQ(word(3), told.dstDevice);
  EXPECT_EQ(4u, told.WidthInBytes);
  params = between(word(3), word(1), 4);
  CU_OK(cu().cuGraphMemcpyNodeSetParams(node, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(2u, read(3));
}

TEST_F(GraphTest, FillNodesFillRows) {
  const OwnedGraph graph;
  const DeviceMemory rows(64);
  rows.fill(0);
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = rows;
  params.pitch = 16;
  params.value = 0xAB;
  params.elementSize = 1;
  params.width = 3;
  params.height = 4;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &params, context));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEMSET, type_of(node));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  const auto bytes = rows.read<std::uint8_t>();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(i % 16 < 3 ? 0xAB : 0, bytes[i]) << i;
  }
}

TEST_F(GraphTest, FillNodesTellAndTakeParameters) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUDA_MEMSET_NODE_PARAMS params = fill_words(word(0), 7, 2);
  CU_OK(cu().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &params, context));
  CUDA_MEMSET_NODE_PARAMS told{};
  CU_OK(cu().cuGraphMemsetNodeGetParams(node, &told));
  EXPECT_EQ(word(0), told.dst);
  EXPECT_EQ(7u, told.value);
  EXPECT_EQ(4u, told.elementSize);
  EXPECT_EQ(2u, told.width);
  params.value = 8;
  CU_OK(cu().cuGraphMemsetNodeSetParams(node, &params));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{8, 8, 0, 0}), memory->read<std::uint32_t>());
}

TEST_F(GraphTest, FillNodesCheckTheirElements) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUDA_MEMSET_NODE_PARAMS params = fill_words(word(0), 7, 2);
  params.elementSize = 3;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &params, context));
}

void add_ten(void* at) { *static_cast<std::uint32_t*>(at) += 10; }
void store_one(void* at) { *static_cast<std::uint32_t*>(at) = 1; }

TEST_F(GraphTest, HostNodesRunInOrder) {
  const OwnedGraph graph;
  const PinnedMemory host(4);
  auto* value = host.as<std::uint32_t>();
  CUgraphNode first = nullptr;
  CUgraphNode second = nullptr;
  CUgraphNode copy = nullptr;
  CUDA_HOST_NODE_PARAMS params{&store_one, value};
  CU_OK(cu().cuGraphAddHostNode(&first, graph, nullptr, 0, &params));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_HOST, type_of(first));
  params.fn = &add_ten;
  CU_OK(cu().cuGraphAddHostNode(&second, graph, &first, 1, &params));
  const CUDA_MEMCPY3D to = to_device(word(0), value, 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, &second, 1, &to, context));
  CUDA_HOST_NODE_PARAMS told{};
  CU_OK(cu().cuGraphHostNodeGetParams(second, &told));
  EXPECT_EQ(&add_ten, told.fn);
  EXPECT_EQ(value, told.userData);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(11u, read(0));
  params.fn = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddHostNode(&first, graph, nullptr, 0, &params));
}

TEST_F(GraphTest, AChildGraphRunsAsOneNode) {
  const OwnedGraph child;
  CUgraphNode node = nullptr;
  CUgraphNode inner = nullptr;
  CU_OK(add_add(child, {}, 0, &inner));
  CU_OK(add_add(child, {inner}, 0, &inner));
  const OwnedGraph graph;
  CUgraphNode before = nullptr;
  CUgraphNode after = nullptr;
  CU_OK(add_store(graph, {}, 0, 40, &before));
  CU_OK(cu().cuGraphAddChildGraphNode(&node, graph, &before, 1, child));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_GRAPH, type_of(node));
  const CUDA_MEMCPY3D copy = between(word(1), word(0), 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&after, graph, &node, 1, &copy, context));
  // The node has a copy: what is added to the original now is no part of it.
  CU_OK(add_store(child, {inner}, 0, 99, &inner));
  CUgraph copied = nullptr;
  CU_OK(cu().cuGraphChildGraphNodeGetGraph(node, &copied));
  EXPECT_NE(static_cast<CUgraph>(child), copied);
  EXPECT_EQ(2u, nodes_of(copied).size());
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(42u, read(1));
}

TEST_F(GraphTest, NodesAndEdgesCanBeListed) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CUgraphNode c = nullptr;
  CU_OK(add_empty(graph, {}, &a));
  CU_OK(add_empty(graph, {a}, &b));
  CU_OK(add_empty(graph, {a, b}, &c));
  std::size_t count = 0;
  CU_OK(cu().cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(3u, count);
  CUgraphNode nodes[5] = {a, a, a, a, a};
  count = 5;
  CU_OK(cu().cuGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(3u, count);
  EXPECT_EQ(1, std::count(nodes, nodes + 3, b));
  EXPECT_EQ(nullptr, nodes[3]);
  EXPECT_EQ(nullptr, nodes[4]);
  count = 1;
  CU_OK(cu().cuGraphGetRootNodes(graph, nodes, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(a, nodes[0]);
  count = 0;  // An array without room is no question about the size, whatever the size is.
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphNodeGetDependencies(a, nodes, &count));
  count = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphGetNodes(graph, nodes, &count));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphGetRootNodes(graph, nodes, &count));
  EXPECT_EQ(0u, count);
  CU_OK(cu().cuGraphGetEdges(graph, nullptr, nullptr, &count));
  ASSERT_EQ(3u, count);
  CUgraphNode from[3];
  CUgraphNode to[3];
  CU_OK(cu().cuGraphGetEdges(graph, from, to, &count));
  int found = 0;
  for (int i = 0; i < 3; ++i) {
    found += from[i] == a && to[i] == b;
    found += from[i] == a && to[i] == c;
    found += from[i] == b && to[i] == c;
  }
  EXPECT_EQ(3, found);
}

TEST_F(GraphTest, NeighboursCanBeListed) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CUgraphNode c = nullptr;
  CU_OK(add_empty(graph, {}, &a));
  CU_OK(add_empty(graph, {a}, &b));
  CU_OK(add_empty(graph, {a, b}, &c));
  EXPECT_TRUE(dependencies_of(a).empty());
  EXPECT_EQ((std::vector<CUgraphNode>{a}), dependencies_of(b));
  EXPECT_EQ(2u, dependencies_of(c).size());
  std::size_t count = 0;
  CU_OK(cu().cuGraphNodeGetDependentNodes(a, nullptr, &count));
  ASSERT_EQ(2u, count);
  CUgraphNode dependents[2];
  CU_OK(cu().cuGraphNodeGetDependentNodes(a, dependents, &count));
  EXPECT_EQ(1, std::count(dependents, dependents + 2, b));
  EXPECT_EQ(1, std::count(dependents, dependents + 2, c));
  CU_OK(cu().cuGraphNodeGetDependentNodes(c, nullptr, &count));
  EXPECT_EQ(0u, count);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphNodeGetDependencies(a, nullptr, nullptr));
}

TEST_F(GraphTest, DependenciesCanBeAddedAndRemoved) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_empty(graph, {}, &a));
  CU_OK(add_empty(graph, {}, &b));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphRemoveDependencies(graph, &a, &b, 1));
  CU_OK(cu().cuGraphAddDependencies(graph, &a, &b, 1));
  EXPECT_EQ((std::vector<CUgraphNode>{a}), dependencies_of(b));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddDependencies(graph, &a, &b, 1));
  CU_OK(cu().cuGraphRemoveDependencies(graph, &a, &b, 1));
  EXPECT_TRUE(dependencies_of(b).empty());
  CU_OK(cu().cuGraphAddDependencies(graph, nullptr, nullptr, 0));
}

TEST_F(GraphTest, DependenciesOnNodesOfOtherGraphsAreRefused) {
  const OwnedGraph graph;
  const OwnedGraph other;
  CUgraphNode foreign = nullptr;
  CUgraphNode node = nullptr;
  CU_OK(add_empty(other, {}, &foreign));
  CU_IS(CUDA_ERROR_INVALID_VALUE, add_empty(graph, {foreign}, &node));
  CU_OK(add_empty(graph, {}, &node));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddDependencies(graph, &foreign, &node, 1));
  EXPECT_EQ(1u, nodes_of(graph).size());
}

TEST_F(GraphTest, ADestroyedNodeTakesItsEdgesAlong) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CUgraphNode c = nullptr;
  CU_OK(add_store(graph, {}, 0, 1, &a));
  CU_OK(add_store(graph, {a}, 1, 1, &b));
  CU_OK(add_store(graph, {b}, 2, 1, &c));
  CU_OK(cu().cuGraphDestroyNode(b));
  EXPECT_EQ(2u, nodes_of(graph).size());
  EXPECT_TRUE(dependencies_of(c).empty());
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ((std::vector<std::uint32_t>{1, 0, 1, 0}), memory->read<std::uint32_t>());
}

TEST_F(GraphTest, ACloneIsIndependent) {
  const OwnedGraph graph;
  CUgraphNode a = nullptr;
  CUgraphNode b = nullptr;
  CU_OK(add_store(graph, {}, 0, 3, &a));
  CU_OK(add_add(graph, {a}, 0, &b));
  CUgraph cloned = nullptr;
  CU_OK(cu().cuGraphClone(&cloned, graph));
  const OwnedGraph clone(cloned);
  CUgraphNode twin = nullptr;
  CU_OK(cu().cuGraphNodeFindInClone(&twin, b, clone));
  EXPECT_NE(b, twin);
  EXPECT_EQ(1u, dependencies_of(twin).size());
  CU_OK(cu().cuGraphDestroyNode(b));
  EXPECT_EQ(2u, nodes_of(clone).size());
  const OwnedExec exec(clone);
  CU_OK(run(exec));
  EXPECT_EQ(4u, read(0));
  CUgraphNode none = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphNodeFindInClone(&none, twin, clone));
}

TEST_F(GraphTest, CallsOnNodesOfAnotherKindAreRefused) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CU_OK(add_empty(graph, {}, &node));
  CUDA_KERNEL_NODE_PARAMS kernel{};
  CUDA_MEMCPY3D copy{};
  CUDA_MEMSET_NODE_PARAMS fill{};
  CUDA_HOST_NODE_PARAMS host{};
  CUgraph child = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphKernelNodeGetParams_v2(node, &kernel));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphMemcpyNodeGetParams(node, &copy));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphMemsetNodeGetParams(node, &fill));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphHostNodeGetParams(node, &host));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphChildGraphNodeGetGraph(node, &child));
}

}  // namespace
}  // namespace flyt::conformance
