#include "server/graphs/graph_copy.h"

#include <algorithm>

#include "server/graphs/graph_rebuild.h"

namespace flyt::server {
namespace {

constexpr unsigned kDepthMax = 32;

}  // namespace

std::shared_ptr<GraphCopy> GraphCopy::make(const driver::Table& driver, CUgraph original) {
  CUgraph graph = nullptr;
  if (driver.cuGraphClone(&graph, original) != CUDA_SUCCESS) return nullptr;
  return take(driver, graph);
}

std::shared_ptr<GraphCopy> GraphCopy::take(const driver::Table& driver, CUgraph graph) {
  auto copy = std::make_shared<GraphCopy>(driver, graph);
  return copy->list(graph, 0) ? copy : nullptr;
}

GraphCopy::~GraphCopy() { driver_.cuGraphDestroy(graph_); }

// Bodies of conditional nodes cannot be found again.
bool GraphCopy::list(CUgraph graph, unsigned depth) {
  std::size_t count = 0;
  if (depth > kDepthMax || driver_.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return false;
  }
  std::vector<CUgraphNode> own(count);
  if (count != 0 && driver_.cuGraphGetNodes(graph, own.data(), &count) != CUDA_SUCCESS) {
    return false;
  }
  for (CUgraphNode node : own) {
    Node& listed = nodes_.emplace_back(Node{node, {}});
    if (driver_.cuGraphNodeGetType(node, &listed.type) != CUDA_SUCCESS) return false;
    if (listed.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return false;
    if (listed.type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    CUgraph child = nullptr;
    if (driver_.cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS ||
        !list(child, depth + 1)) {
      return false;
    }
  }
  return true;
}

std::vector<std::pair<std::size_t, std::size_t>> GraphCopy::edges() const {
  std::unordered_map<CUgraphNode, std::size_t> numbers;
  for (std::size_t i = 0; i < nodes_.size(); ++i) numbers[nodes_[i].node] = i;
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    GraphEdgesBefore before;
    static_cast<void>(before.ask(driver_, nodes_[i].node));
    for (CUgraphNode node : before.nodes) found.emplace_back(i, numbers[node]);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<std::size_t> GraphCopy::number_of(CUgraphNode node) {
  for (std::size_t i = numbers_.size(); i < nodes_.size(); ++i) numbers_[nodes_[i].node] = i;
  const auto found = numbers_.find(node);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

bool GraphCopy::same_shape(const GraphCopy& other) const {
  return std::equal(nodes_.begin(), nodes_.end(), other.nodes_.begin(), other.nodes_.end(),
                    [](const Node& a, const Node& b) { return a.type == b.type; }) &&
         edges() == other.edges();
}

bool GraphCopy::has_functions() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
    return node.type == CU_GRAPH_NODE_TYPE_KERNEL &&
           driver_.cuGraphKernelNodeGetParams_v2(node.node, &kernel) == CUDA_SUCCESS &&
           kernel.kern == nullptr;
  });
}

// A kernel of a library runs where its node's context says, if no function is named beside. A
// function runs where it was captured, so such graphs are put together anew.
std::shared_ptr<GraphCopy> GraphCopy::moved(const SmPart& part, bool& all) const {
  all = true;
  CUgraph graph = nullptr;
  CUresult result = driver_.cuCtxSetCurrent(part.context);
  if (result != CUDA_SUCCESS) return nullptr;
  if (!has_functions()) {
    auto copy = make(driver_, graph_);
    return copy != nullptr && copy->move_to(part, all) == CUDA_SUCCESS ? copy : nullptr;
  }
  result = GraphRebuild(driver_, part).rebuild(graph_, graph);
  if (result != CUDA_SUCCESS) return nullptr;
  auto copy = take(driver_, graph);
  return copy != nullptr && copy->size() == size() ? copy : nullptr;
}

CUresult GraphCopy::move_to(const SmPart& part, bool& all) {
  CUresult result = CUDA_SUCCESS;
  for (const Node& node : nodes_) {
    if (result != CUDA_SUCCESS) break;
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) result = move_kernel(node.node, part);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) all = move_fill(node.node, part) && all;
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) all = move_copy(node.node, part) && all;
    if (node.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) all = false;
  }
  return result;
}

CUresult GraphCopy::move_kernel(CUgraphNode node, const SmPart& part) const {
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  const CUresult result = driver_.cuGraphKernelNodeGetParams_v2(node, &kernel);
  if (result != CUDA_SUCCESS) return result;
  kernel.func = nullptr;
  kernel.ctx = part.context;
  return driver_.cuGraphKernelNodeSetParams_v2(node, &kernel);
}

// Where that fails it runs where it did, which changes no result.
bool GraphCopy::move_fill(CUgraphNode node, const SmPart& part) const {
  CUDA_MEMSET_NODE_PARAMS_v1 told{};
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  if (driver_.cuGraphNodeSetParams == nullptr ||
      driver_.cuGraphMemsetNodeGetParams(node, &told) != CUDA_SUCCESS) {
    return false;
  }
  params.memset = {told.dst,   told.pitch,  told.value,  told.elementSize,
                   told.width, told.height, part.context};
  return driver_.cuGraphNodeSetParams(node, &params) == CUDA_SUCCESS;
}

bool GraphCopy::move_copy(CUgraphNode node, const SmPart& part) const {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  if (driver_.cuGraphNodeSetParams == nullptr ||
      driver_.cuGraphMemcpyNodeGetParams(node, &params.memcpy.copyParams) != CUDA_SUCCESS) {
    return false;
  }
  params.memcpy.copyCtx = part.context;
  return driver_.cuGraphNodeSetParams(node, &params) == CUDA_SUCCESS;
}

}  // namespace flyt::server
