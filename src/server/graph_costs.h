// GraphCosts: the nodes that a driver makes many at a time, which nobody has named one by one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::server {

class Graphs;

// A graph that has another one twice, in a graph that has that one twice, is soon more than any
// machine holds. So copies are counted: clones, children and executable graphs, and what was
// captured. Main thread.
class GraphCosts {
 public:
  // Of a session at a time.
  static constexpr std::uint64_t kNodesMax = 1 << 21;

  struct Cost {
    std::uint64_t nodes = 0;
    std::uint64_t hidden = 0;  // In bodies of conditional nodes that the driver does not show.
    std::uint64_t total() const { return nodes + hidden; }
  };

  GraphCosts(const driver::Table& driver, const Graphs& graphs)
      : driver_(driver), graphs_(graphs) {}
  GraphCosts(const GraphCosts&) = delete;
  GraphCosts& operator=(const GraphCosts&) = delete;

  // What a copy of a graph costs; nothing where there is no room for it.
  std::optional<Cost> of_copy(CUgraph graph) const;
  // What a child that is made of an executable graph costs, likewise.
  std::optional<Cost> of_exec(std::uint64_t exec) const;

  // It was made: a graph of its own, one in a node (0: a node without a name) of a graph, or an
  // executable one.
  void note_graph(std::uint64_t graph, const Cost& cost);
  void note_child(std::uint64_t graph, std::uint64_t node, const Cost& cost);
  void note_exec(std::uint64_t exec, const Cost& cost);
  // Some graph has others in it from now on.
  void note_nested() { nested_ = true; }
  // A graph, node or executable graph is gone.
  void forget(std::uint64_t name);

  // A stream that captures was given something. False where there is no room for more.
  [[nodiscard]] bool note_captured();
  // What a capture has made, which has the name `graph`; 0: nothing.
  void capture_ended(std::uint64_t graph, bool last);

 private:
  static constexpr unsigned kDepthMax = 1024;

  bool add(CUgraph graph, unsigned depth, Cost& cost) const;
  bool add_inner(CUgraphNode node, unsigned depth, Cost& cost) const;
  bool fits(std::uint64_t nodes) const { return nodes <= kNodesMax - nodes_; }
  void charge(std::uint64_t name, std::uint64_t nodes);

  const driver::Table& driver_;
  const Graphs& graphs_;
  std::uint64_t nodes_ = 0;     // Of all charges.
  std::uint64_t captured_ = 0;  // By captures that go on.
  bool nested_ = false;
  std::map<std::uint64_t, std::uint64_t> charges_;  // By the name of what has them.
  std::map<std::uint64_t, std::uint64_t> hidden_;   // By graph.
  std::map<std::uint64_t, Cost> execs_;
};

}  // namespace flyt::server
