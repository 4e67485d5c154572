#include "softgpu/graph.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "softgpu/user_object.h"

namespace flyt::softgpu {

CUgraphNodeType type_of(const Work& work) {
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,        CU_GRAPH_NODE_TYPE_KERNEL,
      CU_GRAPH_NODE_TYPE_MEMCPY,       CU_GRAPH_NODE_TYPE_MEMSET,
      CU_GRAPH_NODE_TYPE_HOST,         CU_GRAPH_NODE_TYPE_GRAPH,
      CU_GRAPH_NODE_TYPE_EVENT_RECORD, CU_GRAPH_NODE_TYPE_WAIT_EVENT,
      CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
      CU_GRAPH_NODE_TYPE_MEM_FREE,     CU_GRAPH_NODE_TYPE_CONDITIONAL};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  return kTypes[work.index()];
}

std::uint64_t context_of_work(const Work& work) {
  return std::visit(
      [](const auto& each) -> std::uint64_t {
        if constexpr (requires { each.context; }) return each.context;
        return 0;
      },
      work);
}

void rename_context(Work& work, std::uint64_t from, std::uint64_t to) {
  std::visit(
      [from, to](auto& each) {
        if constexpr (requires { each.context; }) {
          if (each.context == from) each.context = to;
        }
      },
      work);
}

bool allowed_in_body(const Work& work) {
  if (const auto* child = std::get_if<ChildWork>(&work)) {
    bool good = true;
    child->graph->each([&good](const GraphNode& node) {
      good = good && (std::holds_alternative<ChildWork>(node.work) || allowed_in_body(node.work));
    });
    return good;
  }
  if (const auto* copy = std::get_if<CopyWork>(&work)) {
    return copy->params.srcMemoryType != CU_MEMORYTYPE_HOST &&
           copy->params.dstMemoryType != CU_MEMORYTYPE_HOST;
  }
  return std::holds_alternative<EmptyWork>(work) || std::holds_alternative<KernelWork>(work) ||
         std::holds_alternative<FillWork>(work) || std::holds_alternative<ConditionalWork>(work);
}

bool operator==(const CUgraphEdgeData& a, const CUgraphEdgeData& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

std::shared_ptr<Graph> Graph::make(Driver* driver) {
  std::shared_ptr<Graph> graph = std::unique_ptr<Graph>(new Graph(driver));
  if (driver != nullptr) graph->handle_ = driver->graphs().graphs().add(graph);
  return graph;
}

Graph::~Graph() {
  if (driver_ != nullptr) {
    for (const auto& node : nodes_) driver_->graphs().nodes().take(node->handle);
  }
  for (const auto& [object, count] : objects_) object->release(count);
}

void forget_graphs(Driver& driver, const Work& work) {
  const auto forget = [&driver](const Graph& graph) {
    graph.forget_children(driver);
    driver.graphs().graphs().take(graph.handle());
  };
  if (const auto* child = std::get_if<ChildWork>(&work)) forget(*child->graph);
  if (const auto* conditional = std::get_if<ConditionalWork>(&work)) {
    for (const auto& body : conditional->bodies) forget(*body);
  }
}

void Graph::forget_children(Driver& driver) const {
  for (const auto& node : nodes_) forget_graphs(driver, node->work);
}

GraphNode& Graph::add(Work work, std::span<const Edge> dependencies) {
  auto node = std::make_shared<GraphNode>();
  node->graph = this;
  node->work = std::move(work);
  for (const Edge& edge : dependencies) connect(*edge.node, *node, edge.data);
  if (driver_ != nullptr) node->handle = driver_->graphs().nodes().add(node);
  nodes_.push_back(node);
  return *node;
}

void Graph::remove(GraphNode& node) {
  for (const Edge& edge : node.dependencies) {
    std::erase_if(edge.node->dependents, [&](const Edge& e) { return e.node == &node; });
  }
  for (const Edge& edge : node.dependents) {
    std::erase_if(edge.node->dependencies, [&](const Edge& e) { return e.node == &node; });
  }
  if (driver_ != nullptr) driver_->graphs().nodes().take(node.handle);
  std::erase_if(nodes_, [&](const auto& each) { return each.get() == &node; });
}

void Graph::connect(GraphNode& from, GraphNode& to, const CUgraphEdgeData& data) {
  from.dependents.push_back({&to, data});
  to.dependencies.push_back({&from, data});
}

void Graph::disconnect(GraphNode& from, GraphNode& to) {
  std::erase_if(from.dependents, [&](const Edge& e) { return e.node == &to; });
  std::erase_if(to.dependencies, [&](const Edge& e) { return e.node == &from; });
}

bool Graph::connected(const GraphNode& from, const GraphNode& to) {
  return std::any_of(from.dependents.begin(), from.dependents.end(),
                     [&](const Edge& e) { return e.node == &to; });
}

Work Graph::clone_work(const Work& work, Driver* driver) {
  Work copy = work;
  if (auto* child = std::get_if<ChildWork>(&copy)) {
    child->graph = child->graph->clone(driver);
    child->graph->set_owned();
  }
  if (auto* conditional = std::get_if<ConditionalWork>(&copy)) {
    conditional->told.clear();
    for (auto& body : conditional->bodies) {
      body = body->clone(driver);
      body->set_owned();
      body->set_body(0);
      conditional->told.push_back(to_handle<CUgraph>(body->handle()));
    }
  }
  return copy;
}

std::shared_ptr<Graph> Graph::clone(Driver* driver) const {
  auto copy = make(driver);
  copy->origin_ = handle_;
  copy->conditionals_ = conditionals_;
  // An executable graph counts as one of the graph that it was made from.
  if (driver == nullptr) copy->instances = instances;
  std::unordered_map<const GraphNode*, GraphNode*> twins;
  for (const auto& node : nodes_) {
    GraphNode& twin = copy->add(clone_work(node->work, driver), {});
    twin.origin = node->handle;
    twin.enabled = node->enabled;
    if (driver == nullptr) twin.handle = node->handle;
    twins[node.get()] = &twin;
  }
  for (const auto& node : nodes_) {
    GraphNode& twin = *twins[node.get()];
    for (const Edge& edge : node->dependencies) {
      twin.dependencies.push_back({twins[edge.node], edge.data});
    }
    for (const Edge& edge : node->dependents) {
      twin.dependents.push_back({twins[edge.node], edge.data});
    }
  }
  copy->take_objects(*this);
  return copy;
}

void Graph::hold(const std::shared_ptr<UserObject>& object, std::uint64_t count) {
  objects_[object] += count;
}

bool Graph::let_go(const std::shared_ptr<UserObject>& object, std::uint64_t count) {
  const auto found = objects_.find(object);
  if (found == objects_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) objects_.erase(found);
  return object->release(count);
}

void Graph::take_objects(const Graph& other) {
  for (const auto& [object, count] : other.objects_) object->retain(count);
  for (const auto& [object, count] : objects_) object->release(count);
  objects_ = other.objects_;
}

std::vector<GraphNode*> Graph::order() const {
  std::unordered_map<const GraphNode*, std::size_t> waiting;
  std::vector<GraphNode*> sorted;
  for (const auto& node : nodes_) {
    waiting[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) sorted.push_back(node.get());
  }
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    for (const Edge& edge : sorted[i]->dependents) {
      if (--waiting[edge.node] == 0) sorted.push_back(edge.node);
    }
  }
  return sorted;
}

bool Graph::has_memory() const {
  bool found = false;
  each([&found](const GraphNode& node) {
    found = found || std::holds_alternative<AllocWork>(node.work) ||
            std::holds_alternative<FreeWork>(node.work);
  });
  return found;
}

bool Graph::has_conditionals() const {
  bool found = false;
  each([&found](const GraphNode& node) {
    found = found || std::holds_alternative<ConditionalWork>(node.work);
  });
  return found;
}

}  // namespace flyt::softgpu
