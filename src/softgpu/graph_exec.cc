#include "softgpu/graph_exec.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace flyt::softgpu {
namespace {

// The handle of a node on a cycle of the graph or of one within it; 0: there is none.
std::uint64_t find_cycle(const Graph& graph) {
  const std::vector<GraphNode*> order = graph.order();
  if (order.size() != graph.nodes().size()) {
    for (const auto& node : graph.nodes()) {
      if (std::find(order.begin(), order.end(), node.get()) == order.end()) return node->handle;
    }
  }
  for (const auto& node : graph.nodes()) {
    std::uint64_t found = 0;
    if (const auto* child = std::get_if<ChildWork>(&node->work)) found = find_cycle(*child->graph);
    if (const auto* conditional = std::get_if<ConditionalWork>(&node->work)) {
      for (const auto& body : conditional->bodies) found = std::max(found, find_cycle(*body));
    }
    if (found != 0) return found;
  }
  return 0;
}

// Every conditional handle belongs to exactly one node.
bool conditionals_used_once(const Graph& graph) {
  std::map<std::uint64_t, unsigned> uses;
  for (const auto& [handle, conditional] : graph.conditionals()) uses[handle] = 0;
  const auto note = [&uses](const Graph& inner) {
    for (const auto& [handle, conditional] : inner.conditionals()) uses.try_emplace(handle, 0);
  };
  graph.each([&](const GraphNode& node) {
    if (const auto* child = std::get_if<ChildWork>(&node.work)) note(*child->graph);
    if (const auto* work = std::get_if<ConditionalWork>(&node.work)) {
      ++uses[work->handle];
      for (const auto& body : work->bodies) note(*body);
    }
  });
  return std::all_of(uses.begin(), uses.end(), [](const auto& use) { return use.second == 1; });
}

// The handle of a node that no body of a conditional node may have; 0: there is none.
std::uint64_t find_misplaced(const Graph& graph) {
  std::uint64_t found = 0;
  graph.each([&found](const GraphNode& node) {
    const auto* work = std::get_if<ConditionalWork>(&node.work);
    if (work == nullptr) return;
    for (const auto& body : work->bodies) {
      for (const auto& inner : body->nodes()) {
        if (!allowed_in_body(inner->work)) found = inner->handle;
      }
    }
  });
  return found;
}

}  // namespace

GraphExec::GraphExec(std::shared_ptr<Graph> graph, std::uint64_t flags, std::uint64_t home)
    : graph_(std::move(graph)), flags_(flags), home_(home) {
  graph_->each([this](GraphNode& node) { nodes_[node.handle] = &node; });
  ++*graph_->instances;
}

GraphExec::~GraphExec() { --*graph_->instances; }

CUresult GraphExec::make(const Graph& graph, std::uint64_t flags, std::uint64_t home,
                         std::shared_ptr<GraphExec>* out, std::uint64_t* error_node,
                         CUgraphInstantiateResult* result) {
  *error_node = 0;
  if (const std::uint64_t node = find_cycle(graph); node != 0) {
    *error_node = node;
    *result = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!conditionals_used_once(graph)) {
    *result = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const std::uint64_t node = find_misplaced(graph); node != 0) {
    *error_node = node;
    *result = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (graph.is_single() && *graph.instances != 0) {
    *result = CUDA_GRAPH_INSTANTIATE_ERROR;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *out = std::unique_ptr<GraphExec>(new GraphExec(graph.clone(nullptr), flags, home));
  *result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return CUDA_SUCCESS;
}

GraphNode* GraphExec::node(std::uint64_t handle) const {
  const auto found = nodes_.find(handle);
  return found == nodes_.end() ? nullptr : found->second;
}

bool GraphExec::belongs_to(std::uint64_t context) const {
  bool names_it = false;
  bool names_any = false;
  graph_->each([&](const GraphNode& node) {
    const std::uint64_t named = context_of_work(node.work);
    names_it = names_it || named == context;
    names_any = names_any || named != 0;
  });
  return names_any ? names_it : home_ == context;
}

const std::shared_ptr<const GraphPlan>& GraphExec::plan() {
  if (plan_ == nullptr) plan_ = GraphPlan::make(*graph_);
  return plan_;
}

CUresult GraphExec::back_memory() {
  for (const auto& allocation : plan()->allocations()) {
    if (!allocation->memory().back({allocation})) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult GraphExec::claim_memory(Driver& driver, std::vector<std::uint64_t>& free_first) {
  const auto& frees = plan()->frees();
  const auto freed = [&frees](const GraphAllocation& allocation) {
    return std::count(frees.begin(), frees.end(), allocation.address()) != 0;
  };
  for (const auto& each : plan()->allocations()) {
    if (!each->memory().claimed(*each)) continue;
    // What an earlier launch left is in the way, unless this one shall free it.
    if ((flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    free_first.push_back(each->address());
  }
  if (const CUresult bad = back_memory(); bad != CUDA_SUCCESS) return bad;
  for (const auto& each : plan()->allocations()) {
    if (freed(*each)) {
      each->memory().unclaim(each->address());
    } else {
      each->memory().claim(*each);
    }
    each->memory().begin_launch({each});
  }
  // It may free what other graphs left, too.
  for (const std::uint64_t address : frees) driver.unclaim_graph_memory(address);
  return CUDA_SUCCESS;
}

CUresult GraphExec::launch(Driver& driver, const std::shared_ptr<Context>& context,
                           Stream& stream) {
  std::map<std::uint64_t, std::shared_ptr<Context>> contexts;
  for (const std::uint64_t handle : plan()->contexts()) {
    auto found = driver.contexts().find(handle);
    if (found == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (const CUresult bad = found->fate()->error(); bad != CUDA_SUCCESS) return bad;
    contexts[handle] = std::move(found);
  }
  std::vector<std::uint64_t> free_first;
  if (const CUresult bad = claim_memory(driver, free_first); bad != CUDA_SUCCESS) return bad;
  const auto run = std::make_shared<GraphRun>(driver, plan(), context, std::move(contexts));
  // What the program gave the graph stays until the launch is done, whoever destroys the graph.
  run->keep(graph_);
  run->free_first(std::move(free_first));
  Operation operation{[run](CUresult) { run->run(); }, {}, true};
  // One executable graph runs once at a time, whatever streams it is launched into.
  if (!last_launch_.reached()) operation.after.push_back(last_launch_);
  last_launch_ = context->submit(stream, std::move(operation));
  return CUDA_SUCCESS;
}

void end_graphs(Driver& driver, const Context& context) {
  GraphStore& graphs = driver.graphs();
  const Lock lock(graphs.mutex());
  const std::uint64_t handle = context.handle();
  graphs.execs().each([handle](GraphExec& exec) {
    if (exec.belongs_to(handle)) exec.end();
  });
  // Only a primary context has a successor under its handle.
  if (!context.primary()) return;
  const std::uint64_t gone = driver.contexts().reserve();
  graphs.graphs().each([handle, gone](Graph& graph) {
    graph.each([handle, gone](GraphNode& node) { rename_context(node.work, handle, gone); });
  });
}

}  // namespace flyt::softgpu
