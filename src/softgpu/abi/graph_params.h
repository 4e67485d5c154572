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
// Bodies of conditional nodes hold what a device can begin without the host.
bool allowed_in_body(const Work& work);
template <class Kind>
CUresult read_event(Driver& driver, CUevent handle, Kind& out) {
  const CUresult bad = find_event(driver, handle, out.event);
  out.handle = handle;
  return bad;
}
// Every kind that cuGraphAddNode and cuGraphNodeSetParams know, but memory, children and
// conditionals. CUDA_ERROR_NOT_SUPPORTED for others.
CUresult read_work(Driver& driver, const CUgraphNodeParams& params, Work& out);

}  // namespace flyt::softgpu
