#include "server/graphs/graph_image.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace flyt::server {
namespace {

constexpr unsigned kDepthMax = 32;
// Of the node without what varies: parameters, name, sizes.
constexpr std::size_t kNodeBytesMin = sizeof(CUgraphNodeParams) + 32;
constexpr std::size_t kEdgeBytes = 16;

CUcontext* context_in(CUgraphNodeParams& params) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return &params.kernel.ctx;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return &params.memcpy.copyCtx;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return &params.memset.ctx;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return &params.memOp.ctx;
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      break;
  }
  return nullptr;
}

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  const Bytes bytes = bytes_at(&value, sizeof value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

void write_node(const NodeImage& node, std::uint64_t name, std::vector<std::byte>& out) {
  append(out, node.params);
  append(out, name);
  append(out, static_cast<std::uint64_t>(node.data.size()));
  append(out, node.attributes_known);
  append(out, static_cast<std::uint32_t>(node.attributes.size()));
  append(out, static_cast<std::uint64_t>(node.child != nullptr ? 1 : 0));
  out.insert(out.end(), node.data.begin(), node.data.end());
  out.resize(padded(out.size()));
  for (const auto& [place, value] : node.attributes) {
    append(out, static_cast<std::uint64_t>(place));
    append(out, value);
  }
}

Result<GraphImageRef> read_graph(Reader& reader, unsigned depth);

bool read_node(Reader& reader, unsigned depth, NodeImage& node, std::uint64_t& name) {
  const Bytes params = reader.take_bytes(sizeof node.params);
  name = reader.take<std::uint64_t>();
  const auto data_bytes = reader.take<std::uint64_t>();
  node.attributes_known = reader.take<std::uint32_t>();
  const auto attributes = reader.take<std::uint32_t>();
  const auto child = reader.take<std::uint64_t>();
  std::uint32_t type = 0;
  if (!reader.ok()) return false;
  std::memcpy(&type, params.data(), sizeof type);
  if (type > CU_GRAPH_NODE_TYPE_CONDITIONAL) return false;
  std::memcpy(static_cast<void*>(&node.params), params.data(), params.size());
  if (data_bytes > kNodeDataBytesMax || attributes > kNodeAttributes.size() || child > 1)
    return false;
  const Bytes data = reader.take_bytes(padded(data_bytes));
  if (!reader.ok()) return false;
  node.data.assign(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(data_bytes));
  for (std::uint32_t i = 0; i < attributes; ++i) {
    const auto place = reader.take<std::uint64_t>();
    const auto value = reader.take<CUkernelNodeAttrValue>();
    if (place >= kNodeAttributes.size()) return false;
    node.attributes.emplace_back(static_cast<std::uint32_t>(place), value);
  }
  const bool has_child = node.params.type == CU_GRAPH_NODE_TYPE_GRAPH;
  if (!reader.ok() || has_child != (child == 1)) return false;
  if (!has_child) return true;
  auto inner = read_graph(reader, depth + 1);
  if (!inner) return false;
  node.child = std::move(*inner);
  return true;
}

Result<GraphImageRef> read_graph(Reader& reader, unsigned depth) {
  const Error damaged{ErrorCode::kInvalid, "a graph is not as it was written"};
  const auto image = std::make_shared<GraphImage>();
  image->name = reader.take<std::uint64_t>();
  const auto nodes = reader.take<std::uint64_t>();
  const auto edges = reader.take<std::uint64_t>();
  if (depth > kDepthMax || nodes > reader.remaining() / kNodeBytesMin ||
      edges > reader.remaining() / kEdgeBytes) {
    return damaged;
  }
  for (std::uint64_t i = 0; i < nodes; ++i) {
    const auto node = std::make_shared<NodeImage>();
    if (!read_node(reader, depth, *node, image->names.emplace_back())) return damaged;
    image->nodes.push_back(node);
  }
  for (std::uint64_t i = 0; i < edges; ++i) {
    GraphImage::Edge edge;
    edge.from = reader.take<std::uint32_t>();
    edge.to = reader.take<std::uint32_t>();
    edge.data = reader.take<CUgraphEdgeData>();
    if (edge.from >= nodes || edge.to >= nodes) return damaged;
    image->edges.push_back(edge);
  }
  if (!reader.ok()) return damaged;
  return GraphImageRef(image);
}

}  // namespace

std::shared_ptr<const NodeImage> image_of_command(Bytes parameters, Bytes data,
                                                  const NodeImage* before, std::uint64_t context) {
  const auto image = std::make_shared<NodeImage>();
  if (before != nullptr) {
    image->attributes_known = before->attributes_known;
    image->attributes = before->attributes;
  }
  CUgraphNodeParams& params = image->params;
  std::memcpy(static_cast<void*>(&params), parameters.data(),
              std::min(sizeof params, parameters.size()));
  image->data.assign(data.begin(), data.end());
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    params.kernel.kernelParams = nullptr;
    params.kernel.extra = nullptr;
  }
  if (params.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) params.memOp.paramArray = nullptr;
  CUcontext* const own = context_in(params);
  if (own == nullptr || *own != nullptr) return image;
  *own = static_cast<CUcontext>(pointer_at(context));
  if (before != nullptr && before->params.type == params.type) {
    CUgraphNodeParams old = before->params;
    *own = *context_in(old);
  }
  return image;
}

std::shared_ptr<const NodeImage> NodeBudget::count(std::shared_ptr<const NodeImage> image) {
  if (image == nullptr) return nullptr;
  const std::uint64_t bytes = sizeof(NodeImage) + image->data.size() +
                              image->attributes.size() * sizeof(image->attributes[0]);
  const std::uint64_t before = bytes_->fetch_add(bytes);
  if (before > bytes_max_ || bytes > bytes_max_ - before) {
    bytes_->fetch_sub(bytes);
    return nullptr;
  }
  const NodeImage* const counted = image.get();
  return {counted, [image = std::move(image), total = bytes_, bytes](const NodeImage*) mutable {
            image.reset();
            total->fetch_sub(bytes);
          }};
}

std::size_t count_nodes(const GraphImage& image) {
  std::size_t count = image.nodes.size();
  for (const auto& node : image.nodes) {
    if (node->child != nullptr) count += count_nodes(*node->child);
  }
  return count;
}

std::size_t place_of(const GraphImage& image, CUgraphNode native) {
  std::size_t place = 0;
  for (std::size_t i = 0; i < image.nodes.size(); ++i) {
    if (i < image.natives.size() && image.natives[i] == native) return place;
    ++place;
    const GraphImage* const child = image.nodes[i]->child.get();
    if (child == nullptr) continue;
    const std::size_t inside = place_of(*child, native);
    place += inside;
    if (inside != count_nodes(*child)) return place;
  }
  return place;
}

const NodeImage* node_at(const GraphImage& image, std::size_t place) {
  for (const auto& node : image.nodes) {
    if (place == 0) return node.get();
    --place;
    if (node->child == nullptr) continue;
    const std::size_t inside = count_nodes(*node->child);
    if (place < inside) return node_at(*node->child, place);
    place -= inside;
  }
  return nullptr;
}

GraphImageRef with_node(const GraphImage& image, std::size_t place,
                        std::shared_ptr<const NodeImage> node) {
  auto changed = std::make_shared<GraphImage>(image);
  for (auto& own : changed->nodes) {
    if (place == 0) {
      own = std::move(node);
      return changed;
    }
    --place;
    if (own->child == nullptr) continue;
    const std::size_t inside = count_nodes(*own->child);
    if (place < inside) {
      auto around = std::make_shared<NodeImage>(*own);
      around->child = with_node(*own->child, place, std::move(node));
      own = std::move(around);
      return changed;
    }
    place -= inside;
  }
  return changed;
}

void take_nodes(const GraphImage& image, NodeImages& nodes) {
  for (std::size_t i = 0; i < image.nodes.size(); ++i) {
    nodes[image.natives[i]] = image.nodes[i];
    if (image.nodes[i]->child != nullptr) take_nodes(*image.nodes[i]->child, nodes);
  }
}

bool same_shape(const GraphImage& a, const GraphImage& b) {
  if (a.nodes.size() != b.nodes.size() || a.edges.size() != b.edges.size()) return false;
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const NodeImage& in_a = *a.nodes[i];
    const NodeImage& in_b = *b.nodes[i];
    if (in_a.params.type != in_b.params.type) return false;
    const bool child = in_a.child != nullptr && in_b.child != nullptr;
    if (child && !same_shape(*in_a.child, *in_b.child)) return false;
  }
  const auto ends = [](const GraphImage& image) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
    for (const GraphImage::Edge& edge : image.edges) found.emplace_back(edge.from, edge.to);
    std::sort(found.begin(), found.end());
    return found;
  };
  return ends(a) == ends(b);
}

void write_image(const GraphImage& image, const GraphImage* naming, std::uint64_t name,
                 const ImageNames& names, std::vector<std::byte>& out) {
  append(out, name);
  append(out, static_cast<std::uint64_t>(image.nodes.size()));
  append(out, static_cast<std::uint64_t>(image.edges.size()));
  for (std::size_t i = 0; i < image.nodes.size(); ++i) {
    const NodeImage& node = *image.nodes[i];
    const bool named = naming != nullptr && i < naming->natives.size();
    const std::uint64_t node_name = named ? names.node(naming->natives[i], name) : 0;
    write_node(node, node_name, out);
    if (node.child == nullptr) continue;
    const GraphImage* const inner = named ? naming->nodes[i]->child.get() : nullptr;
    const std::uint64_t inner_name =
        inner != nullptr && inner->native != nullptr ? names.graph(inner->native, node_name) : 0;
    write_image(*node.child, inner, inner_name, names, out);
  }
  for (const GraphImage::Edge& edge : image.edges) {
    append(out, edge.from);
    append(out, edge.to);
    append(out, edge.data);
  }
}

Result<GraphImageRef> read_image(Reader& reader) { return read_graph(reader, 0); }

}  // namespace flyt::server
