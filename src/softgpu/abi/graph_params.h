// Parameters of graph nodes: from CUDA's structs to work, checked, and back.
#pragma once

#include "softgpu/abi/graph_enter.h"

namespace flyt::softgpu {

// The handle of the context that a node's parameters name; a null one is the calling thread's.
CUresult read_context(Driver& driver, CUcontext handle, std::uint64_t* out);

CUresult read_kernel(Driver& driver, const CUDA_KERNEL_NODE_PARAMS_v2& params, KernelWork& out);
CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1& params);
CUDA_KERNEL_NODE_PARAMS_v2 tell_kernel(GraphNode& node, const KernelWork& work);
CUresult read_memcpy(Driver& driver, const CUDA_MEMCPY3D& params, CUcontext context, CopyWork& out);
CUresult read_memset(Driver& driver, const CUDA_MEMSET_NODE_PARAMS_v2& params, FillWork& out);
CUDA_MEMSET_NODE_PARAMS_v2 widen(const CUDA_MEMSET_NODE_PARAMS_v1& params, CUcontext context);
CUresult read_words(Driver& driver, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& params, WordsWork& out);
CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 widen(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1& params);
CUresult read_child(Driver& driver, CUgraph parent, CUgraph child,
                    CUgraphChildGraphNodeOwnership ownership, ChildWork& out);
template <class Kind>
CUresult read_event(Driver& driver, CUevent handle, Kind& out) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = find_event(driver, handle, out.event);
  out.handle = handle;
  return bad;
}
// Takes an address for what shall be allocated, and tells it in `params`.
CUresult read_alloc(Driver& driver, CUDA_MEM_ALLOC_NODE_PARAMS_v1& params, AllocWork& out);
CUresult read_free(Driver& driver, const Graph& graph, CUdeviceptr address, FreeWork& out);
// Makes the bodies, and tells them in `params`.
CUresult read_conditional(Driver& driver, const Graph& graph, CUDA_CONDITIONAL_NODE_PARAMS& params,
                          ConditionalWork& out);
// Of a node of any kind, as the calls for these want it.
bool reserved_are_zero(const CUgraphNodeParams& params);
// Every kind that can change its work. External semaphores are CUDA_ERROR_NOT_SUPPORTED. `out`
// keeps what the parameters do not say, if it was of that kind.
CUresult read_work(Driver& driver, const CUgraphNodeParams& params, Work& out);

// Where a node is added, and behind what.
struct Place {
  CUgraphNode* out = nullptr;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 0;
  const CUgraphEdgeData* data = nullptr;
};

// Adds the node whose work read(driver, graph, work) makes.
template <class Kind, class Read>
CUresult add_node(const Place& place, Read read) {
  return with_graph(
      place.graph, [&](Driver& driver, const std::shared_ptr<Graph>& graph) -> CUresult {
        if (place.out == nullptr) return CUDA_ERROR_INVALID_VALUE;
        std::vector<Edge> edges;
        CUresult bad =
            read_edges(driver, *graph, place.dependencies, place.data, place.count, edges);
        if (bad != CUDA_SUCCESS) return bad;
        Kind work{};
        bad = read(driver, *graph, work);
        if (bad != CUDA_SUCCESS) return bad;
        if (graph->body() && !allowed_in_body(work)) {
          forget_graphs(driver, work);
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        *place.out = to_handle<CUgraphNode>(graph->add(std::move(work), edges).handle);
        return CUDA_SUCCESS;
      });
}

template <class Kind, class Read>
CUresult add(const Place& place, Read read) {
  return add_node<Kind>(
      place, [&read](Driver& driver, const Graph&, Kind& work) { return read(driver, work); });
}

}  // namespace flyt::softgpu
