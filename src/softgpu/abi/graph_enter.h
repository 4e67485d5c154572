// What calls on graphs check before they do anything, and how they give out lists.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "softgpu/abi/enter.h"
#include "softgpu/graph.h"
#include "softgpu/graph_exec.h"

namespace flyt::softgpu {

// Calls body(driver) with the GraphStore's mutex held.
template <class Body>
CUresult with_graphs(Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const Lock lock(driver.graphs().mutex());
    return body(driver);
  });
}

// Calls body(driver, graph) likewise: CUDA_ERROR_INVALID_VALUE where there is no such graph.
template <class Body>
CUresult with_graph(CUgraph handle, Body body) {
  return with_graphs([&](Driver& driver) -> CUresult {
    const auto graph = driver.graphs().graphs().find(from_handle(handle));
    return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, graph);
  });
}

// Calls body(driver, node).
template <class Body>
CUresult with_node(CUgraphNode handle, Body body) {
  return with_graphs([&](Driver& driver) -> CUresult {
    const auto node = driver.graphs().nodes().find(from_handle(handle));
    return node == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *node);
  });
}

// Calls body(driver, exec), where its context is still there.
template <class Body>
CUresult with_exec(CUgraphExec handle, Body body) {
  return with_graphs([&](Driver& driver) -> CUresult {
    const auto exec = driver.graphs().execs().find(from_handle(handle));
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return exec->ended() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : body(driver, exec);
  });
}

// Calls body(driver, work) for a node whose work is of that kind.
template <class Kind, class Body>
CUresult with_node_of(CUgraphNode handle, Body body) {
  return with_node(handle, [&](Driver& driver, GraphNode& node) -> CUresult {
    auto* work = std::get_if<Kind>(&node.work);
    return work == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, node, *work);
  });
}

// Calls body(driver, exec, node) for a node of an executable graph, named by that it was made from.
template <class Body>
CUresult with_exec_node(CUgraphExec handle, CUgraphNode node, Body body) {
  return with_exec(handle, [&](Driver& driver, const std::shared_ptr<GraphExec>& exec) -> CUresult {
    GraphNode* found = exec->node(from_handle(node));
    return found == nullptr ? CUDA_ERROR_INVALID_VALUE : body(driver, *exec, *found);
  });
}

// The edges that an array of nodes of the graph stands for. `data` may be null.
CUresult read_edges(Driver& driver, const Graph& graph, const CUgraphNode* nodes,
                    const CUgraphEdgeData* data, std::size_t count, std::vector<Edge>& out);
// May the edge begin at that node?
bool good_edge(const GraphNode& from, const CUgraphEdgeData& data);

// CUDA's protocol for lists: without an array their size; otherwise as many as fit, null behind
// the last one, and how many there were. An array without room for any is a mistake.
template <class T>
CUresult give_list(const std::vector<T>& values, T* out, std::size_t* count) {
  if (out == nullptr) {
    *count = values.size();
    return CUDA_SUCCESS;
  }
  const std::size_t room = *count;
  if (room == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < room; ++i) out[i] = i < values.size() ? values[i] : T{};
  if (room > values.size()) *count = values.size();
  return CUDA_SUCCESS;
}

}  // namespace flyt::softgpu
