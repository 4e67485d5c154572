// GraphCosts: the nodes that a driver makes many at a time, which nobody has named one by one.
#pragma once

#include <cstddef>
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
  // Edges of all graphs, copies and executable ones: each node may have one from every other.
  static constexpr std::uint64_t kEdgesMax = 2 * kNodesMax;

  struct Cost {
    std::uint64_t nodes = 0;
    std::uint64_t hidden = 0;  // In bodies of conditional nodes that the driver does not show.
    std::uint64_t edges = 0;
    std::uint64_t total() const { return nodes + hidden; }
    void add(const Cost& other) {
      nodes += other.nodes;
      hidden += other.hidden;
      edges += other.edges;
    }
  };

  GraphCosts(const driver::Table& driver, const Graphs& graphs)
      : driver_(driver), graphs_(graphs) {}
  GraphCosts(const GraphCosts&) = delete;
  GraphCosts& operator=(const GraphCosts&) = delete;

  // Graphs in graphs in graphs, at most: whoever comes to what is in all of them calls himself.
  static constexpr unsigned kDepthMax = 1024;

  // What a copy of a graph costs; nothing where there is no room for it. `depth`: in how many
  // graphs it will be.
  std::optional<Cost> of_copy(CUgraph graph, unsigned depth = 0);
  // Whether a graph can be in so many.
  bool may_be_in(CUgraph graph, unsigned depth) const;
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
  // What is counted under that name.
  Cost counted(std::uint64_t name) const;
  // So many edges are going to be added to a graph. False where there is no room for them.
  [[nodiscard]] bool admit_edges(std::uint64_t graph, std::size_t edges);

  // A stream that captures is given so many nodes. False where there is no room for them.
  [[nodiscard]] bool note_captured(std::uint64_t nodes);
  // What a capture has made, which has the name `graph`; 0: nothing.
  void capture_ended(std::uint64_t graph, bool last);

 private:
  // The sum so far has to fit, or only the depth.
  enum class Check : std::uint8_t { kRoom, kDepth };
  bool add(CUgraph graph, unsigned depth, Check check, Cost& cost) const;
  bool add_inner(CUgraphNode node, unsigned depth, Check check, Cost& cost) const;
  bool fits(const Cost& cost) const;
  bool has_room(std::uint64_t edges) const;
  void charge(std::uint64_t name, std::uint64_t nodes, std::uint64_t edges);
  std::uint64_t edges_in(CUgraph graph) const;
  // What was admitted need not have been added, or be there still.
  void count_edges();

  const driver::Table& driver_;
  const Graphs& graphs_;
  std::uint64_t nodes_ = 0;     // Of all charges.
  std::uint64_t captured_ = 0;  // By captures that go on.
  bool nested_ = false;
  std::uint64_t edges_ = 0;  // Of all charges, and those that were admitted.
  struct Charge {
    std::uint64_t nodes = 0;
    std::uint64_t edges = 0;
  };
  std::map<std::uint64_t, Charge> charges_;          // By the name of what has them.
  std::map<std::uint64_t, std::uint64_t> admitted_;  // Edges, by graph.
  std::map<std::uint64_t, std::uint64_t> hidden_;    // By graph.
  std::map<std::uint64_t, Cost> execs_;
};

}  // namespace flyt::server
