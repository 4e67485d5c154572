#include "server/graph_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace flyt::server {
namespace {

constexpr unsigned kDepthMax = 32;

struct Neighbours {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};

template <class Ask>
CUresult ask_neighbours(Ask ask, CUgraphNode node, Neighbours& out) {
  std::size_t count = 0;
  CUresult result = ask(node, nullptr, nullptr, &count);
  out.nodes.resize(count);
  out.edges.resize(count);
  if (result != CUDA_SUCCESS || count == 0) return result;
  return ask(node, out.nodes.data(), out.edges.data(), &count);
}

// What a node has beyond its parameters.
void copy_attributes(const driver::Table& driver, CUgraphNode to, CUgraphNode from) {
  constexpr std::array kAttributes = {CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                                      CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                      CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                      CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                                      CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                      CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
                                      CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
                                      CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                                      CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};
  for (const CUkernelNodeAttrID attribute : kAttributes) {
    CUkernelNodeAttrValue old{};
    CUkernelNodeAttrValue fresh{};
    if (driver.cuGraphKernelNodeGetAttribute(from, attribute, &old) != CUDA_SUCCESS) continue;
    driver.cuGraphKernelNodeGetAttribute(to, attribute, &fresh);
    if (std::memcmp(&old, &fresh, sizeof old) == 0) continue;
    driver.cuGraphKernelNodeSetAttribute(to, attribute, &old);
  }
}

}  // namespace

std::shared_ptr<GraphCopy> GraphCopy::make(const driver::Table& driver, CUgraph original) {
  CUgraph graph = nullptr;
  if (driver.cuGraphClone(&graph, original) != CUDA_SUCCESS) return nullptr;
  auto copy = std::make_shared<GraphCopy>(driver, graph);
  return copy->list(graph, 0) ? copy : nullptr;
}

GraphCopy::~GraphCopy() {
  if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  driver_.cuGraphDestroy(graph_);
}

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
    Node& listed = nodes_.emplace_back(Node{node, graph, {}});
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
    Neighbours before;
    static_cast<void>(
        ask_neighbours(driver_.cuGraphNodeGetDependencies_v2, nodes_[i].node, before));
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

CUresult GraphCopy::move_to(const SmPart& part, bool& all) {
  all = true;
  CUresult result = driver_.cuCtxSetCurrent(part.context);
  for (Node& node : nodes_) {
    if (result != CUDA_SUCCESS) break;
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL) result = move_kernel(node, part);
    if (node.type == CU_GRAPH_NODE_TYPE_MEMSET) all = move_fill(node, part) && all;
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY) all = move_copy(node, part) && all;
    if (node.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) all = false;
  }
  if (CUstream stream = std::exchange(stream_, nullptr)) driver_.cuStreamDestroy_v2(stream);
  return result;
}

// A kernel of a library runs where its node's context says, if no function is named beside. A
// function runs where it was captured.
CUresult GraphCopy::move_kernel(Node& node, const SmPart& part) {
  CUDA_KERNEL_NODE_PARAMS_v2 kernel{};
  const CUresult result = driver_.cuGraphKernelNodeGetParams_v2(node.node, &kernel);
  if (result != CUDA_SUCCESS) return result;
  if (kernel.kern == nullptr) return capture_again(node, kernel);
  kernel.func = nullptr;
  kernel.ctx = part.context;
  return driver_.cuGraphKernelNodeSetParams_v2(node.node, &kernel);
}

CUresult GraphCopy::capture_again(Node& node, const CUDA_KERNEL_NODE_PARAMS_v2& kernel) {
  if (driver_.cuStreamBeginCaptureToGraph == nullptr ||
      driver_.cuGraphNodeGetDependencies_v2 == nullptr ||
      driver_.cuGraphNodeGetDependentNodes_v2 == nullptr) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Neighbours before;
  CUresult result = ask_neighbours(driver_.cuGraphNodeGetDependencies_v2, node.node, before);
  if (result == CUDA_SUCCESS && stream_ == nullptr) {
    result = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  }
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuStreamBeginCaptureToGraph(stream_, node.graph, before.nodes.data(),
                                               before.edges.data(), before.nodes.size(),
                                               CU_STREAM_CAPTURE_MODE_RELAXED);
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuLaunchKernel(kernel.func, kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ,
                                  kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ,
                                  kernel.sharedMemBytes, stream_, kernel.kernelParams,
                                  kernel.kernelParams == nullptr ? kernel.extra : nullptr);
  CUgraphNode fresh = nullptr;
  CUstreamCaptureStatus status{};
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  if (result == CUDA_SUCCESS) {
    result = driver_.cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, nullptr, &last, &count);
  }
  if (result == CUDA_SUCCESS && count == 1) fresh = *last;
  CUgraph into = nullptr;
  const CUresult ended = driver_.cuStreamEndCapture(stream_, &into);
  if (result == CUDA_SUCCESS) result = ended;
  if (result == CUDA_SUCCESS && fresh == nullptr) result = CUDA_ERROR_UNKNOWN;
  return result == CUDA_SUCCESS ? replace(node, fresh) : result;
}

CUresult GraphCopy::replace(Node& node, CUgraphNode fresh) const {
  copy_attributes(driver_, fresh, node.node);
  Neighbours behind;
  CUresult result = ask_neighbours(driver_.cuGraphNodeGetDependentNodes_v2, node.node, behind);
  const std::vector<CUgraphNode> from(behind.nodes.size(), fresh);
  if (result == CUDA_SUCCESS && !from.empty()) {
    result = driver_.cuGraphAddDependencies_v2(node.graph, from.data(), behind.nodes.data(),
                                               behind.edges.data(), from.size());
  }
  if (result == CUDA_SUCCESS) result = driver_.cuGraphDestroyNode(node.node);
  node.node = fresh;
  return result;
}

// Where that fails it runs where it did, which changes no result.
bool GraphCopy::move_fill(const Node& node, const SmPart& part) const {
  CUDA_MEMSET_NODE_PARAMS_v1 told{};
  CUgraphNodeParams params{};
  params.type = node.type;
  if (driver_.cuGraphNodeSetParams == nullptr ||
      driver_.cuGraphMemsetNodeGetParams(node.node, &told) != CUDA_SUCCESS) {
    return false;
  }
  params.memset = {told.dst,   told.pitch,  told.value,  told.elementSize,
                   told.width, told.height, part.context};
  return driver_.cuGraphNodeSetParams(node.node, &params) == CUDA_SUCCESS;
}

bool GraphCopy::move_copy(const Node& node, const SmPart& part) const {
  CUgraphNodeParams params{};
  params.type = node.type;
  if (driver_.cuGraphNodeSetParams == nullptr ||
      driver_.cuGraphMemcpyNodeGetParams(node.node, &params.memcpy.copyParams) != CUDA_SUCCESS) {
    return false;
  }
  params.memcpy.copyCtx = part.context;
  return driver_.cuGraphNodeSetParams(node.node, &params) == CUDA_SUCCESS;
}

}  // namespace flyt::server
