// Changing executable graphs: single nodes, or all of them as another graph has them.
#include "softgpu/graph_update.h"

#include "softgpu/abi/graph_params.h"

namespace flyt::softgpu {
namespace {

// Gives a node of an executable graph new work of its kind, if that may change so.
template <class Kind, class Read>
CUresult set(CUgraphExec hGraphExec, CUgraphNode hNode, Read read) {
  return with_exec_node(hGraphExec, hNode,
                        [&](Driver& driver, GraphExec& exec, GraphNode& node) -> CUresult {
                          const auto* own = std::get_if<Kind>(&node.work);
                          if (own == nullptr) return CUDA_ERROR_INVALID_VALUE;
                          Kind work = *own;
                          if (const CUresult bad = read(driver, work); bad != CUDA_SUCCESS)
                            return bad;
                          Work changed = std::move(work);
                          if (check_change(node.work, changed) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
                            return CUDA_ERROR_INVALID_VALUE;
                          }
                          node.work = std::move(changed);
                          exec.changed();
                          return CUDA_SUCCESS;
                        });
}

CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  return set<KernelWork>(exec, node, [&](Driver& driver, KernelWork& work) {
    return read_kernel(driver, params, work);
  });
}

CUresult set_child(CUgraphExec exec, CUgraphNode hNode, CUgraph child) {
  return with_exec_node(exec, hNode,
                        [&](Driver& driver, GraphExec& found, GraphNode& node) -> CUresult {
                          auto* own = std::get_if<ChildWork>(&node.work);
                          const auto graph = driver.graphs().graphs().find(from_handle(child));
                          if (own == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
                          CUgraphExecUpdateResultInfo info{};
                          if (!check_update(*own->graph, *graph, info))
                            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
                          apply_update(*own->graph, *graph);
                          found.changed();
                          return CUDA_SUCCESS;
                        });
}

bool can_be_disabled(const Work& work) {
  return std::holds_alternative<KernelWork>(work) || std::holds_alternative<CopyWork>(work) ||
         std::holds_alternative<FillWork>(work);
}

// Where settings want it, waits for the last launch, without a lock.
CUresult wait_before_update(CUgraphExec handle) {
  Ticket last;
  const CUresult bad = with_exec(handle, [&](Driver& driver, const auto& exec) {
    if (driver.settings().graph_update_waits) last = exec->last_launch();
    return CUDA_SUCCESS;
  });
  if (bad == CUDA_SUCCESS) last.wait();
  return bad;
}

// Attributes that kernels of graphs have.
bool good_attribute(CUkernelNodeAttrID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      break;
  }
  return false;
}

// Puts an attribute in the place of one with its name.
void replace(std::vector<CUlaunchAttribute>& attributes, const CUlaunchAttribute& with) {
  std::erase_if(attributes, [&with](const auto& each) { return each.id == with.id; });
  attributes.push_back(with);
}

CUresult set_attribute(KernelWork& work, const CUlaunchAttribute& attribute) {
  LaunchRequest request = work.request;
  // Kernels cannot update nodes; a node that is not to be updated by them is none.
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) {
    return attribute.value.deviceUpdatableKernelNode.deviceUpdatable == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_NOT_SUPPORTED;
  }
  // No clusters at all is as it was before anything was said of them.
  const auto& cluster = attribute.value.clusterDim;
  if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
      (cluster.x | cluster.y | cluster.z) == 0) {
    std::erase_if(work.request.attributes, [](const auto& each) {
      return each.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    });
    work.request.cluster = {0, 0, 0};
    return CUDA_SUCCESS;
  }
  CUresult bad = apply_attribute(attribute, request);
  if (bad == CUDA_SUCCESS) bad = check_launch(*work.function, request);
  if (bad != CUDA_SUCCESS) return bad;
  replace(request.attributes, attribute);
  work.request = std::move(request);
  return CUDA_SUCCESS;
}

CUlaunchAttributeValue value_of(const KernelWork& work, CUkernelNodeAttrID id) {
  for (const CUlaunchAttribute& each : work.request.attributes) {
    if (each.id == id) return each.value;
  }
  CUlaunchAttributeValue none{};
  if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) none.cooperative = work.request.cooperative ? 1 : 0;
  if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) none.memSyncDomainMap = {0, 1};
  return none;
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (resultInfo != nullptr) *resultInfo = {};
  if (const CUresult bad = wait_before_update(hGraphExec); bad != CUDA_SUCCESS) return bad;
  return with_exec(hGraphExec,
                   [&](Driver& driver, const std::shared_ptr<GraphExec>& exec) -> CUresult {
                     const auto graph = driver.graphs().graphs().find(from_handle(hGraph));
                     if (graph == nullptr || graph->captures != 0) return CUDA_ERROR_INVALID_VALUE;
                     CUgraphExecUpdateResultInfo info{};
                     const CUresult result = exec->update(*graph, &info);
                     if (resultInfo != nullptr) *resultInfo = info;
                     return result;
                   });
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) return result;
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(hGraphExec, hNode, *nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_kernel(hGraphExec, hNode, widen(*nodeParams));
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<CopyWork>(hGraphExec, hNode, [&](Driver& driver, CopyWork& work) {
    return read_memcpy(driver, *copyParams, ctx, work);
  });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                        CUcontext ctx) {
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<FillWork>(hGraphExec, hNode, [&](Driver& driver, FillWork& work) {
    return read_memset(driver, widen(*memsetParams, ctx), work);
  });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<HostWork>(hGraphExec, hNode, [&](Driver&, HostWork& work) {
    if (nodeParams->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    work = {nodeParams->fn, nodeParams->userData};
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  return set_child(hGraphExec, hNode, childGraph);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event) {
  return set<RecordWork>(hGraphExec, hNode, [&](Driver& driver, RecordWork& work) {
    return read_event(driver, event, work);
  });
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
  return set<WaitWork>(hGraphExec, hNode, [&](Driver& driver, WaitWork& work) {
    return read_event(driver, event, work);
  });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set<WordsWork>(hGraphExec, hNode, [&](Driver& driver, WordsWork& work) {
    return read_words(driver, widen(*nodeParams), work);
  });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr || !reserved_are_zero(*nodeParams)) return CUDA_ERROR_INVALID_VALUE;
  if (nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return set_child(hGraphExec, hNode, nodeParams->graph.graph);
  }
  return with_exec_node(
      hGraphExec, hNode, [&](Driver& driver, GraphExec& exec, GraphNode& node) -> CUresult {
        Work work = node.work;
        if (const CUresult bad = read_work(driver, *nodeParams, work); bad != CUDA_SUCCESS) {
          return bad;
        }
        if (check_change(node.work, work) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        node.work = std::move(work);
        exec.changed();
        return CUDA_SUCCESS;
      });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return with_exec_node(hGraphExec, hNode,
                        [&](Driver&, GraphExec& exec, GraphNode& node) -> CUresult {
                          if (!can_be_disabled(node.work)) return CUDA_ERROR_INVALID_VALUE;
                          node.enabled = isEnabled != 0;
                          exec.changed();
                          return CUDA_SUCCESS;
                        });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  return with_exec_node(hGraphExec, hNode,
                        [&](Driver&, GraphExec&, const GraphNode& node) -> CUresult {
                          if (isEnabled == nullptr || !can_be_disabled(node.work))
                            return CUDA_ERROR_INVALID_VALUE;
                          *isEnabled = node.enabled ? 1 : 0;
                          return CUDA_SUCCESS;
                        });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  return with_node_of<KernelWork>(hNode,
                                  [&](Driver&, GraphNode&, const KernelWork& work) -> CUresult {
                                    if (value_out == nullptr || !good_attribute(attr))
                                      return CUDA_ERROR_INVALID_VALUE;
                                    *value_out = value_of(work, attr);
                                    return CUDA_SUCCESS;
                                  });
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  return with_node_of<KernelWork>(hNode, [&](Driver&, GraphNode&, KernelWork& work) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // A hint that is taken and not kept.
    if (attr == CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING) return CUDA_SUCCESS;
    if (!good_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
    CUlaunchAttribute attribute{};
    attribute.id = attr;
    attribute.value = *value;
    return set_attribute(work, attribute);
  });
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return with_node_of<KernelWork>(dst, [&](Driver& driver, GraphNode&, KernelWork& to) -> CUresult {
    const auto node = driver.graphs().nodes().find(from_handle(src));
    const auto* from = node == nullptr ? nullptr : std::get_if<KernelWork>(&node->work);
    if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (from->context != to.context) return CUDA_ERROR_INVALID_CONTEXT;
    KernelWork changed = to;
    for (const CUlaunchAttribute& attribute : from->request.attributes) {
      const CUresult bad = set_attribute(changed, attribute);
      if (bad != CUDA_SUCCESS) return bad;
    }
    to = std::move(changed);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
