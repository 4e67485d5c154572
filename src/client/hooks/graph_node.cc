// Nodes of graphs: adding them, and reading and changing what they do.
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "client/call.h"
#include "client/graphs/graph_node.h"
#include "client/graphs/graphs.h"
#include "client/hooks_graph.h"
#include "client/memory_state.h"
#include "commands/graph.h"

namespace flyt::client::hooks {
namespace {

// Where a node goes.
struct Place {
  CUgraphNode* node = nullptr;
  CUgraph graph = nullptr;
  const CUgraphNode* dependencies = nullptr;
  std::size_t count = 0;
  const CUgraphEdgeData* edges = nullptr;
  bool typed = true;  // By the call for its kind.
};

CUgraphNodeParams of_type(CUgraphNodeType type) {
  CUgraphNodeParams params{};
  params.type = type;
  return params;
}

// What the program learns of a node beside its handle.
CUresult take_made(const commands::AddGraphNode::Reply& reply, CUgraph graph,
                   CUgraphNodeParams& params) {
  Graphs& graphs = session().graphs();
  if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    params.alloc.dptr = reply.address;
    return graphs.add_memory(reply.address, params.alloc.bytesize,
                             params.alloc.poolProps.location.id);
  }
  if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    graphs.lend(address_of(graph), graphs.lent_to(address_of(params.graph.graph)));
    if (params.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
      graphs.put_within(address_of(params.graph.graph), address_of(graph));
    }
    return CUDA_SUCCESS;
  }
  if (params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_SUCCESS;
  auto told = std::make_unique<ToldNode>();
  for (std::size_t i = 0; i < reply.bodies.size(); ++i) {
    graphs.put_within(reply.bodies[i], address_of(graph));
    told->graphs.push_back(static_cast<CUgraph>(pointer_at(reply.bodies[i])));
  }
  params.conditional.phGraph_out =
      graphs.keep(address_of(graph), reply.node, std::move(told)).graphs.data();
  return CUDA_SUCCESS;
}

CUresult add(const Place& place, CUgraphNodeParams& params) {
  constexpr std::size_t kCountMax = commands::AddGraphNode::kDependenciesCountMax;
  if (place.node == nullptr || (place.count != 0 && place.dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (place.count > kCountMax) {
    return refused("cuGraphAddNode", "a node is added with at most 8192 dependencies");
  }
  GraphNode given;
  if (const CUresult bad = given.take(params); bad != CUDA_SUCCESS) return bad;
  Graphs& graphs = session().graphs();
  CUresult clash = graphs.check_clash("cuGraphAddNode", address_of(place.graph), given.lent());
  if (clash == CUDA_SUCCESS && params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    clash = graphs.check_clash("cuGraphAddNode", address_of(place.graph),
                               graphs.lent_to(address_of(params.graph.graph)));
  }
  if (clash != CUDA_SUCCESS) return clash;
  std::vector<std::uint64_t> dependencies(place.count);
  for (std::size_t i = 0; i < place.count; ++i) {
    dependencies[i] = address_of(place.dependencies[i]);
  }
  const Bytes edges = place.edges != nullptr
                          ? bytes_at(place.edges, place.count * sizeof(CUgraphEdgeData))
                          : Bytes();
  commands::AddGraphNode::Reply reply;
  rpc::Reply answer;
  const CUresult result =
      ask(commands::AddGraphNode{.graph = address_of(place.graph),
                                 .dependencies = wire::List<std::uint64_t>(dependencies),
                                 .edges = edges,
                                 .parameters = given.parameters(),
                                 .data = given.data(),
                                 .typed = place.typed},
          reply, answer);
  if (result != CUDA_SUCCESS) return result;
  session().graphs().lend(address_of(place.graph), given.lent());
  *place.node = static_cast<CUgraphNode>(pointer_at(reply.node));
  return take_made(reply, place.graph, params);
}

CUresult add_const(const Place& place, const CUgraphNodeParams& params) {
  CUgraphNodeParams own = params;
  return add(place, own);
}

CUresult set(CUgraphNode node, const CUgraphNodeParams& params, bool typed = true) {
  GraphNode given;
  if (const CUresult bad = given.take(params); bad != CUDA_SUCCESS) return bad;
  commands::SetGraphNode::Reply reply;
  const CUresult result = ask(commands::SetGraphNode{.node = address_of(node),
                                                     .parameters = given.parameters(),
                                                     .data = given.data(),
                                                     .typed = typed},
                              reply);
  if (result == CUDA_SUCCESS) session().graphs().lend(reply.graph, given.lent());
  return result;
}

// Asks for a node of that type, and hands what it does on to `give`.
template <class Give>
CUresult get(CUgraphNode node, CUgraphNodeType type, const void* out, Give&& give) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams params{};
  const CUresult result = ask_graph_node(node, type, params);
  if (result == CUDA_SUCCESS) give(params);
  return result;
}

CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v1& p) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  params.kernel = {p.func,         p.gridDimX,  p.gridDimY,  p.gridDimZ,
                   p.blockDimX,    p.blockDimY, p.blockDimZ, p.sharedMemBytes,
                   p.kernelParams, p.extra,     nullptr,     nullptr};
  return params;
}

CUgraphNodeParams kernel_params(const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  params.kernel = {p.func,         p.gridDimX,  p.gridDimY,  p.gridDimZ,
                   p.blockDimX,    p.blockDimY, p.blockDimZ, p.sharedMemBytes,
                   p.kernelParams, p.extra,     p.kern,      p.ctx};
  return params;
}

CUgraphNodeParams copy_params(const CUDA_MEMCPY3D& copy, CUcontext context) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  params.memcpy.copyCtx = context;
  params.memcpy.copyParams = copy;
  return params;
}

CUgraphNodeParams fill_params(const CUDA_MEMSET_NODE_PARAMS& p, CUcontext context) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  params.memset = {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height, context};
  return params;
}

CUgraphNodeParams host_params(const CUDA_HOST_NODE_PARAMS& p) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_HOST);
  params.host = {p.fn, p.userData};
  return params;
}

CUgraphNodeParams record_params(CUevent event) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  params.eventRecord.event = event;
  return params;
}

CUgraphNodeParams wait_params(CUevent event) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  params.eventWait.event = event;
  return params;
}

CUgraphNodeParams child_params(CUgraph child) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
  params.graph.graph = child;
  return params;
}

CUgraphNodeParams words_params(const CUDA_BATCH_MEM_OP_NODE_PARAMS& p) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  params.memOp = {p.ctx, p.count, p.paramArray, p.flags};
  return params;
}

// What a call with `given` does, if there is anything given.
template <class Given, class Body>
CUresult with(const Given* given, Body&& body) {
  return given == nullptr ? CUDA_ERROR_INVALID_VALUE : body(*given);
}

CUresult set_exec(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& params,
                  bool typed = true) {
  ExecState* state = session().graphs().execs.find(address_of(exec));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphNode given;
  if (const CUresult bad = given.take(params); bad != CUDA_SUCCESS) return bad;
  const CUresult result = ask(commands::SetExecNode{.exec = address_of(exec),
                                                    .node = address_of(node),
                                                    .parameters = given.parameters(),
                                                    .data = given.data(),
                                                    .typed = typed});
  if (result != CUDA_SUCCESS) return result;
  Graphs& graphs = session().graphs();
  graphs.lend_to_exec(*state, given.lent());
  if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
    graphs.lend_to_exec(*state, graphs.lent_to(address_of(params.graph.graph)));
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add({phGraphNode, hGraph, dependencies, numDependencies, dependencyData, false},
             *nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                        size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return with(nodeParams, [&](const auto& given) { return set(hNode, given, false); });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set_exec(hGraphExec, hNode, given, false); });
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with(nodeParams, [&](const auto& given) {
    return add_const({phGraphNode, hGraph, dependencies, numDependencies}, kernel_params(given));
  });
}

CUresult cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return with(nodeParams, [&](const auto& given) {
    return add_const({phGraphNode, hGraph, dependencies, numDependencies}, kernel_params(given));
  });
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, [&](const CUgraphNodeParams& params) {
    const CUDA_KERNEL_NODE_PARAMS_v3& p = params.kernel;
    *nodeParams = {p.func,         p.gridDimX,  p.gridDimY,  p.gridDimZ,
                   p.blockDimX,    p.blockDimY, p.blockDimZ, p.sharedMemBytes,
                   p.kernelParams, p.extra,     p.kern,      p.ctx};
  });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, [&](const CUgraphNodeParams& params) {
    const CUDA_KERNEL_NODE_PARAMS_v3& p = params.kernel;
    *nodeParams = {p.func,      p.gridDimX,  p.gridDimY,       p.gridDimZ,     p.blockDimX,
                   p.blockDimY, p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra};
  });
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with(nodeParams, [&](const auto& given) { return set(hNode, kernel_params(given)); });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return with(nodeParams, [&](const auto& given) { return set(hNode, kernel_params(given)); });
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set_exec(hGraphExec, hNode, kernel_params(given)); });
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set_exec(hGraphExec, hNode, kernel_params(given)); });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return with(copyParams, [&](const auto& given) {
    return add_const({phGraphNode, hGraph, dependencies, numDependencies}, copy_params(given, ctx));
  });
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
             [&](const CUgraphNodeParams& params) { *nodeParams = params.memcpy.copyParams; });
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set(hNode, copy_params(given, nullptr)); });
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  return with(copyParams, [&](const auto& given) {
    return set_exec(hGraphExec, hNode, copy_params(given, ctx));
  });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  return with(memsetParams, [&](const auto& given) {
    return add_const({phGraphNode, hGraph, dependencies, numDependencies}, fill_params(given, ctx));
  });
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams, [&](const CUgraphNodeParams& params) {
    const CUDA_MEMSET_NODE_PARAMS_v2& p = params.memset;
    *nodeParams = {p.dst, p.pitch, p.value, p.elementSize, p.width, p.height};
  });
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set(hNode, fill_params(given, nullptr)); });
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                                        CUcontext ctx) {
  return with(memsetParams, [&](const auto& given) {
    return set_exec(hGraphExec, hNode, fill_params(given, ctx));
  });
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return with(nodeParams, [&](const auto& given) {
    return add_const({phGraphNode, hGraph, dependencies, numDependencies}, host_params(given));
  });
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return get(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams, [&](const CUgraphNodeParams& params) {
    *nodeParams = {params.host.fn, params.host.userData};
  });
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return with(nodeParams, [&](const auto& given) { return set(hNode, host_params(given)); });
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set_exec(hGraphExec, hNode, host_params(given)); });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  return add_const({phGraphNode, hGraph, dependencies, numDependencies}, child_params(childGraph));
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return get(hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph,
             [&](const CUgraphNodeParams& params) { *phGraph = params.graph.graph; });
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  return set_exec(hGraphExec, hNode, child_params(childGraph));
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return add_const({phGraphNode, hGraph, dependencies, numDependencies},
                   of_type(CU_GRAPH_NODE_TYPE_EMPTY));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies,
                                   CUevent event) {
  return add_const({phGraphNode, hGraph, dependencies, numDependencies}, record_params(event));
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out,
             [&](const CUgraphNodeParams& params) { *event_out = params.eventRecord.event; });
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set(hNode, record_params(event));
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event) {
  return set_exec(hGraphExec, hNode, record_params(event));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 CUevent event) {
  return add_const({phGraphNode, hGraph, dependencies, numDependencies}, wait_params(event));
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out,
             [&](const CUgraphNodeParams& params) { *event_out = params.eventWait.event; });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return set(hNode, wait_params(event));
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
  return set_exec(hGraphExec, hNode, wait_params(event));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return with(nodeParams, [&](const auto& given) {
    return add_const({phGraphNode, hGraph, dependencies, numDependencies}, words_params(given));
  });
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out,
             [&](const CUgraphNodeParams& params) {
               const CUDA_BATCH_MEM_OP_NODE_PARAMS_v2& p = params.memOp;
               *nodeParams_out = {p.ctx, p.count, p.paramArray, p.flags};
             });
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return with(nodeParams, [&](const auto& given) { return set(hNode, words_params(given)); });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return with(nodeParams,
              [&](const auto& given) { return set_exec(hGraphExec, hNode, words_params(given)); });
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEM_ALLOC_NODE_PARAMS& p = *nodeParams;
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  params.alloc = {p.poolProps, p.accessDescs, p.accessDescCount, p.bytesize, 0};
  const CUresult result = add({phGraphNode, hGraph, dependencies, numDependencies}, params);
  if (result == CUDA_SUCCESS) p.dptr = params.alloc.dptr;
  return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, [&](const CUgraphNodeParams& params) {
    const CUDA_MEM_ALLOC_NODE_PARAMS_v2& p = params.alloc;
    *params_out = {p.poolProps, p.accessDescs, p.accessDescCount, p.bytesize, p.dptr};
  });
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies,
                               CUdeviceptr dptr) {
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  params.free.dptr = dptr;
  return add({phGraphNode, hGraph, dependencies, numDependencies}, params);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  return get(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out,
             [&](const CUgraphNodeParams& params) { *dptr_out = params.free.dptr; });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::GraphNodeType::Reply reply;
  const CUresult result = ask(commands::GraphNodeType{.node = address_of(hNode)}, reply);
  if (result == CUDA_SUCCESS) *type = static_cast<CUgraphNodeType>(reply.type);
  return result;
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return ask(commands::DestroyGraphNode{.node = address_of(hNode)});
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  return ask(commands::CopyNodeAttributes{.to = address_of(dst), .from = address_of(src)});
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  if (value_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::GetNodeAttribute::Reply reply;
  rpc::Reply answer;
  const CUresult result =
      ask(commands::GetNodeAttribute{.node = address_of(hNode),
                                     .attribute = static_cast<std::uint32_t>(attr)},
          reply, answer);
  if (result != CUDA_SUCCESS) return result;
  if (reply.value.size() != sizeof *value_out) return CUDA_ERROR_UNKNOWN;
  std::memcpy(static_cast<void*>(value_out), reply.value.data(), sizeof *value_out);
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ask(commands::SetNodeAttribute{.node = address_of(hNode),
                                        .attribute = static_cast<std::uint32_t>(attr),
                                        .value = bytes_at(value, sizeof *value)});
}

}  // namespace flyt::client::hooks
