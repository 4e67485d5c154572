// GraphImage: a graph as a value, in the client's words, of which it can be made again in another
// process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cuda/types.h"

namespace flyt::server {

struct GraphImage;

// What a kernel's node has beside its parameters.
inline constexpr std::array kNodeAttributes = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT};

// What is kept beside the parameters of a node: of a kernel its own parameters.
inline constexpr std::uint64_t kNodeDataBytesMax = 64 * kKiB;

// A node. It never changes: a node that does gets another image.
struct NodeImage {
  CUgraphNodeParams params{};  // With the client's handles, and without pointers.
  std::vector<std::byte> data;
  std::uint32_t attributes_known = 0;  // A bit for each, by its place in kNodeAttributes.
  // Those of them that are not all zeroes, by their places.
  std::vector<std::pair<std::uint32_t, CUkernelNodeAttrValue>> attributes;
  std::shared_ptr<const GraphImage> child;
};
using NodeImages = std::unordered_map<CUgraphNode, std::shared_ptr<const NodeImage>>;

// What images of nodes take together. Images may be let go on any thread, and outlive it.
class NodeBudget {
 public:
  explicit NodeBudget(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Counts a new image for as long as somebody has it; null where there is no room for more.
  std::shared_ptr<const NodeImage> count(std::shared_ptr<const NodeImage> image);

 private:
  const std::uint64_t bytes_max_;
  const std::shared_ptr<std::atomic<std::uint64_t>> bytes_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
};

// Nodes are in the order in which the driver lists them, by which it pairs those of an update.
struct GraphImage {
  struct Edge {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    CUgraphEdgeData data{};
  };
  std::vector<std::shared_ptr<const NodeImage>> nodes;
  std::vector<Edge> edges;
  // The driver's, of this process; empty in one that was read from bytes.
  CUgraph native = nullptr;
  std::vector<CUgraphNode> natives;
  // The client's names of itself and of its nodes, of one that was read from bytes; 0: none.
  std::uint64_t name = 0;
  std::vector<std::uint64_t> names;
};
using GraphImageRef = std::shared_ptr<const GraphImage>;

// Of what a command says of a node. `before`: what it was, if it was something: its attributes
// stay, and so does its context if none is named. `context`: the client's, for a new one.
std::shared_ptr<const NodeImage> image_of_command(Bytes parameters, Bytes data,
                                                  const NodeImage* before, std::uint64_t context);

// Places count all nodes, those of a child behind the node that it is in.
std::size_t count_nodes(const GraphImage& image);
// count_nodes(): it is none of them.
std::size_t place_of(const GraphImage& image, CUgraphNode native);
const NodeImage* node_at(const GraphImage& image, std::size_t place);
// With another node there; the rest is shared.
GraphImageRef with_node(const GraphImage& image, std::size_t place,
                        std::shared_ptr<const NodeImage> node);
// Adds those of an image that has natives, and of its children.
void take_nodes(const GraphImage& image, NodeImages& nodes);
// Whether both have the same kinds of nodes at the same places, joined by the same edges.
bool same_shape(const GraphImage& a, const GraphImage& b);

// How the client calls what is written; 0: not at all.
struct ImageNames {
  std::function<std::uint64_t(CUgraphNode node, std::uint64_t graph)> node;
  std::function<std::uint64_t(CUgraph graph, std::uint64_t node)> graph;
};
// Words are at multiples of 8 where they are in memory. `naming`: the graph by whose natives nodes
// at the same places are called; null: they have no names.
void write_image(const GraphImage& image, const GraphImage* naming, std::uint64_t name,
                 const ImageNames& names, std::vector<std::byte>& out);
// None of the bytes is trusted.
Result<GraphImageRef> read_image(Reader& reader);

}  // namespace flyt::server
