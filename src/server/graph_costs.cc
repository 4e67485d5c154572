#include "server/graph_costs.h"

#include <algorithm>
#include <vector>

#include "server/graphs.h"

namespace flyt::server {

std::optional<GraphCosts::Cost> GraphCosts::of_copy(CUgraph graph) const {
  Cost cost;
  if (!add(graph, 0, cost)) return std::nullopt;
  return cost;
}

std::optional<GraphCosts::Cost> GraphCosts::of_exec(std::uint64_t exec) const {
  const auto found = execs_.find(exec);
  const Cost cost = found == execs_.end() ? Cost{} : found->second;
  return fits(cost.total()) ? std::optional(cost) : std::nullopt;
}

// False as soon as it is too much, so that nobody looks at all of that.
bool GraphCosts::add(CUgraph graph, unsigned depth, Cost& cost) const {
  std::size_t count = 0;
  if (depth > kDepthMax || driver_.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return false;
  }
  cost.nodes += count;
  const auto hidden = hidden_.find(graphs_.name_of(graph));
  if (hidden != hidden_.end()) cost.hidden += hidden->second;
  if (!fits(cost.total())) return false;
  if (!nested_ || count == 0) return true;
  std::vector<CUgraphNode> nodes(count);
  if (driver_.cuGraphGetNodes(graph, nodes.data(), &count) != CUDA_SUCCESS) return false;
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](CUgraphNode node) { return add_inner(node, depth, cost); });
}

bool GraphCosts::add_inner(CUgraphNode node, unsigned depth, Cost& cost) const {
  CUgraphNodeType type{};
  if (driver_.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return false;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    return driver_.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
           add(child, depth + 1, cost);
  }
  if (type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return true;
  for (const std::uint64_t body : graphs_.graphs_in(graphs_.name_of(node))) {
    Cost inner;
    if (!add(graphs_.graph(body), depth + 1, inner)) return false;
    cost.hidden += inner.total();
  }
  return fits(cost.total());
}

void GraphCosts::charge(std::uint64_t name, std::uint64_t nodes) {
  if (nodes == 0) return;
  charges_[name] += nodes;
  nodes_ += nodes;
}

void GraphCosts::note_graph(std::uint64_t graph, const Cost& cost) {
  charge(graph, cost.total());
  if (cost.hidden != 0) hidden_[graph] += cost.hidden;
}

void GraphCosts::note_child(std::uint64_t graph, std::uint64_t node, const Cost& cost) {
  note_nested();
  charge(node != 0 ? node : graph, cost.total());
  if (cost.hidden != 0) hidden_[graph] += cost.hidden;
}

void GraphCosts::note_exec(std::uint64_t exec, const Cost& cost) {
  charge(exec, cost.total());
  execs_[exec] = cost;
}

void GraphCosts::forget(std::uint64_t name) {
  hidden_.erase(name);
  execs_.erase(name);
  const auto found = charges_.find(name);
  if (found == charges_.end()) return;
  nodes_ -= found->second;
  charges_.erase(found);
}

bool GraphCosts::note_captured() {
  ++captured_;
  return fits(captured_);
}

void GraphCosts::capture_ended(std::uint64_t graph, bool last) {
  std::size_t count = 0;
  const CUgraph native = graphs_.graph(graph);
  if (native != nullptr && driver_.cuGraphGetNodes(native, nullptr, &count) == CUDA_SUCCESS) {
    // No more than was given to streams: the others of a graph that was there have names.
    charge(graph, std::min<std::uint64_t>(count, captured_));
  }
  if (last) captured_ = 0;
}

}  // namespace flyt::server
