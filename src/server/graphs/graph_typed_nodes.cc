#include "server/graphs/graph_typed_nodes.h"

namespace flyt::server {
namespace {

CUDA_KERNEL_NODE_PARAMS_v2 kernel_of(const CUgraphNodeParams& params) {
  const CUDA_KERNEL_NODE_PARAMS_v3& p = params.kernel;
  return {p.func,      p.gridDimX,       p.gridDimY,     p.gridDimZ, p.blockDimX, p.blockDimY,
          p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra,    p.kern,      p.ctx};
}

CUDA_MEMSET_NODE_PARAMS fill_of(const CUgraphNodeParams& params) {
  const CUDA_MEMSET_NODE_PARAMS_v2& p = params.memset;
  return {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
}

CUDA_BATCH_MEM_OP_NODE_PARAMS words_of(const CUgraphNodeParams& params) {
  const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& p = params.memOp;
  return {p.ctx, p.count, p.paramArray, p.flags};
}

CUDA_HOST_NODE_PARAMS host_of(const CUgraphNodeParams& params) {
  return {params.host.fn, params.host.userData};
}

CUresult add_allocation(const driver::Table& driver, const NewNode& made,
                        CUgraphNodeParams& params) {
  CUDA_MEM_ALLOC_NODE_PARAMS_v2& p = params.alloc;
  CUDA_MEM_ALLOC_NODE_PARAMS alloc{p.poolProps, p.accessDescs, p.accessDescCount, p.bytesize, 0};
  const CUresult result =
      driver.cuGraphAddMemAllocNode(made.node, made.graph, made.after, made.count, &alloc);
  p.dptr = alloc.dptr;
  return result;
}

}  // namespace

CUresult add_typed_node(const driver::Table& driver, const NewNode& made,
                        CUgraphNodeParams& params) {
  if (made.edges != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto add = [&made](auto call, auto... arguments) {
    return call == nullptr ? CUDA_ERROR_NOT_SUPPORTED
                           : call(made.node, made.graph, made.after, made.count, arguments...);
  };
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = kernel_of(params);
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);
  const CUDA_HOST_NODE_PARAMS host = host_of(params);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS words = words_of(params);
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return add(driver.cuGraphAddKernelNode_v2, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return add(driver.cuGraphAddMemcpyNode, &params.memcpy.copyParams, params.memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return add(driver.cuGraphAddMemsetNode, &fill, params.memset.ctx);
    case CU_GRAPH_NODE_TYPE_HOST:
      return add(driver.cuGraphAddHostNode, &host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return add(driver.cuGraphAddChildGraphNode, params.graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return add(driver.cuGraphAddEmptyNode);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return add(driver.cuGraphAddEventWaitNode, params.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return add(driver.cuGraphAddEventRecordNode, params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return add_allocation(driver, made, params);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return add(driver.cuGraphAddMemFreeNode, params.free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return add(driver.cuGraphAddBatchMemOpNode, &words);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_typed_node(const driver::Table& driver, CUgraphNode node,
                        const CUgraphNodeParams& params) {
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = kernel_of(params);
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);
  const CUDA_HOST_NODE_PARAMS host = host_of(params);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS words = words_of(params);
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return driver.cuGraphKernelNodeSetParams_v2(node, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return driver.cuGraphMemcpyNodeSetParams(node, &params.memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return driver.cuGraphMemsetNodeSetParams(node, &fill);
    case CU_GRAPH_NODE_TYPE_HOST:
      return driver.cuGraphHostNodeSetParams(node, &host);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return driver.cuGraphEventWaitNodeSetEvent(node, params.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return driver.cuGraphEventRecordNodeSetEvent(node, params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return driver.cuGraphBatchMemOpNodeSetParams(node, &words);
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult set_typed_exec_node(const driver::Table& driver, CUgraphExec exec, CUgraphNode node,
                             const CUgraphNodeParams& params) {
  const CUDA_KERNEL_NODE_PARAMS_v2 kernel = kernel_of(params);
  const CUDA_MEMSET_NODE_PARAMS fill = fill_of(params);
  const CUDA_HOST_NODE_PARAMS host = host_of(params);
  const CUDA_BATCH_MEM_OP_NODE_PARAMS words = words_of(params);
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return driver.cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return driver.cuGraphExecMemcpyNodeSetParams(exec, node, &params.memcpy.copyParams,
                                                   params.memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return driver.cuGraphExecMemsetNodeSetParams(exec, node, &fill, params.memset.ctx);
    case CU_GRAPH_NODE_TYPE_HOST:
      return driver.cuGraphExecHostNodeSetParams(exec, node, &host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return driver.cuGraphExecChildGraphNodeSetParams(exec, node, params.graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return driver.cuGraphExecEventWaitNodeSetEvent(exec, node, params.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return driver.cuGraphExecEventRecordNodeSetEvent(exec, node, params.eventRecord.event);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return driver.cuGraphExecBatchMemOpNodeSetParams(exec, node, &words);
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::server
