// GraphReading: what a graph of the driver's is, as an image.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cuda/types.h"
#include "server/client_names.h"
#include "server/graphs/graph_image.h"

namespace flyt::server {

class Session;

// Main thread, for one moment: objects that come to be later have no names here.
class GraphReading {
 public:
  explicit GraphReading(Session& session) : session_(session) {}

  // Null for what cannot be made again; `blame` is then the number of a command to name. Nodes that
  // are in `known` are not asked for, all others come to be there. `context`: the index of that in
  // which nodes run of which the driver does not tell it.
  GraphImageRef read(CUgraph graph, std::uint32_t context, NodeImages& known, std::uint16_t& blame);

 private:
  GraphImageRef read_all(CUgraph graph, unsigned depth, NodeImages& known, std::uint16_t& blame);
  std::shared_ptr<const NodeImage> read_node(CUgraphNode node, CUgraphNodeType type);
  std::shared_ptr<const NodeImage> read_child(CUgraphNode node, unsigned depth, NodeImages& known,
                                              std::uint16_t& blame);
  bool read_edges(GraphImage& image) const;
  void read_attributes(CUgraphNode node, NodeImage& image) const;

  Session& session_;
  std::optional<ClientNames> names_;  // Once a node is asked for.
  CUcontext context_ = nullptr;
};

}  // namespace flyt::server
