#include "server/graphs/graph_builder.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "server/graphs/graph_node_params.h"
#include "server/graphs/graph_typed_nodes.h"
#include "server/lease/moves.h"
#include "server/session.h"

namespace flyt::server {

CUresult GraphBuilder::build(const GraphImage& image, CUgraph& graph) {
  CUresult result = driver_.cuGraphCreate(&graph, 0);
  if (result != CUDA_SUCCESS) return result;
  result = add_all(image, graph);
  if (result != CUDA_SUCCESS) driver_.cuGraphDestroy(graph);
  return result;
}

// Edges come last, because a node may depend on one that the driver lists behind it.
CUresult GraphBuilder::add_all(const GraphImage& image, CUgraph graph) {
  std::vector<CUgraphNode> nodes(image.nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const CUresult result = add(*image.nodes[i], graph, nodes[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  const CUresult result = add_edges(image, graph, nodes);
  if (result != CUDA_SUCCESS || nodes.empty()) return result;
  // By their order nodes are found.
  std::size_t count = nodes.size();
  std::vector<CUgraphNode> listed(count);
  const CUresult told = driver_.cuGraphGetNodes(graph, listed.data(), &count);
  if (told != CUDA_SUCCESS) return told;
  return listed == nodes ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult GraphBuilder::add_edges(const GraphImage& image, CUgraph graph,
                                 const std::vector<CUgraphNode>& nodes) {
  if (image.edges.empty()) return CUDA_SUCCESS;
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;
  std::vector<CUgraphEdgeData> data;
  for (const GraphImage::Edge& edge : image.edges) {
    from.push_back(nodes[edge.from]);
    to.push_back(nodes[edge.to]);
    data.push_back(edge.data);
  }
  if (driver_.cuGraphAddDependencies_v2 == nullptr) {
    return driver_.cuGraphAddDependencies(graph, from.data(), to.data(), from.size());
  }
  return driver_.cuGraphAddDependencies_v2(graph, from.data(), to.data(), data.data(), from.size());
}

CUresult GraphBuilder::add(const NodeImage& node, CUgraph graph, CUgraphNode& made) {
  if (node.child != nullptr) return add_child(node, graph, made);
  const auto given = std::make_unique<GraphNodeParams>();
  CUgraphNodeParams wanted = node.params;
  const bool part = request_.session().moves().part() != nullptr;
  if (wanted.type == CU_GRAPH_NODE_TYPE_KERNEL && wanted.kernel.kern != nullptr &&
      (part || wanted.kernel.func == nullptr)) {
    // By its own context, in which it stays on the multiprocessors of that.
    wanted.kernel.func = nullptr;
  }
  const CUresult bad = given->take(request_, bytes_at(&wanted, sizeof wanted), node.data);
  if (bad != CUDA_SUCCESS) return bad;
  given->name_context(request_);
  CUgraphNodeParams& params = given->native();
  const NewNode fresh{&made, graph, nullptr, nullptr, 0};
  const CUresult result = params.type == CU_GRAPH_NODE_TYPE_KERNEL
                              ? add_kernel(params, graph, made)
                              : add_typed_node(driver_, fresh, params);
  return result == CUDA_SUCCESS ? set_attributes(node, made) : result;
}

CUresult GraphBuilder::add_kernel(CUgraphNodeParams& params, CUgraph graph, CUgraphNode& made) {
  CUDA_KERNEL_NODE_PARAMS_v3& p = params.kernel;
  if (p.func != nullptr) p.kern = nullptr;
  if (p.func == nullptr || request_.session().moves().part() == nullptr) {
    return add_typed_node(driver_, {&made, graph, nullptr, nullptr, 0}, params);
  }
  return capture_.add(graph,
                      {p.func, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                       p.blockDimZ, p.sharedMemBytes, p.kernelParams, p.extra, nullptr, p.ctx},
                      made);
}

CUresult GraphBuilder::add_child(const NodeImage& node, CUgraph graph, CUgraphNode& made) {
  CUgraph child = nullptr;
  CUresult result = build(*node.child, child);
  if (result != CUDA_SUCCESS) return result;
  // The node has a copy of its own.
  result = driver_.cuGraphAddChildGraphNode(&made, graph, nullptr, 0, child);
  driver_.cuGraphDestroy(child);
  return result;
}

CUresult GraphBuilder::set_attributes(const NodeImage& node, CUgraphNode made) const {
  for (std::uint32_t i = 0; i < kNodeAttributes.size(); ++i) {
    if ((node.attributes_known & 1U << i) == 0) continue;
    CUkernelNodeAttrValue wanted{};
    for (const auto& [place, value] : node.attributes) {
      if (place == i) wanted = value;
    }
    CUkernelNodeAttrValue now{};
    if (driver_.cuGraphKernelNodeGetAttribute(made, kNodeAttributes[i], &now) == CUDA_SUCCESS &&
        std::memcmp(&now, &wanted, sizeof now) == 0) {
      continue;
    }
    const CUresult result =
        driver_.cuGraphKernelNodeSetAttribute(made, kNodeAttributes[i], &wanted);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

GraphImageRef with_natives(const driver::Table& driver, const GraphImage& image, CUgraph graph) {
  auto made = std::make_shared<GraphImage>(image);
  std::size_t count = image.nodes.size();
  made->native = graph;
  made->natives.resize(count);
  if (driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS ||
      count != image.nodes.size()) {
    return nullptr;
  }
  if (count != 0 && driver.cuGraphGetNodes(graph, made->natives.data(), &count) != CUDA_SUCCESS) {
    return nullptr;
  }
  for (std::size_t i = 0; i < count; ++i) {
    CUgraphNodeType type{};
    if (driver.cuGraphNodeGetType(made->natives[i], &type) != CUDA_SUCCESS ||
        type != image.nodes[i]->params.type) {
      return nullptr;
    }
    if (image.nodes[i]->child == nullptr) continue;
    CUgraph child = nullptr;
    if (driver.cuGraphChildGraphNodeGetGraph(made->natives[i], &child) != CUDA_SUCCESS) {
      return nullptr;
    }
    const auto around = std::make_shared<NodeImage>(*image.nodes[i]);
    around->child = with_natives(driver, *image.nodes[i]->child, child);
    if (around->child == nullptr) return nullptr;
    made->nodes[i] = around;
  }
  return made;
}

}  // namespace flyt::server
