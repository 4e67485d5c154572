// Nodes of any kind by one call, nodes that allocate and free, and conditional ones.
#include <climits>

#include "cuda/graph_allocation.h"
#include "softgpu/abi/graph_params.h"

namespace flyt::softgpu {

CUresult read_alloc(Driver& driver, CUDA_MEM_ALLOC_NODE_PARAMS_v1& params, AllocWork& out) {
  const CUmemPoolProps& props = params.poolProps;
  const CUresult unfit = cuda::check_graph_allocation(props, driver.device_count());
  if (unfit != CUDA_SUCCESS) return unfit;
  if (params.bytesize == 0 || (params.accessDescCount != 0 && params.accessDescs == nullptr) ||
      params.accessDescCount > static_cast<std::size_t>(driver.device_count())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  DeviceSet peers = 0;
  for (std::size_t i = 0; i < params.accessDescCount; ++i) {
    const CUmemAccessDesc& access = params.accessDescs[i];
    if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        access.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.device(access.location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    peers |= device_set(access.location.id);
  }
  out.allocation = driver.graph_memory(props.location.id).make(params.bytesize, peers);
  if (out.allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  params.dptr = out.allocation->address();
  out.params = params;
  out.access.assign(params.accessDescs, params.accessDescs + params.accessDescCount);
  return CUDA_SUCCESS;
}

CUresult read_free(Driver& driver, const Graph& graph, CUdeviceptr address, FreeWork& out) {
  const auto region = driver.regions().find(address);
  if (!region || region->kind != RegionKind::kGraph || region->base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& node : graph.nodes()) {
    const auto* other = std::get_if<FreeWork>(&node->work);
    if (other != nullptr && other->address == address) return CUDA_ERROR_INVALID_VALUE;
  }
  out.address = address;
  return CUDA_SUCCESS;
}

namespace {

// The graph itself or one around it whose handle that is; null: none.
const Graph* find_owner(Driver& driver, const Graph& graph, std::uint64_t conditional) {
  const Graph* owner = &graph;
  while (owner != nullptr && !owner->conditionals().contains(conditional)) {
    owner = driver.graphs().graphs().find(owner->outer()).get();
  }
  return owner;
}

bool uses(const Graph& graph, std::uint64_t conditional) {
  bool found = false;
  graph.each([&](const GraphNode& node) {
    const auto* work = std::get_if<ConditionalWork>(&node.work);
    found = found || (work != nullptr && work->handle == conditional);
  });
  return found;
}

}  // namespace

CUresult read_conditional(Driver& driver, const Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params,
                          ConditionalWork& out) {
  constexpr unsigned kBodiesMax = 4096;
  if (const CUresult bad = read_context(driver, params.ctx, &out.context); bad != CUDA_SUCCESS) {
    return bad;
  }
  const Graph* const owner = find_owner(driver, graph, params.handle);
  if (owner == nullptr || uses(*owner, params.handle)) return CUDA_ERROR_INVALID_VALUE;
  unsigned size_max = 0;
  switch (params.type) {
    case CU_GRAPH_COND_TYPE_IF:
      size_max = 2;
      break;
    case CU_GRAPH_COND_TYPE_WHILE:
      size_max = 1;
      break;
    case CU_GRAPH_COND_TYPE_SWITCH:
      size_max = kBodiesMax;
      break;
  }
  if (params.size == 0 || params.size > size_max) return CUDA_ERROR_INVALID_VALUE;
  out.handle = params.handle;
  out.type = params.type;
  for (unsigned i = 0; i < params.size; ++i) {
    auto body = Graph::make(&driver);
    body->set_owned();
    body->set_body(graph.handle());
    out.told.push_back(to_handle<CUgraph>(body->handle()));
    out.bodies.push_back(std::move(body));
  }
  params.phGraph_out = out.told.data();
  return CUDA_SUCCESS;
}

bool reserved_are_zero(const CUgraphNodeParams& params) {
  return params.reserved0[0] == 0 && params.reserved0[1] == 0 && params.reserved0[2] == 0 &&
         params.reserved2 == 0;
}

namespace {

template <class Kind, class Read>
CUresult read_into(Work& out, Read read) {
  Kind work{};
  const CUresult bad = read(work);
  if (bad == CUDA_SUCCESS) out = std::move(work);
  return bad;
}

CUDA_MEM_ALLOC_NODE_PARAMS_v1 narrow(const CUDA_MEM_ALLOC_NODE_PARAMS_v2& p) {
  return {p.poolProps, p.accessDescs, p.accessDescCount, p.bytesize, p.dptr};
}

CUresult read_any(Driver& driver, CUgraph handle, const Graph& graph, CUgraphNodeParams& params,
                  Work& out) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return read_into<ChildWork>(out, [&](ChildWork& work) {
        return read_child(driver, handle, params.graph.graph, params.graph.ownership, work);
      });
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return read_into<AllocWork>(out, [&](AllocWork& work) {
        CUDA_MEM_ALLOC_NODE_PARAMS_v1 alloc = narrow(params.alloc);
        const CUresult bad = read_alloc(driver, alloc, work);
        params.alloc.dptr = alloc.dptr;
        return bad;
      });
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return read_into<FreeWork>(
          out, [&](FreeWork& work) { return read_free(driver, graph, params.free.dptr, work); });
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return read_into<ConditionalWork>(out, [&](ConditionalWork& work) {
        return read_conditional(driver, graph, params.conditional, work);
      });
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return read_work(driver, params, out);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

template <class Body>
CUresult with_device(CUdevice device, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (driver.device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return body(driver.graph_memory(device));
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr || !reserved_are_zero(*nodeParams)) return CUDA_ERROR_INVALID_VALUE;
  return add_node<Work>({phGraphNode, hGraph, dependencies, numDependencies, dependencyData},
                        [&](Driver& driver, const Graph& graph, Work& work) {
                          return read_any(driver, hGraph, graph, *nodeParams, work);
                        });
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr || !reserved_are_zero(*nodeParams)) return CUDA_ERROR_INVALID_VALUE;
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> CUresult {
    if (type_of(node.work) != nodeParams->type) return CUDA_ERROR_INVALID_VALUE;
    Work work = node.work;
    const CUresult bad = read_work(driver, *nodeParams, work);
    if (bad == CUDA_SUCCESS) node.work = std::move(work);
    return bad;
  });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add<AllocWork>(
      {phGraphNode, hGraph, dependencies, numDependencies},
      [&](Driver& driver, AllocWork& work) { return read_alloc(driver, *nodeParams, work); });
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return with_node_of<AllocWork>(
      hNode, [&](Driver&, GraphNode&, const AllocWork& work) -> CUresult {
        if (params_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *params_out = work.params;
        params_out->accessDescs = work.access.empty() ? nullptr : work.access.data();
        return CUDA_SUCCESS;
      });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies,
                               CUdeviceptr dptr) {
  return add_node<FreeWork>({phGraphNode, hGraph, dependencies, numDependencies},
                            [&](Driver& driver, const Graph& graph, FreeWork& work) {
                              return read_free(driver, graph, dptr, work);
                            });
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return with_node_of<FreeWork>(hNode, [&](Driver&, GraphNode&, const FreeWork& work) -> CUresult {
    if (dptr_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *dptr_out = work.address;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  return with_device(device, [](GraphMemory& memory) {
    memory.trim();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return with_device(device, [&](const GraphMemory& memory) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE
                            : memory.attribute(attr, static_cast<cuuint64_t*>(value));
  });
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  return with_device(device, [&](GraphMemory& memory) {
    // Marks can only be set back.
    if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return memory.reset(attr);
  });
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  return with_graph(hGraph, [&](Driver& driver, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (pHandle_out == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // The current one does not stand in for it.
    if (ctx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    std::uint64_t context = 0;
    if (const CUresult bad = read_context(driver, ctx, &context); bad != CUDA_SUCCESS) return bad;
    const std::uint64_t handle = driver.graphs().next_conditional_inside();
    graph->conditionals()[handle] = {defaultLaunchValue,
                                     (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0};
    *pHandle_out = handle;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
