// Graphs that allocate and free memory, and conditional nodes.
#include "tests/conformance/graphs.h"

namespace flyt::conformance {
namespace {

class GraphMemoryTest : public GraphFixture {
 protected:
  void SetUp() override {
    GraphFixture::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) GTEST_SKIP();
  }
  CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(std::size_t bytes) const {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    params.bytesize = bytes;
    return params;
  }
  cuuint64_t memory_attribute(CUgraphMem_attribute which) const {
    const Unrecorded quiet;
    cuuint64_t value = ~cuuint64_t{0};
    EXPECT_EQ(CUDA_SUCCESS, cu().cuDeviceGetGraphMemAttribute(device, which, &value));
    return value;
  }
};

TEST_F(GraphMemoryTest, AGraphAllocatesUsesAndFrees) {
  const OwnedGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(4096);
  CUgraphNode alloc = nullptr;
  CUgraphNode fill = nullptr;
  CUgraphNode copy = nullptr;
  CUgraphNode free = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  ASSERT_NE(0u, params.dptr);
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEM_ALLOC, type_of(alloc));
  const CUDA_MEMSET_NODE_PARAMS words = fill_words(params.dptr, 12, 1024);
  CU_OK(cu().cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &words, context));
  const CUDA_MEMCPY3D part = between(word(0), params.dptr + 4092, 4);
  CU_OK(cu().cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &part, context));
  CU_OK(cu().cuGraphAddMemFreeNode(&free, graph, &copy, 1, params.dptr));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEM_FREE, type_of(free));
  CUDA_MEM_ALLOC_NODE_PARAMS told{};
  CU_OK(cu().cuGraphMemAllocNodeGetParams(alloc, &told));
  EXPECT_EQ(params.dptr, told.dptr);
  EXPECT_EQ(4096u, told.bytesize);
  CUdeviceptr freed = 0;
  CU_OK(cu().cuGraphMemFreeNodeGetParams(free, &freed));
  EXPECT_EQ(params.dptr, freed);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  CU_OK(run(exec));
  EXPECT_EQ(12u, read(0));
}

TEST_F(GraphMemoryTest, AnAllocationsAccessStaysWhereItWasTold) {
  const OwnedGraph graph;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(4096);
  params.accessDescs = &access;
  params.accessDescCount = 1;
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  CUDA_MEM_ALLOC_NODE_PARAMS first{};
  CUDA_MEM_ALLOC_NODE_PARAMS again{};
  CU_OK(cu().cuGraphMemAllocNodeGetParams(node, &first));
  CU_OK(cu().cuGraphMemAllocNodeGetParams(node, &again));
  ASSERT_EQ(1u, first.accessDescCount);
  EXPECT_EQ(first.accessDescs, again.accessDescs);
  EXPECT_EQ(device, first.accessDescs[0].location.id);
}

TEST_F(GraphMemoryTest, AllocationChecksItsParameters) {
  const OwnedGraph graph;
  CUgraphNode node = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(0);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphAddMemFreeNode(&node, graph, nullptr, 0, word(0)));
}

TEST_F(GraphMemoryTest, AllocationsAreOfADevicesOwnMemory) {
  const OwnedGraph graph;
  const auto added = [&](auto change) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(4096);
    change(params.poolProps);
    CUgraphNode node = nullptr;
    return cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params);
  };
  CU_IS(CUDA_ERROR_INVALID_VALUE, added([](auto& pool) { pool.location.id = 99; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        added([](auto& pool) { pool.allocType = CU_MEM_ALLOCATION_TYPE_INVALID; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        added([](auto& pool) { pool.handleTypes = CU_MEM_HANDLE_TYPE_WIN32; }));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED,
        added([](auto& pool) { pool.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR; }));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED,
        added([](auto& pool) { pool.location.type = CU_MEM_LOCATION_TYPE_HOST; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        added([](auto& pool) { pool.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT; }));
}

TEST_F(GraphMemoryTest, MemoryThatTheGraphLeavesIsTheProgramsToFree) {
  const OwnedGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(64);
  CUgraphNode alloc = nullptr;
  CUgraphNode fill = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  const CUDA_MEMSET_NODE_PARAMS words = fill_words(params.dptr, 3, 16);
  CU_OK(cu().cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &words, context));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  CU_OK(cu().cuMemcpyDtoD_v2(word(0), params.dptr, 4));
  EXPECT_EQ(3u, read(0));
  // It is still there: the graph cannot allocate it again.
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuMemFreeAsync(params.dptr, *stream));
  CU_OK(run(exec));
  CU_OK(cu().cuMemFree_v2(params.dptr));
  CU_OK(run(exec));
  CU_OK(cu().cuMemFree_v2(params.dptr));
}

TEST_F(GraphMemoryTest, AnotherGraphMayFreeIt) {
  const OwnedGraph allocating;
  const OwnedGraph freeing;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(64);
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&node, allocating, nullptr, 0, &params));
  CU_OK(cu().cuGraphAddMemFreeNode(&node, freeing, nullptr, 0, params.dptr));
  const OwnedExec first(allocating);
  const OwnedExec second(freeing);
  for (int i = 0; i < 3; ++i) {
    CU_OK(cu().cuGraphLaunch(first, *stream));
    CU_OK(cu().cuGraphLaunch(second, *stream));
  }
  CU_OK(cu().cuStreamSynchronize(*stream));
}

TEST_F(GraphMemoryTest, ALaunchMayFreeWhatTheLastOneLeft) {
  const OwnedGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(64);
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  const OwnedExec exec(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  for (int i = 0; i < 3; ++i) CU_OK(cu().cuGraphLaunch(exec, *stream));
  CU_OK(cu().cuStreamSynchronize(*stream));
  CU_OK(cu().cuMemFree_v2(params.dptr));
}

TEST_F(GraphMemoryTest, MemoryNodesForbidClonesAndSecondInstances) {
  const OwnedGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(64);
  CUgraphNode node = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  CUgraph clone = nullptr;
  EXPECT_NE(CUDA_SUCCESS, cu().cuGraphClone(&clone, graph));
  EXPECT_NE(CUDA_SUCCESS, cu().cuGraphDestroyNode(node));
  {
    const OwnedExec exec(graph);
    CUgraphExec second = nullptr;
    EXPECT_NE(CUDA_SUCCESS, cu().cuGraphInstantiateWithFlags(&second, graph, 0));
  }
  const OwnedExec exec(graph);
  ASSERT_NE(nullptr, static_cast<CUgraphExec>(exec));
}

TEST_F(GraphMemoryTest, StreamOrderedAllocationIsCaptured) {
  CaptureOf capture(*stream);
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAllocAsync(&address, 256, *stream));
  ASSERT_NE(0u, address);
  CU_OK(cu().cuMemsetD32Async(address, 17, 64, *stream));
  CU_OK(cu().cuMemcpyDtoDAsync_v2(word(0), address + 252, 4, *stream));
  CU_OK(cu().cuMemFreeAsync(address, *stream));
  CUgraph captured = nullptr;
  CU_OK(capture.end(&captured));
  const OwnedGraph graph(captured);
  int kinds = 0;
  for (const CUgraphNode node : nodes_of(graph)) {
    kinds += type_of(node) == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    kinds += type_of(node) == CU_GRAPH_NODE_TYPE_MEM_FREE;
  }
  EXPECT_EQ(2, kinds);
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  CU_OK(run(exec));
  EXPECT_EQ(17u, read(0));
}

TEST_F(GraphMemoryTest, TheDeviceCountsWhatGraphsHave) {
  CU_OK(cu().cuDeviceGraphMemTrim(device));
  const cuuint64_t used = memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
  const cuuint64_t reserved = memory_attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  constexpr std::size_t kBytes = 8 << 20;
  {
    const OwnedGraph graph;
    CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(kBytes);
    CUgraphNode node = nullptr;
    CU_OK(cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    const OwnedExec exec(graph);
    CU_OK(run(exec));
    EXPECT_GE(memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), used + kBytes);
    EXPECT_GE(memory_attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), reserved + kBytes);
    CU_OK(cu().cuMemFree_v2(params.dptr));
  }
  CU_OK(cu().cuDeviceGraphMemTrim(device));
  EXPECT_EQ(used, memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
  EXPECT_EQ(reserved, memory_attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_GE(memory_attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH), reserved + kBytes);
  cuuint64_t value = 0;
  CU_OK(cu().cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &value));
  CU_OK(cu().cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value));
}

TEST_F(GraphMemoryTest, MemoryOfALaunchCountsUntilItIsTrimmed) {
  CU_OK(cu().cuDeviceGraphMemTrim(device));
  const cuuint64_t used = memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
  constexpr std::size_t kBytes = 8 << 20;
  const OwnedGraph graph;
  CUDA_MEM_ALLOC_NODE_PARAMS params = alloc_params(kBytes);
  CUgraphNode alloc = nullptr;
  CUgraphNode free = nullptr;
  CU_OK(cu().cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  CU_OK(cu().cuGraphAddMemFreeNode(&free, graph, &alloc, 1, params.dptr));
  const OwnedExec exec(graph);
  EXPECT_EQ(used, memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
  CU_OK(cu().cuGraphLaunch(exec, *stream));
  EXPECT_GE(memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), used + kBytes);
  CU_OK(cu().cuStreamSynchronize(*stream));
  EXPECT_GE(memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), used + kBytes);
  CU_OK(cu().cuDeviceGraphMemTrim(device));
  EXPECT_EQ(used, memory_attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT));
}

// set(handle, value) and countdown(handle, counter): counter[0] -= 1, and the handle follows it.
constexpr char kConditionalPtx[] = R"(
.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);

.visible .entry countdown(.param .u64 handle, .param .u64 counter)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [counter];
  cvta.to.global.u64 %rd3, %rd2;
  ld.global.u32 %r1, [%rd3];
  sub.u32 %r2, %r1, 1;
  st.global.u32 [%rd3], %r2;
  {
    .param .b64 param0;
    .param .b32 param1;
    st.param.b64 [param0], %rd1;
    st.param.b32 [param1], %r2;
    call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}
)";

class GraphConditionalTest : public GraphFixture {
 protected:
  // Adds a conditional node; its bodies.
  std::vector<CUgraph> add_conditional(CUgraph graph, CUgraphConditionalHandle handle,
                                       CUgraphConditionalNodeType type, unsigned size) const {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context;
    CUgraphNode node = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params));
    if (node == nullptr) return {};
    EXPECT_EQ(CU_GRAPH_NODE_TYPE_CONDITIONAL, type_of(node));
    return {params.conditional.phGraph_out, params.conditional.phGraph_out + size};
  }
  CUgraphConditionalHandle handle_for(CUgraph graph, unsigned value) const {
    CUgraphConditionalHandle handle = 0;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuGraphConditionalHandleCreate(&handle, graph, context, value,
                                                                CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
  }
};

TEST_F(GraphConditionalTest, AnIfRunsItsBodyWhereTheValueIsNotZero) {
  for (const unsigned value : {0u, 1u}) {
    const OwnedGraph graph;
    const auto bodies = add_conditional(graph, handle_for(graph, value), CU_GRAPH_COND_TYPE_IF, 1);
    ASSERT_EQ(1u, bodies.size());
    CUgraphNode node = nullptr;
    CU_OK(add_store(bodies[0], {}, value, 5, &node));
    const OwnedExec exec(graph);
    CU_OK(run(exec));
  }
  EXPECT_EQ((std::vector<std::uint32_t>{0, 5, 0, 0}), memory->read<std::uint32_t>());
}

TEST_F(GraphConditionalTest, ASwitchRunsTheBodyOfItsValue) {
  for (const unsigned value : {1u, 7u}) {
    const OwnedGraph graph;
    const auto bodies =
        add_conditional(graph, handle_for(graph, value), CU_GRAPH_COND_TYPE_SWITCH, 3);
    ASSERT_EQ(3u, bodies.size());
    for (unsigned i = 0; i < 3; ++i) {
      CUgraphNode node = nullptr;
      CU_OK(add_add(bodies[i], {}, i, &node));
    }
    const OwnedExec exec(graph);
    CU_OK(run(exec));
  }
  EXPECT_EQ((std::vector<std::uint32_t>{0, 1, 0, 0}), memory->read<std::uint32_t>());
}

TEST_F(GraphConditionalTest, AWhileRunsUntilAKernelSaysStop) {
  CUmodule loaded = nullptr;
  if (cu().cuModuleLoadData(&loaded, kConditionalPtx) != CUDA_SUCCESS) {
    GTEST_SKIP() << "the driver wants the device runtime linked";
  }
  CUfunction countdown = nullptr;
  CU_OK(cu().cuModuleGetFunction(&countdown, loaded, "countdown"));
  {
    const OwnedGraph graph;
    CUgraphConditionalHandle handle = handle_for(graph, 1);
    const auto bodies = add_conditional(graph, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    ASSERT_EQ(1u, bodies.size());
    CUgraphNode first = nullptr;
    CUgraphNode second = nullptr;
    CU_OK(add_add(bodies[0], {}, 1, &first));
    CUdeviceptr counter = word(0);
    void* pointers[] = {&handle, &counter};
    const CUDA_KERNEL_NODE_PARAMS params = kernel_params(countdown, pointers);
    CU_OK(cu().cuGraphAddKernelNode_v2(&second, bodies[0], &first, 1, &params));
    const OwnedExec exec(graph);
    for (int i = 0; i < 2; ++i) {
      memory->write<std::uint32_t>({5, 0, 0, 0});
      CU_OK(run(exec));
      EXPECT_EQ((std::vector<std::uint32_t>{0, 5, 0, 0}), memory->read<std::uint32_t>());
    }
  }
  CU_OK(cu().cuModuleUnload(loaded));
}

TEST_F(GraphConditionalTest, WorkCanBeCapturedIntoABody) {
  const OwnedGraph graph;
  const auto bodies = add_conditional(graph, handle_for(graph, 1), CU_GRAPH_COND_TYPE_IF, 1);
  ASSERT_EQ(1u, bodies.size());
  CU_OK(cu().cuStreamBeginCaptureToGraph(*stream, bodies[0], nullptr, nullptr, 0,
                                         CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(CUDA_SUCCESS, store(*stream, 2, 6));
  CUgraph captured = nullptr;
  CU_OK(cu().cuStreamEndCapture(*stream, &captured));
  const OwnedExec exec(graph);
  CU_OK(run(exec));
  EXPECT_EQ(6u, read(2));
}

TEST_F(GraphConditionalTest, ANodeInABodyMayHaveAHandleOfTheGraphAroundIt) {
  for (const unsigned value : {0u, 1u, 2u}) {
    const OwnedGraph graph;
    const CUgraphConditionalHandle inner = handle_for(graph, value);
    const auto bodies = add_conditional(graph, handle_for(graph, 1), CU_GRAPH_COND_TYPE_IF, 1);
    ASSERT_EQ(1u, bodies.size());
    const auto cases = add_conditional(bodies[0], inner, CU_GRAPH_COND_TYPE_SWITCH, 2);
    ASSERT_EQ(2u, cases.size());
    for (unsigned i = 0; i < 2; ++i) {
      CUgraphNode node = nullptr;
      CU_OK(add_add(cases[i], {}, i, &node));
    }
    CUgraphNodeParams again{};
    again.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    again.conditional.handle = inner;
    again.conditional.size = 1;
    again.conditional.ctx = context;
    CUgraphNode node = nullptr;
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cu().cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &again));
    const OwnedExec exec(graph);
    CU_OK(run(exec));
  }
  EXPECT_EQ((std::vector<std::uint32_t>{1, 1, 0, 0}), memory->read<std::uint32_t>());
}

TEST_F(GraphConditionalTest, ConditionalNodesForbidClonesChildrenAndSecondInstances) {
  const OwnedGraph graph;
  const OwnedGraph other;
  ASSERT_EQ(1u, add_conditional(graph, handle_for(graph, 1), CU_GRAPH_COND_TYPE_IF, 1).size());
  CUgraph clone = nullptr;
  EXPECT_NE(CUDA_SUCCESS, cu().cuGraphClone(&clone, graph));
  CUgraphNode node = nullptr;
  EXPECT_NE(CUDA_SUCCESS, cu().cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph));
  {
    const OwnedExec exec(graph);
    CUgraphExec second = nullptr;
    EXPECT_NE(CUDA_SUCCESS, cu().cuGraphInstantiateWithFlags(&second, graph, 0));
  }
  const OwnedExec exec(graph);
  CU_OK(run(exec));
}

TEST_F(GraphConditionalTest, ConditionalNodesCheckTheirParameters) {
  const OwnedGraph graph;
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle_for(graph, 1);
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.size = 2;
  params.conditional.ctx = context;
  CUgraphNode node = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params));
  params.conditional.size = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params));
}

TEST_F(GraphConditionalTest, AHandleWithoutANodeFailsTheInstantiation) {
  const OwnedGraph graph;
  handle_for(graph, 1);
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  CUgraphExec exec = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGraphInstantiateWithParams(&exec, graph, &params));
  EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, params.result_out);
}

}  // namespace
}  // namespace flyt::conformance
