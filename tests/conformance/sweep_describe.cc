// What structs say in a sweep's calls before one of their members is changed; and graphs, whose
// nodes are made of such structs.
#include "tests/conformance/green.h"
#include "tests/conformance/sweep_scene.h"

namespace flyt::conformance {
namespace {

constexpr std::size_t kBytes = 16;

template <class T>
void put(std::byte* into, const T& value) {
  std::memcpy(into, &value, sizeof value);
}

CUmemLocation here() { return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}; }

// Members that all descriptions of copies have.
template <class Copy>
void copy_rows(Copy& copy) {
  copy.WidthInBytes = kBytes;
  copy.Height = 1;
  copy.srcPitch = copy.dstPitch = 64;
}

template <class Params>
void kernel_node(std::byte* into, CUfunction function) {
  Params params{};
  params.func = function;
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  put(into, params);
}

}  // namespace

void Scene::describe_copy(std::string_view type, std::byte* into) {
  const auto host_to_device = [this](auto& copy) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = buffer();
    copy.srcArray = array("srcArray");
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstHost = buffer();
    copy.dstArray = array("dstArray");
    copy_rows(copy);
  };
  const auto addresses = [this](auto& copy) {
    copy.srcDevice = memory("other memory");
    copy.dstDevice = memory("memory");
  };
  const auto boxes = [](auto& copy) {
    copy.Depth = 1;
    copy.srcHeight = copy.dstHeight = 1;
  };
  if (type == "CUDA_MEMCPY2D_v1") {
    CUDA_MEMCPY2D_v1 copy{};
    host_to_device(copy);
    put(into, copy);
  } else if (type == "CUDA_MEMCPY2D_v2") {
    CUDA_MEMCPY2D copy{};
    host_to_device(copy);
    addresses(copy);
    put(into, copy);
  } else if (type == "CUDA_MEMCPY3D_v1") {
    CUDA_MEMCPY3D_v1 copy{};
    host_to_device(copy);
    boxes(copy);
    put(into, copy);
  } else if (type == "CUDA_MEMCPY3D_v2") {
    CUDA_MEMCPY3D copy{};
    host_to_device(copy);
    addresses(copy);
    boxes(copy);
    put(into, copy);
  } else if (type == "CUDA_MEMCPY3D_PEER_v1") {
    CUDA_MEMCPY3D_PEER copy{};
    host_to_device(copy);
    addresses(copy);
    boxes(copy);
    copy.srcContext = copy.dstContext = context_;
    put(into, copy);
  } else if (type == "CUmemcpyAttributes_v1") {
    put(into, CUmemcpyAttributes{.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                 .srcLocHint = here(),
                                 .dstLocHint = here(),
                                 .flags = 0});
  } else if (type == "CUDA_MEMCPY3D_BATCH_OP_v1") {
    CUDA_MEMCPY3D_BATCH_OP copy{};
    copy.src.type = copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    copy.src.op.ptr.ptr = memory("other memory");
    copy.dst.op.ptr.ptr = memory("memory");
    copy.extent = {.width = kBytes, .height = 1, .depth = 1};
    copy.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    put(into, copy);
  }
}

void Scene::describe_node(std::string_view type, std::byte* into) {
  CUstreamBatchMemOpParams write{};
  write.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  if (type == "CUDA_KERNEL_NODE_PARAMS_v1") {
    kernel_node<CUDA_KERNEL_NODE_PARAMS_v1>(into, function());
  } else if (type == "CUDA_KERNEL_NODE_PARAMS_v2") {
    kernel_node<CUDA_KERNEL_NODE_PARAMS_v2>(into, function());
  } else if (type == "CUDA_MEMSET_NODE_PARAMS_v1") {
    CUDA_MEMSET_NODE_PARAMS params{};
    params.dst = memory("memory");
    params.elementSize = 4;
    params.width = 4;
    params.height = 1;
    put(into, params);
  } else if (type == "CUDA_HOST_NODE_PARAMS_v1") {
    put(into, CUDA_HOST_NODE_PARAMS{.fn = [](void*) {}, .userData = nullptr});
  } else if (type == "CUDA_BATCH_MEM_OP_NODE_PARAMS_v1") {
    write.writeValue.address = memory("memory");
    std::byte* list = buffer();
    put(list, write);
    CUDA_BATCH_MEM_OP_NODE_PARAMS params{};
    params.ctx = context_;
    params.count = 1;
    params.paramArray = std::bit_cast<CUstreamBatchMemOpParams*>(list);
    put(into, params);
  } else if (type == "CUDA_MEM_ALLOC_NODE_PARAMS_v1") {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = here();
    params.bytesize = kSweepMemory;
    put(into, params);
  } else if (type == "CUgraphNodeParams") {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_KERNEL;
    kernel_node<CUDA_KERNEL_NODE_PARAMS_v3>(std::bit_cast<std::byte*>(&params.kernel), function());
    put(into, params);
  } else if (type == "CUstreamBatchMemOpParams_v1") {
    write.writeValue.address = memory("memory");
    put(into, write);
  } else if (type == "CUlaunchConfig") {
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream();
    put(into, config);
  } else if (type == "CUDA_LAUNCH_PARAMS_v1") {
    CUDA_LAUNCH_PARAMS params{};
    params.function = function();
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.hStream = stream();
    put(into, params);
  }
}

void Scene::describe_array(std::string_view type, std::byte* into) {
  const auto square = [](auto shape) {
    shape.Width = shape.Height = 64;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    return shape;
  };
  if (type == "CUDA_ARRAY_DESCRIPTOR_v1") put(into, square(CUDA_ARRAY_DESCRIPTOR_v1{}));
  if (type == "CUDA_ARRAY_DESCRIPTOR_v2") {
    CUDA_ARRAY_DESCRIPTOR shape = square(CUDA_ARRAY_DESCRIPTOR{});
    // Pitched memory that is described so is the scene's.
    shape.Width = shape.Height = 16;
    put(into, shape);
  }
  if (type == "CUDA_ARRAY3D_DESCRIPTOR_v1") put(into, square(CUDA_ARRAY3D_DESCRIPTOR_v1{}));
  if (type == "CUDA_ARRAY3D_DESCRIPTOR_v2") {
    CUDA_ARRAY3D_DESCRIPTOR shape = square(CUDA_ARRAY3D_DESCRIPTOR{});
    shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    // Copies of bytes alone take arrays of one dimension.
    if (like(call_.base, "cuMemcpy?toA*:cuMemcpyAto?*")) shape.Height = 0;
    put(into, shape);
  }
  if (type == "CUDA_RESOURCE_DESC_v1") {
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array("hArray");
    put(into, resource);
  }
  if (type == "CUDA_RESOURCE_VIEW_DESC_v1") {
    CUDA_RESOURCE_VIEW_DESC view{};
    view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
    view.width = view.height = 64;
    put(into, view);
  }
}

void Scene::describe_memory(std::string_view type, std::byte* into) {
  if (type == "CUmemLocation_v1") put(into, here());
  if (type == "CUmemAccessDesc_v1") {
    put(into, CUmemAccessDesc{.location = here(), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  if (type == "CUmemPoolProps_v1") {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    if (like(call_.base, "cuMemPool*port*")) {
      properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    properties.location = here();
    put(into, properties);
  }
  if (type == "CUmemAllocationProp_v1") {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = here();
    put(into, properties);
  }
  if (type == "CUdevResource_v1" && context_ != nullptr) put(into, device_resource());
}

void Scene::describe_tensor(std::byte* into) {
  const std::array<cuuint64_t, 2> dimensions = {16, 16};
  const std::array<cuuint64_t, 1> strides = {64};
  const std::array<cuuint32_t, 2> box = {4, 4};
  const std::array<cuuint32_t, 2> steps = {1, 1};
  tell("tensor",
       cu().cuTensorMapEncodeTiled(
           std::bit_cast<CUtensorMap*>(into), CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
           from_number<void*>(memory("memory")), dimensions.data(), strides.data(), box.data(),
           steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
           CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

void Scene::describe(std::string_view type, std::string_view parameter, std::byte* into) {
  if (type == "CUmemLocation_v1" || context_ != nullptr) describe_memory(type, into);
  describe_array(context_ != nullptr || !like(type, "CUDA_RESOURCE_DESC*") ? type : "", into);
  if (context_ == nullptr) return;
  describe_copy(type, into);
  describe_node(type, into);
  if (type == "CUexecAffinityParam_v1") {
    put(into,
        CUexecAffinityParam{.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT, .param = {.smCount = {2}}});
  }
  const auto list = [&](const char* calls, const char* names) {
    return like(call_.base, calls) && like(parameter, names);
  };
  if (type == "CUgraphNode" && list("cuGraph*", "dependencies:from:to")) {
    put(into, number_of(node(parameter)));
  }
  if (list("cuMemcpyBatch*", "dsts")) put(into, memory("memory"));
  if (list("cuMemcpyBatch*", "srcs")) put(into, memory("other memory"));
  if (list("cuMem*Batch*", "dptrs")) put(into, managed());
  if (list("cuMem*Batch*", "sizes")) put(into, kBytes);
  if (list("cuMemPrefetchBatchAsync:cuMemDiscard*", "sizes")) put(into, kSweepMemory);
  if (list("cuMemRangeGetAttributes", "dataSizes")) put(into, std::size_t{4});
  if (list("cuMemRangeGetAttributes", "attributes")) put(into, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY);
  if (list("cuPointerGetAttributes", "attributes")) put(into, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  if (list("cuPointerGetAttributes:cuMemRangeGetAttributes", "data")) put(into, buffer());
  if (list("cuLibraryLoad*", "libraryOptions")) put(into, CU_LIBRARY_BINARY_IS_PRESERVED);
  if (list("cuTensorMap*", "globalDim")) put(into, std::array<cuuint64_t, 5>{16, 16, 1, 1, 1});
  if (list("cuTensorMap*", "globalStrides"))
    put(into, std::array<cuuint64_t, 4>{64, 1024, 1024, 1024});
  if (list("cuTensorMap*", "boxDim")) put(into, std::array<cuuint32_t, 5>{4, 4, 1, 1, 1});
  if (list("cuTensorMap*", "elementStrides")) put(into, std::array<cuuint32_t, 5>{1, 1, 1, 1, 1});
  if (list("cuCoredump*", "size")) put(into, std::size_t{64});
  if (list("cuLogsDumpToMemory", "size")) put(into, std::size_t{1024});
  if (list("cuGraph*Get*", "num*")) put(into, std::size_t{4});
  if (list("cuStreamSetAttribute", "param")) put(into, CU_SYNC_POLICY_AUTO);
  if (list("cuTensorMapReplaceAddress", "tensorMap")) describe_tensor(into);
  if (list("cuDevSmResourceSplitByCount", "nbGroups")) put(into, 1u);
}

CUgraph Scene::graph(std::string_view parameter) {
  const bool other = like(parameter, "childGraph:hClonedGraph");
  return std::bit_cast<CUgraph>(once(other ? "other graph" : "graph", [this, parameter] {
    CUgraph made = nullptr;
    if (parameter == "hClonedGraph") {
      node("hOriginalNode");
      tell("clone", cu().cuGraphClone(&made, graph("hGraph")));
    } else {
      tell("graph", cu().cuGraphCreate(&made, 0));
    }
    own(number_of(made), [made] { cu().cuGraphDestroy(made); });
    return number_of(made);
  }));
}

CUgraphNode Scene::node(std::string_view parameter) {
  const bool second = like(parameter, "to:src");
  return std::bit_cast<CUgraphNode>(once(second ? "second node" : "node", [this, second] {
    const CUgraph into = graph("hGraph");
    if (into == nullptr) return std::uint64_t{0};
    CUgraphNode made = nullptr;
    if (!second) return number_of(add_node(into));
    const CUgraphNode first = node("from");
    if (call_.base == "cuGraphKernelNodeCopyAttributes") return number_of(add_node(into));
    const bool joined = like(call_.base, "cuGraphRemoveDependencies*");
    tell("second-node", cu().cuGraphAddEmptyNode(&made, into, &first, joined ? 1 : 0));
    return number_of(made);
  }));
}

CUgraphNode Scene::add_memory_node(CUgraph into, bool freed) {
  alignas(16) std::array<std::byte, sizeof(CUDA_MEM_ALLOC_NODE_PARAMS)> params{};
  describe_node("CUDA_MEM_ALLOC_NODE_PARAMS_v1", params.data());
  auto* const described = std::bit_cast<CUDA_MEM_ALLOC_NODE_PARAMS*>(params.data());
  CUgraphNode made = nullptr;
  CUgraphNode end = nullptr;
  tell("memory-node", cu().cuGraphAddMemAllocNode(&made, into, nullptr, 0, described));
  node_memory_ = described->dptr;
  if (freed && made != nullptr) {
    tell("free-node", cu().cuGraphAddMemFreeNode(&end, into, &made, 1, node_memory_));
  }
  return freed ? end : made;
}

CUgraphNode Scene::add_node(CUgraph into) {
  alignas(16) std::array<std::byte, 512> params{};
  CUgraphNode made = nullptr;
  const bool adds = like(call_.base, "cuGraphAdd*Node*");
  const auto is = [&](const char* calls) { return !adds && like(call_.base, calls); };
  if (is("*MemAllocNode*:*MemFreeNode*")) {
    return add_memory_node(into, like(call_.base, "*MemFreeNode*"));
  }
  if (is("*KernelNode*:*NodeSetEnabled:*NodeGetEnabled:*ExecNodeSetParams:cuGraphNodeSetParams")) {
    describe_node("CUDA_KERNEL_NODE_PARAMS_v2", params.data());
    tell("node",
         cu().cuGraphAddKernelNode_v2(&made, into, nullptr, 0,
                                      std::bit_cast<CUDA_KERNEL_NODE_PARAMS*>(params.data())));
  } else if (is("*MemcpyNode*")) {
    describe_copy("CUDA_MEMCPY3D_v2", params.data());
    tell("node", cu().cuGraphAddMemcpyNode(&made, into, nullptr, 0,
                                           std::bit_cast<CUDA_MEMCPY3D*>(params.data()), context_));
  } else if (is("*MemsetNode*")) {
    describe_node("CUDA_MEMSET_NODE_PARAMS_v1", params.data());
    tell("node", cu().cuGraphAddMemsetNode(&made, into, nullptr, 0,
                                           std::bit_cast<CUDA_MEMSET_NODE_PARAMS*>(params.data()),
                                           context_));
  } else if (is("*HostNode*")) {
    describe_node("CUDA_HOST_NODE_PARAMS_v1", params.data());
    tell("node", cu().cuGraphAddHostNode(&made, into, nullptr, 0,
                                         std::bit_cast<CUDA_HOST_NODE_PARAMS*>(params.data())));
  } else if (is("*BatchMemOpNode*")) {
    describe_node("CUDA_BATCH_MEM_OP_NODE_PARAMS_v1", params.data());
    tell("node", cu().cuGraphAddBatchMemOpNode(
                     &made, into, nullptr, 0,
                     std::bit_cast<CUDA_BATCH_MEM_OP_NODE_PARAMS*>(params.data())));
  } else if (is("*ChildGraph*")) {
    tell("node", cu().cuGraphAddChildGraphNode(&made, into, nullptr, 0, graph("childGraph")));
  } else if (is("*EventRecordNode*")) {
    tell("node", cu().cuGraphAddEventRecordNode(&made, into, nullptr, 0, event("event")));
  } else if (is("*EventWaitNode*")) {
    tell("node", cu().cuGraphAddEventWaitNode(&made, into, nullptr, 0, event("event")));
  } else {
    tell("node", cu().cuGraphAddEmptyNode(&made, into, nullptr, 0));
  }
  return made;
}

CUgraphExec Scene::exec() {
  return std::bit_cast<CUgraphExec>(once("exec", [this] {
    CUgraphExec made = nullptr;
    node("hNode");
    tell("exec", cu().cuGraphInstantiateWithFlags(&made, graph("hGraph"), 0));
    own(number_of(made), [made] { cu().cuGraphExecDestroy(made); });
    return number_of(made);
  }));
}

}  // namespace flyt::conformance
