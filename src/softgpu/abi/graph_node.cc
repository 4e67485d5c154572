// Nodes of graphs: adding them, and reading and changing their parameters.
#include "softgpu/abi/graph_params.h"

namespace flyt::softgpu {
namespace {

// Gives the node new work of its kind, keeping what only other calls set.
template <class Kind, class Read>
CUresult set(CUgraphNode hNode, Read read) {
  return with_node_of<Kind>(hNode, [&](Driver& driver, GraphNode&, Kind& own) -> CUresult {
    Kind work = own;
    const CUresult bad = read(driver, work);
    if (bad == CUDA_SUCCESS) own = std::move(work);
    return bad;
  });
}

template <class Kind, class T, class Body>
CUresult tell(CUgraphNode hNode, T* out, Body body) {
  return with_node_of<Kind>(hNode, [&](Driver&, GraphNode& node, const Kind& work) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = body(node, work);
    return CUDA_SUCCESS;
  });
}

CUresult add_kernel(const Place& place, const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  return add<KernelWork>(
      place, [&](Driver& driver, KernelWork& work) { return read_kernel(driver, params, work); });
}

CUresult set_kernel(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  return set<KernelWork>(
      node, [&](Driver& driver, KernelWork& work) { return read_kernel(driver, params, work); });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel({phGraphNode, hGraph, dependencies, numDependencies}, *nodeParams);
}

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_kernel({phGraphNode, hGraph, dependencies, numDependencies}, widen(*nodeParams));
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return tell<KernelWork>(hNode, nodeParams, &tell_kernel);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return tell<KernelWork>(
      hNode, nodeParams, [](GraphNode& node, const KernelWork& work) -> CUDA_KERNEL_NODE_PARAMS_v1 {
        const CUDA_KERNEL_NODE_PARAMS_v2 p = tell_kernel(node, work);
        return {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
                p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
      });
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(hNode, *nodeParams);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(hNode, widen(*nodeParams));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add<CopyWork>(
      {phGraphNode, hGraph, dependencies, numDependencies},
      [&](Driver& driver, CopyWork& work) { return read_memcpy(driver, *copyParams, ctx, work); });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return tell<CopyWork>(hNode, nodeParams,
                        [](GraphNode&, const CopyWork& work) { return work.params; });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<CopyWork>(hNode, [&](Driver& driver, CopyWork& work) {
    return read_memcpy(driver, *nodeParams, to_handle<CUcontext>(work.context), work);
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add<FillWork>({phGraphNode, hGraph, dependencies, numDependencies},
                       [&](Driver& driver, FillWork& work) {
                         return read_memset(driver, widen(*memsetParams, ctx), work);
                       });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return tell<FillWork>(hNode, nodeParams,
                        [](GraphNode&, const FillWork& work) -> CUDA_MEMSET_NODE_PARAMS {
                          const CUDA_MEMSET_NODE_PARAMS_v2& p = work.params;
                          return {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
                        });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<FillWork>(hNode, [&](Driver& driver, FillWork& work) {
    return read_memset(driver, widen(*nodeParams, to_handle<CUcontext>(work.context)), work);
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add<HostWork>({phGraphNode, hGraph, dependencies, numDependencies},
                       [&](Driver&, HostWork& work) {
                         if (nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
                         work = {nodeParams->fn, nodeParams->userData};
                         return CUDA_SUCCESS;
                       });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return tell<HostWork>(hNode, nodeParams,
                        [](GraphNode&, const HostWork& work) -> CUDA_HOST_NODE_PARAMS {
                          return {work.fn, work.user_data};
                        });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<HostWork>(hNode, [&](Driver&, HostWork& work) {
    if (nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    work = {nodeParams->fn, nodeParams->userData};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return add<EmptyWork>({phGraphNode, hGraph, dependencies, numDependencies},
                        [](Driver&, EmptyWork&) { return CUDA_SUCCESS; });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return add<ChildWork>(
      {phGraphNode, hGraph, dependencies, numDependencies}, [&](Driver& driver, ChildWork& work) {
        return read_child(driver, hGraph, childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, work);
      });
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return tell<ChildWork>(hNode, phGraph, [](GraphNode&, const ChildWork& work) {
    return to_handle<CUgraph>(work.graph->handle());
  });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies,
                                   CUevent event) {
  return add<RecordWork>(
      {phGraphNode, hGraph, dependencies, numDependencies},
      [&](Driver& driver, RecordWork& work) { return read_event(driver, event, work); });
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return tell<RecordWork>(hNode, event_out,
                          [](GraphNode&, const RecordWork& work) { return work.handle; });
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set<RecordWork>(
      hNode, [&](Driver& driver, RecordWork& work) { return read_event(driver, event, work); });
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 CUevent event) {
  return add<WaitWork>(
      {phGraphNode, hGraph, dependencies, numDependencies},
      [&](Driver& driver, WaitWork& work) { return read_event(driver, event, work); });
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return tell<WaitWork>(hNode, event_out,
                        [](GraphNode&, const WaitWork& work) { return work.handle; });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set<WaitWork>(
      hNode, [&](Driver& driver, WaitWork& work) { return read_event(driver, event, work); });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add<WordsWork>({phGraphNode, hGraph, dependencies, numDependencies},
                        [&](Driver& driver, WordsWork& work) {
                          return read_words(driver, widen(*nodeParams), work);
                        });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return tell<WordsWork>(
      hNode, nodeParams_out,
      [](GraphNode&, const WordsWork& work) -> CUDA_BATCH_MEM_OP_NODE_PARAMS {
        return {to_handle<CUcontext>(work.context), static_cast<unsigned>(work.batch.size()),
                const_cast<CUstreamBatchMemOpParams*>(work.batch.data()), work.flags};
      });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<WordsWork>(hNode, [&](Driver& driver, WordsWork& work) {
    return read_words(driver, widen(*nodeParams), work);
  });
}

}  // extern "C"
