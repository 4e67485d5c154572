#include "server/graphs/graph_reading.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "commands/graph.h"
#include "server/graphs/graph_node_params.h"
#include "server/graphs/graphs.h"
#include "server/session.h"

namespace flyt::server {
namespace {

constexpr unsigned kDepthMax = 32;

bool is_zero(const CUkernelNodeAttrValue& value) {
  const CUkernelNodeAttrValue zero{};
  return std::memcmp(&value, &zero, sizeof zero) == 0;
}

// Whom to blame for a node that only the driver can make; 0: nobody.
std::uint16_t blame_for(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return commands::CaptureAllocation::kOp;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return commands::CreateConditional::kOp;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return commands::AddGraphNode::kOp;
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      break;
  }
  return 0;
}

}  // namespace

GraphImageRef GraphReading::read(CUgraph graph, std::uint32_t context, NodeImages& known,
                                 std::uint16_t& blame) {
  blame = commands::CreateGraph::kOp;
  context_ = static_cast<CUcontext>(
      pointer_at(session_.handles().handle_at(wire::HandleKind::kContext, context)));
  return read_all(graph, 0, known, blame);
}

GraphImageRef GraphReading::read_all(CUgraph graph, unsigned depth, NodeImages& known,
                                     std::uint16_t& blame) {
  const driver::Table& driver = session_.driver();
  auto image = std::make_shared<GraphImage>();
  image->native = graph;
  std::size_t count = 0;
  if (depth > kDepthMax || driver.cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS) {
    return nullptr;
  }
  image->natives.resize(count);
  if (count != 0 && driver.cuGraphGetNodes(graph, image->natives.data(), &count) != CUDA_SUCCESS) {
    return nullptr;
  }
  for (const CUgraphNode node : image->natives) {
    auto& own = known[node];
    // What a child does may have been changed by its own handles.
    if (own == nullptr || own->child != nullptr) {
      CUgraphNodeType type{};
      if (driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return nullptr;
      if (const std::uint16_t whom = blame_for(type); whom != 0) {
        blame = whom;
        return nullptr;
      }
      // The map may grow meanwhile.
      auto fresh = type == CU_GRAPH_NODE_TYPE_GRAPH ? read_child(node, depth, known, blame)
                                                    : read_node(node, type);
      if (fresh == nullptr) return nullptr;
      image->nodes.push_back(fresh);
      known[node] = std::move(fresh);
      continue;
    }
    image->nodes.push_back(own);
  }
  return read_edges(*image) ? image : nullptr;
}

std::shared_ptr<const NodeImage> GraphReading::read_child(CUgraphNode node, unsigned depth,
                                                          NodeImages& known, std::uint16_t& blame) {
  CUgraph child = nullptr;
  if (session_.driver().cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS) {
    return nullptr;
  }
  const auto image = std::make_shared<NodeImage>();
  image->params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  image->child = read_all(child, depth + 1, known, blame);
  if (image->child == nullptr) return nullptr;
  return session_.graphs().records().budget().count(image);
}

std::shared_ptr<const NodeImage> GraphReading::read_node(CUgraphNode node, CUgraphNodeType type) {
  if (!names_) names_.emplace(session_);
  auto image = std::make_shared<NodeImage>();
  CUgraphNodeParams& params = image->params;
  params.type = type;
  if (type != CU_GRAPH_NODE_TYPE_EMPTY &&
      describe_node(session_, *names_, node, static_cast<std::int32_t>(type), params,
                    image->data) != CUDA_SUCCESS) {
    return nullptr;
  }
  const auto stay = [this](CUcontext& context) {
    if (context == nullptr) context = context_;
  };
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    stay(params.kernel.ctx);
    if (params.kernel.func == nullptr && params.kernel.kern == nullptr) return nullptr;
    read_attributes(node, *image);
  }
  if (type == CU_GRAPH_NODE_TYPE_MEMCPY) stay(params.memcpy.copyCtx);
  if (type == CU_GRAPH_NODE_TYPE_MEMSET) stay(params.memset.ctx);
  if (type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) stay(params.memOp.ctx);
  return session_.graphs().records().budget().count(std::move(image));
}

void GraphReading::read_attributes(CUgraphNode node, NodeImage& image) const {
  for (std::uint32_t i = 0; i < kNodeAttributes.size(); ++i) {
    CUkernelNodeAttrValue value{};
    if (session_.driver().cuGraphKernelNodeGetAttribute(node, kNodeAttributes[i], &value) !=
        CUDA_SUCCESS) {
      continue;
    }
    image.attributes_known |= 1U << i;
    if (!is_zero(value)) image.attributes.emplace_back(i, value);
  }
}

bool GraphReading::read_edges(GraphImage& image) const {
  const driver::Table& driver = session_.driver();
  const bool with_data = driver.cuGraphGetEdges_v2 != nullptr;
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;
  std::vector<CUgraphEdgeData> data;
  std::size_t count = 0;
  const auto ask = [&](bool all) {
    CUgraphNode* const begin = all ? from.data() : nullptr;
    CUgraphNode* const end = all ? to.data() : nullptr;
    return with_data ? driver.cuGraphGetEdges_v2(image.native, begin, end,
                                                 all ? data.data() : nullptr, &count)
                     : driver.cuGraphGetEdges(image.native, begin, end, &count);
  };
  if (ask(false) != CUDA_SUCCESS) return false;
  from.resize(count);
  to.resize(count);
  data.resize(count);
  if (count == 0) return true;
  if (ask(true) != CUDA_SUCCESS) return false;
  std::unordered_map<CUgraphNode, std::uint32_t> places;
  for (std::uint32_t i = 0; i < image.natives.size(); ++i) places[image.natives[i]] = i;
  for (std::size_t i = 0; i < count; ++i) {
    image.edges.push_back({places[from[i]], places[to[i]], data[i]});
  }
  return true;
}

}  // namespace flyt::server
