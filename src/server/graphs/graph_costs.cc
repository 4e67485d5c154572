#include "server/graphs/graph_costs.h"

#include <algorithm>
#include <vector>

#include "server/graphs/graphs.h"

namespace flyt::server {

std::optional<GraphCosts::Cost> GraphCosts::of_copy(CUgraph graph, unsigned depth) {
  if (edges_ > kEdgesMax / 2) count_edges();
  Cost cost;
  if (!add(graph, depth, Check::kRoom, cost)) return std::nullopt;
  return cost;
}

bool GraphCosts::may_be_in(CUgraph graph, unsigned depth) const {
  Cost cost;
  return add(graph, depth, Check::kDepth, cost);
}

std::optional<GraphCosts::Cost> GraphCosts::of_exec(std::uint64_t exec) const {
  const auto found = execs_.find(exec);
  const Cost cost = found == execs_.end() ? Cost{} : found->second;
  return fits(cost) ? std::optional(cost) : std::nullopt;
}

// False as soon as it is too much, so that nobody looks at all of that.
bool GraphCosts::add(CUgraph graph, unsigned depth, Check check, Cost& cost) const {
  std::size_t count = 0;
  if (depth > kDepthMax || driver_.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return false;
  }
  cost.nodes += count;
  const auto hidden = hidden_.find(graphs_.name_of(graph));
  if (hidden != hidden_.end()) cost.hidden += hidden->second;
  cost.edges += edges_in(graph);
  if (check == Check::kRoom && !fits(cost)) return false;
  if (!nested_ || count == 0) return true;
  std::vector<CUgraphNode> nodes(count);
  if (driver_.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return false;
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](CUgraphNode node) { return add_inner(node, depth, check, cost); });
}

bool GraphCosts::add_inner(CUgraphNode node, unsigned depth, Check check, Cost& cost) const {
  CUgraphNodeType type{};
  if (driver_.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    return driver_.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
           add(child, depth + 1, check, cost);
  }
  if (type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return true;
  for (const std::uint64_t body : graphs_.graphs_in(graphs_.name_of(node))) {
    Cost inner;
    if (!add(graphs_.graph(body), depth + 1, check, inner)) return false;
    cost.hidden += inner.total();
    cost.edges += inner.edges;
  }
  return check == Check::kDepth || fits(cost);
}

// What is ending has its nodes and edges still.
bool GraphCosts::fits(const Cost& cost) const {
  const std::uint64_t nodes = nodes_ + graphs_.ending().nodes;
  return nodes <= kNodesMax && cost.total() <= kNodesMax - nodes && has_room(cost.edges);
}

bool GraphCosts::has_room(std::uint64_t edges) const {
  const std::uint64_t present = edges_ + graphs_.ending().edges;
  return present <= kEdgesMax && edges <= kEdgesMax - present;
}

std::uint64_t GraphCosts::edges_in(CUgraph graph) const {
  std::size_t count = 0;
  const CUresult result = driver_.cuGraphGetEdges_v2 != nullptr
                              ? driver_.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count)
                              : driver_.cuGraphGetEdges(graph, nullptr, nullptr, &count);
  // Edges with data are not for the older call.
  return result == CUDA_SUCCESS ? count : 0;
}

bool GraphCosts::admit_edges(std::uint64_t graph, std::size_t edges) {
  if (edges == 0) return true;
  if (!has_room(edges)) count_edges();
  if (!has_room(edges)) return false;
  admitted_[graph] += edges;
  edges_ += edges;
  return true;
}

void GraphCosts::count_edges() {
  for (auto& [graph, admitted] : admitted_) {
    const std::uint64_t present = std::min(admitted, edges_in(graphs_.graph(graph)));
    edges_ -= admitted - present;
    admitted = present;
  }
}

GraphCosts::Cost GraphCosts::counted(std::uint64_t name) const {
  Cost cost;
  if (const auto found = charges_.find(name); found != charges_.end()) {
    cost.nodes = found->second.nodes;
    cost.edges = found->second.edges;
  }
  if (const auto edges = admitted_.find(name); edges != admitted_.end()) {
    cost.edges += edges->second;
  }
  return cost;
}

void GraphCosts::charge(std::uint64_t name, std::uint64_t nodes, std::uint64_t edges) {
  if (nodes == 0) return;
  charges_[name].nodes += nodes;
  charges_[name].edges += edges;
  nodes_ += nodes;
  edges_ += edges;
}

void GraphCosts::note_graph(std::uint64_t graph, const Cost& cost) {
  charge(graph, cost.total(), cost.edges);
  if (cost.hidden != 0) hidden_[graph] += cost.hidden;
}

void GraphCosts::note_child(std::uint64_t graph, std::uint64_t node, const Cost& cost) {
  note_nested();
  charge(node != 0 ? node : graph, cost.total(), cost.edges);
  if (cost.hidden != 0) hidden_[graph] += cost.hidden;
}

void GraphCosts::note_exec(std::uint64_t exec, const Cost& cost) {
  charge(exec, cost.total(), cost.edges);
  execs_[exec] = cost;
}

void GraphCosts::forget(std::uint64_t name) {
  hidden_.erase(name);
  execs_.erase(name);
  if (const auto edges = admitted_.find(name); edges != admitted_.end()) {
    edges_ -= edges->second;
    admitted_.erase(edges);
  }
  const auto found = charges_.find(name);
  if (found == charges_.end()) return;
  nodes_ -= found->second.nodes;
  edges_ -= found->second.edges;
  charges_.erase(found);
}

bool GraphCosts::note_captured(std::uint64_t nodes) {
  if (nodes > kNodesMax || !fits({.nodes = captured_ + nodes})) return false;
  captured_ += nodes;
  return true;
}

void GraphCosts::capture_ended(std::uint64_t graph, bool last) {
  std::size_t count = 0;
  const CUgraph native = graphs_.graph(graph);
  if (native != nullptr && driver_.cuGraphGetNodes(native, nullptr, &count) == CUDA_SUCCESS) {
    // No more than was given to streams: the others of a graph that was there have names.
    charge(graph, std::min<std::uint64_t>(count, captured_), 0);
  }
  if (last) captured_ = 0;
}

}  // namespace flyt::server
