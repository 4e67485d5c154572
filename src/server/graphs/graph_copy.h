// GraphCopy: a copy of a graph of the driver's, whose kernels can be given other multiprocessors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/types.h"
#include "driver/table.h"
#include "server/lease/sm_part.h"

namespace flyt::server {

// Nodes are numbered: those of a graph in the order in which the driver lists them, each followed
// by those of the child graph that it has. Copies of a copy have the same numbers. Belongs to one
// thread at a time.
class GraphCopy {
 public:
  // Null for what a driver cannot copy, as graphs that allocate, and for what cannot be made again.
  static std::shared_ptr<GraphCopy> make(const driver::Table& driver, CUgraph original);
  // The same of a graph that is nobody else's, which becomes its own.
  static std::shared_ptr<GraphCopy> take(const driver::Table& driver, CUgraph graph);
  // These use it.
  GraphCopy(const driver::Table& driver, CUgraph graph) : driver_(driver), graph_(graph) {}
  ~GraphCopy();
  GraphCopy(const GraphCopy&) = delete;
  GraphCopy& operator=(const GraphCopy&) = delete;

  CUgraph graph() const { return graph_; }
  std::size_t size() const { return nodes_.size(); }
  CUgraphNode node(std::size_t number) const { return nodes_[number].node; }
  // None if it is not one of them.
  std::optional<std::size_t> number_of(CUgraphNode node);
  // Whether both have the same nodes as far as can be told: kinds, and what depends on what.
  bool same_shape(const GraphCopy& other) const;

  // Another one, all of which runs on the multiprocessors of a part, whose context becomes current;
  // null if there is a node that cannot be made so. `all`: nothing stays where it was.
  std::shared_ptr<GraphCopy> moved(const SmPart& part, bool& all) const;

 private:
  struct Node {
    CUgraphNode node = nullptr;
    CUgraphNodeType type{};
  };

  bool list(CUgraph graph, unsigned depth);
  std::vector<std::pair<std::size_t, std::size_t>> edges() const;
  bool has_functions() const;
  CUresult move_to(const SmPart& part, bool& all);
  CUresult move_kernel(CUgraphNode node, const SmPart& part) const;
  bool move_fill(CUgraphNode node, const SmPart& part) const;
  bool move_copy(CUgraphNode node, const SmPart& part) const;

  const driver::Table& driver_;
  const CUgraph graph_;
  std::vector<Node> nodes_;
  std::unordered_map<CUgraphNode, std::size_t> numbers_;  // Made when it is asked for.
};

}  // namespace flyt::server
