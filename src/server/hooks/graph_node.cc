// Nodes of graphs: adding them, and what they do.
#include <vector>

#include "server/client_names.h"
#include "server/code/launch_attributes.h"
#include "server/graphs/graph_edges.h"
#include "server/graphs/graph_memory.h"
#include "server/graphs/graph_node_params.h"
#include "server/graphs/graph_typed_nodes.h"
#include "server/graphs/graphs.h"
#include "server/hooks_graph.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// By the driver's call for any kind.
CUresult add_any(const driver::Table& driver, const NewNode& made, CUgraphNodeParams& params) {
  if (driver.cuGraphAddNode_v2 != nullptr) {
    return driver.cuGraphAddNode_v2(made.node, made.graph, made.after, made.edges, made.count,
                                    &params);
  }
  if (driver.cuGraphAddNode == nullptr || made.edges != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return driver.cuGraphAddNode(made.node, made.graph, made.after, made.count, &params);
}

// What the client is to know of a node that was made: false when there are no numbers left.
bool tell(Session& session, const commands::AddGraphNode& command, CUgraphNode node,
          GraphNodeParams& params, UsedMemory& charge, commands::AddGraphNode::Reply& reply,
          std::vector<std::uint64_t>& bodies) {
  Graphs& graphs = session.graphs();
  reply.node = graphs.name_node(node, command.graph);
  if (reply.node == 0) return false;
  const CUgraphNodeParams& made = params.native();
  switch (params.type()) {
    case CU_GRAPH_NODE_TYPE_GRAPH:
      graphs.costs().note_nested();
      if (made.graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
        graphs.put_around(params.child(), reply.node);
      }
      return true;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      reply.address = made.alloc.dptr;
      session.graph_memory().add(made.alloc.dptr, made.alloc.bytesize, command.graph,
                                 std::move(charge));
      return true;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      graphs.note_memory_node();
      return true;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      graphs.costs().note_nested();
      for (unsigned i = 0; i < made.conditional.size; ++i) {
        bodies.push_back(graphs.name_graph(made.conditional.phGraph_out[i], reply.node));
        if (bodies.back() == 0) return false;
      }
      return true;
    default:
      return true;
  }
}

// Of a child that the driver copies.
bool is_cloned(GraphNodeParams& params) {
  return params.type() == CU_GRAPH_NODE_TYPE_GRAPH &&
         params.native().graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
}

// Who moves a graph into itself has one that never ends, and one that is in a node is that node's.
bool may_move(const Graphs& graphs, std::uint64_t child, std::uint64_t into) {
  return graphs.around(child) == 0 && graphs.root(into) != child && !graphs.in_update(child) &&
         !graphs.captured_into(child);
}

// Whether the graph may get a node with all that is in it, and of a copy what that costs.
CUresult admit_node(Graphs& graphs, const commands::AddGraphNode& command, GraphNodeParams& params,
                    GraphCosts::Cost& cost) {
  if (graphs.in_update(command.graph)) return CUDA_ERROR_ILLEGAL_STATE;
  // The driver would have a node that nobody counts.
  if (graphs.full() || !graphs.costs().admit_edges(command.graph, command.dependencies.size())) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const bool has_bodies = params.type() == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  if (!has_bodies && params.child() == 0) return CUDA_SUCCESS;
  const unsigned depth = graphs.depth(command.graph) + 1;
  if (has_bodies) {
    return depth <= GraphCosts::kDepthMax ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUgraph child = params.native().graph.graph;
  if (!is_cloned(params)) {
    if (!may_move(graphs, params.child(), command.graph)) return CUDA_ERROR_INVALID_VALUE;
    return graphs.costs().may_be_in(child, depth) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto copy = graphs.costs().of_copy(child, depth);
  cost = copy.value_or(GraphCosts::Cost{});
  return copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUkernelNodeAttrValue value_of(Bytes bytes) {
  CUkernelNodeAttrValue value{};
  std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
  return value;
}

// Events are recorded by launches alone, and that kernels do not update a node may be said.
CUresult admit_attribute(const Request& request, CUlaunchAttribute& attribute) {
  switch (static_cast<int>(attribute.id)) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      attribute.value.deviceUpdatableKernelNode.devNode = nullptr;
      return attribute.value.deviceUpdatableKernelNode.deviceUpdatable == 0
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return LaunchAttributes::admit(request, attribute);
  }
}

}  // namespace

void add_graph_node(Request request, const commands::AddGraphNode& command) {
  Graphs& graphs = request.session().graphs();
  commands::AddGraphNode::Reply reply;
  const CUgraph graph = graphs.graph(command.graph);
  std::vector<CUgraphNode> dependencies;
  GraphEdges edges;
  GraphNodeParams params;
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  if (graph != nullptr && graphs.nodes(command.dependencies, dependencies) &&
      edges.take(command.edges, dependencies.size())) {
    result = params.take(request, command.parameters, command.data);
  }
  UsedMemory charge;
  if (result == CUDA_SUCCESS && params.type() == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    const auto& alloc = params.native().alloc;
    result = request.session().graph_memory().reserve(alloc.poolProps.location.id, alloc.bytesize,
                                                      charge);
  }
  // The call for children alone always copies.
  if (command.typed && params.type() == CU_GRAPH_NODE_TYPE_GRAPH) {
    params.native().graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  }
  GraphCosts::Cost cost;
  if (result == CUDA_SUCCESS) result = admit_node(graphs, command, params, cost);
  CUgraphNode node = nullptr;
  if (result == CUDA_SUCCESS) {
    if (command.typed) params.name_context(request);
    const NewNode made{&node, graph, dependencies.data(), edges.data(), dependencies.size()};
    result = command.typed ? add_typed_node(request.driver(), made, params.native())
                           : add_any(request.driver(), made, params.native());
  }
  if (result == CUDA_SUCCESS) {
    graphs.note_part(command.graph);
    if (params.child() != 0) graphs.note_parts_of(command.graph, params.child());
  }
  std::vector<std::uint64_t> bodies;
  if (result == CUDA_SUCCESS &&
      !tell(request.session(), command, node, params, charge, reply, bodies)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (node != nullptr && cost.total() != 0) {
    graphs.costs().note_child(command.graph, reply.node, cost);
  }
  if (result == CUDA_SUCCESS) {
    graphs.records().node_added(reply.node, request.context(), command.parameters, command.data);
  }
  reply.bodies = wire::List<std::uint64_t>(bodies);
  request.reply(result, reply);
}

CUresult graph_node_type(Request& request, const commands::GraphNodeType& command,
                         commands::GraphNodeType::Reply& reply) {
  const CUgraphNode node = request.session().graphs().node(command.node);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeType type{};
  const CUresult result = request.driver().cuGraphNodeGetType(node, &type);
  reply.type = static_cast<std::int32_t>(type);
  return result;
}

void get_graph_node(Request request, const commands::GetGraphNode& command) {
  commands::GetGraphNode::Reply reply;
  const CUgraphNode node = request.session().graphs().node(command.node);
  if (node == nullptr) return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  CUgraphNodeParams params{};
  std::vector<std::byte> data;
  const CUresult result = describe_node(request.session(), ClientNames(request.session()), node,
                                        command.type, params, data);
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  reply.graph = request.session().graphs().graph_of(command.node);
  reply.parameters = bytes_at(&params, sizeof params);
  reply.data = data;
  request.reply(CUDA_SUCCESS, reply);
}

CUresult set_graph_node(Request& request, const commands::SetGraphNode& command,
                        commands::SetGraphNode::Reply& reply) {
  const CUgraphNode node = request.session().graphs().node(command.node);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  reply.graph = request.session().graphs().graph_of(command.node);
  if (request.session().graphs().in_update(reply.graph)) return CUDA_ERROR_ILLEGAL_STATE;
  GraphNodeParams params;
  const CUresult bad = params.take(request, command.parameters, command.data);
  if (bad != CUDA_SUCCESS) return bad;
  request.session().graphs().note_part(reply.graph);
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (command.typed) {
    result = set_typed_node(request.driver(), node, params.native());
  } else if (request.driver().cuGraphNodeSetParams != nullptr) {
    result = request.driver().cuGraphNodeSetParams(node, &params.native());
  }
  if (result == CUDA_SUCCESS) {
    request.session().graphs().records().node_set(command.node, command.parameters, command.data);
  }
  return result;
}

CUresult destroy_graph_node(Request& request, const commands::DestroyGraphNode& command) {
  Graphs& graphs = request.session().graphs();
  const CUgraphNode node = graphs.node(command.node);
  if (node == nullptr) return request.session().ended_before(CUDA_ERROR_INVALID_VALUE);
  if (graphs.in_update(graphs.graph_of(command.node))) return CUDA_ERROR_ILLEGAL_STATE;
  graphs.records().node_changed(command.node);
  const CUresult result = request.driver().cuGraphDestroyNode(node);
  if (result == CUDA_SUCCESS) graphs.forget_node(command.node);
  return result;
}

void get_node_attribute(Request request, const commands::GetNodeAttribute& command) {
  commands::GetNodeAttribute::Reply reply;
  const CUgraphNode node = request.session().graphs().node(command.node);
  if (node == nullptr) return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  CUkernelNodeAttrValue value{};
  const auto attribute = static_cast<CUkernelNodeAttrID>(command.attribute);
  const CUresult result = request.driver().cuGraphKernelNodeGetAttribute(node, attribute, &value);
  reply.value = bytes_at(&value, sizeof value);
  request.reply(result, reply);
}

CUresult set_node_attribute(Request& request, const commands::SetNodeAttribute& command) {
  const Graphs& graphs = request.session().graphs();
  const CUgraphNode node = graphs.node(command.node);
  if (node == nullptr || command.value.size() != sizeof(CUkernelNodeAttrValue)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (graphs.in_update(graphs.graph_of(command.node))) return CUDA_ERROR_ILLEGAL_STATE;
  CUlaunchAttribute attribute{};
  attribute.id = static_cast<CUlaunchAttributeID>(command.attribute);
  attribute.value = value_of(command.value);
  const CUresult bad = admit_attribute(request, attribute);
  if (bad != CUDA_SUCCESS) return bad;
  request.session().graphs().records().node_changed(command.node);
  return request.driver().cuGraphKernelNodeSetAttribute(node, attribute.id, &attribute.value);
}

CUresult copy_node_attributes(Request& request, const commands::CopyNodeAttributes& command) {
  Graphs& graphs = request.session().graphs();
  const CUgraphNode to = graphs.node(command.to);
  const CUgraphNode from = graphs.node(command.from);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (graphs.in_update(graphs.graph_of(command.to))) return CUDA_ERROR_ILLEGAL_STATE;
  graphs.records().node_changed(command.to);
  return request.driver().cuGraphKernelNodeCopyAttributes(to, from);
}

}  // namespace flyt::server::hooks
