// Graphs: making, cloning and destroying them, their nodes and edges.
#include "softgpu/abi/graph_enter.h"

namespace flyt::softgpu {

bool good_edge(const GraphNode& from, const CUgraphEdgeData& data) {
  for (const unsigned char byte : data.reserved) {
    if (byte != 0) return false;
  }
  if (data.to_port != 0) return false;
  if (!std::holds_alternative<KernelWork>(from.work)) {
    return data.from_port == 0 && data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  }
  if (data.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC) {
    return data.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
           data.from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  }
  return data.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
         data.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
}

CUresult read_edges(Driver& driver, const Graph& graph, const CUgraphNode* nodes,
                    const CUgraphEdgeData* data, std::size_t count, std::vector<Edge>& out) {
  if (count == 0) return CUDA_SUCCESS;
  if (nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const auto node = driver.graphs().nodes().find(from_handle(nodes[i]));
    if (node == nullptr || node->graph != &graph) return CUDA_ERROR_INVALID_VALUE;
    const Edge edge{node.get(), data == nullptr ? kPlainEdge : data[i]};
    if (!good_edge(*node, edge.data)) return CUDA_ERROR_INVALID_VALUE;
    for (const Edge& other : out) {
      if (other.node == edge.node) return CUDA_ERROR_INVALID_VALUE;
    }
    out.push_back(edge);
  }
  return CUDA_SUCCESS;
}

namespace {

CUgraphNode handle_of(const GraphNode& node) { return to_handle<CUgraphNode>(node.handle); }

// `want_data`: the caller has an argument for edge data, whose array may be null all the same.
CUresult give_neighbours(const std::vector<Edge>& edges, CUgraphNode* nodes, CUgraphEdgeData* data,
                         std::size_t* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<CUgraphNode> handles;
  std::vector<CUgraphEdgeData> values;
  for (const Edge& edge : edges) {
    // Whoever has no room for it must not take the edge for a plain one.
    if (nodes != nullptr && data == nullptr && !plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
    handles.push_back(handle_of(*edge.node));
    values.push_back(edge.data);
  }
  std::size_t again = *count;
  if (nodes == nullptr && data != nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = give_list(handles, nodes, count);
  if (result == CUDA_SUCCESS && data != nullptr) static_cast<void>(give_list(values, data, &again));
  return result;
}

CUresult give_edges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                    std::size_t* count) {
  return with_graph(hGraph, [&](Driver&, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    if (from == nullptr && data != nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> froms;
    std::vector<CUgraphNode> tos;
    std::vector<CUgraphEdgeData> values;
    for (const auto& node : graph->nodes()) {
      for (const Edge& edge : node->dependents) {
        if (from != nullptr && data == nullptr && !plain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
        froms.push_back(handle_of(*node));
        tos.push_back(handle_of(*edge.node));
        values.push_back(edge.data);
      }
    }
    std::size_t room = *count;
    const CUresult result = give_list(froms, from, count);
    if (result != CUDA_SUCCESS || from == nullptr) return result;
    std::size_t again = room;
    if (data != nullptr) static_cast<void>(give_list(values, data, &again));
    return give_list(tos, to, &room);
  });
}

// Calls body(from, to, data) for each pair, once all of them were found good.
template <class Check, class Body>
CUresult for_pairs(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                   const CUgraphEdgeData* data, std::size_t count, Check check, Body body) {
  return with_graph(hGraph, [&](Driver& driver, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (count == 0) return CUDA_SUCCESS;
    if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<std::pair<GraphNode*, GraphNode*>> pairs;
    for (std::size_t i = 0; i < count; ++i) {
      const auto a = driver.graphs().nodes().find(from_handle(from[i]));
      const auto b = driver.graphs().nodes().find(from_handle(to[i]));
      const bool good = a != nullptr && b != nullptr && a != b && a->graph == graph.get() &&
                        b->graph == graph.get();
      if (!good) return CUDA_ERROR_INVALID_VALUE;
      const std::pair<GraphNode*, GraphNode*> pair{a.get(), b.get()};
      if (std::count(pairs.begin(), pairs.end(), pair) != 0) return CUDA_ERROR_INVALID_VALUE;
      const CUresult bad = check(*graph, *a, *b, data == nullptr ? kPlainEdge : data[i]);
      if (bad != CUDA_SUCCESS) return bad;
      pairs.push_back(pair);
    }
    for (std::size_t i = 0; i < count; ++i) {
      body(*pairs[i].first, *pairs[i].second, data == nullptr ? kPlainEdge : data[i]);
    }
    return CUDA_SUCCESS;
  });
}

CUresult add_dependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                          const CUgraphEdgeData* data, std::size_t count) {
  return for_pairs(
      hGraph, from, to, data, count,
      [](const Graph&, const GraphNode& a, const GraphNode& b, const CUgraphEdgeData& edge) {
        return Graph::connected(a, b) || !good_edge(a, edge) ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_SUCCESS;
      },
      &Graph::connect);
}

// Without data: whatever the edges have.
CUresult remove_dependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                             const CUgraphEdgeData* data, std::size_t count) {
  return for_pairs(
      hGraph, from, to, data, count,
      [data](const Graph& graph, const GraphNode& a, const GraphNode& b,
             const CUgraphEdgeData& edge) {
        if (graph.has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
        for (const Edge& each : a.dependents) {
          if (each.node == &b && (data == nullptr || each.data == edge)) return CUDA_SUCCESS;
        }
        return CUDA_ERROR_INVALID_VALUE;
      },
      [](GraphNode& a, GraphNode& b, const CUgraphEdgeData&) { Graph::disconnect(a, b); });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  return with_graphs([&](Driver& driver) -> CUresult {
    if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    *phGraph = to_handle<CUgraph>(Graph::make(&driver)->handle());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  return with_graph(originalGraph,
                    [&](Driver& driver, const std::shared_ptr<Graph>& graph) -> CUresult {
                      if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
                      if (graph->is_single()) return CUDA_ERROR_NOT_SUPPORTED;
                      *phGraphClone = to_handle<CUgraph>(graph->clone(&driver)->handle());
                      return CUDA_SUCCESS;
                    });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  return with_graph(hGraph, [&](Driver& driver, const std::shared_ptr<Graph>& graph) -> CUresult {
    // Children go with their node, and a capture needs its graph.
    if (graph->owned() || graph->captures != 0) return CUDA_ERROR_INVALID_VALUE;
    graph->forget_children(driver);
    driver.graphs().graphs().take(graph->handle());
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  return with_graph(hClonedGraph, [&](Driver&, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (phNode == nullptr || graph->origin() == 0) return CUDA_ERROR_INVALID_VALUE;
    for (const auto& node : graph->nodes()) {
      if (node->origin == 0 || node->origin != from_handle(hOriginalNode)) continue;
      *phNode = handle_of(*node);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  return with_node(hNode, [&](Driver&, const GraphNode& node) -> CUresult {
    if (type == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *type = type_of(node.work);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return with_graph(hGraph, [&](Driver&, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> handles;
    for (const auto& node : graph->nodes()) handles.push_back(handle_of(*node));
    return give_list(handles, nodes, numNodes);
  });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return with_graph(hGraph, [&](Driver&, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (numRootNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::vector<CUgraphNode> handles;
    for (const auto& node : graph->nodes()) {
      if (node->dependencies.empty()) handles.push_back(handle_of(*node));
    }
    return give_list(handles, rootNodes, numRootNodes);
  });
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  return give_edges(hGraph, from, to, edgeData, numEdges);
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return give_edges(hGraph, from, to, nullptr, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return with_node(hNode, [&](Driver&, const GraphNode& node) {
    return give_neighbours(node.dependencies, dependencies, edgeData, numDependencies);
  });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return with_node(hNode, [&](Driver&, const GraphNode& node) {
    return give_neighbours(node.dependents, dependentNodes, edgeData, numDependentNodes);
  });
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return add_dependencies(hGraph, from, to, edgeData, numDependencies);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return add_dependencies(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  return remove_dependencies(hGraph, from, to, edgeData, numDependencies);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return remove_dependencies(hGraph, from, to, nullptr, numDependencies);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
  return with_node(hNode, [&](Driver& driver, GraphNode& node) -> CUresult {
    if (node.graph->has_memory()) return CUDA_ERROR_NOT_SUPPORTED;
    const auto held = driver.graphs().nodes().find(node.handle);
    forget_graphs(driver, node.work);
    node.graph->remove(node);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
