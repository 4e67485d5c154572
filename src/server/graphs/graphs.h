// Graphs: the driver's graphs and nodes under the numbers that the client knows them by, and the
// captures that go on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "server/graphs/graph_costs.h"
#include "server/graphs/graph_records.h"
#include "server/lease/sm_part.h"
#include "server/request.h"
#include "wire/handle.h"

namespace flyt::server {

class Session;

// Numbers are given out when an object is first told to the client, and taken back with the graph
// around it. Numbers and captures belong to the main thread; what other threads may call says so.
class Graphs {
 public:
  // Graphs and nodes that a session may have numbers for.
  static constexpr std::size_t kNamesMax = 1 << 21;

  explicit Graphs(Session& session);
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Null for a number that is not one of a living graph or node.
  CUgraph graph(std::uint64_t name) const;
  CUgraphNode node(std::uint64_t name) const;
  // The graph that a node is in; 0 if there is no such node.
  std::uint64_t graph_of(std::uint64_t node) const;
  // The graph that it is in at last; itself if it is in none.
  std::uint64_t root(std::uint64_t graph) const;
  // In how many graphs it is.
  unsigned depth(std::uint64_t graph) const;
  // The client's name of a node, without giving it one; 0: it has none.
  std::uint64_t name_of(CUgraphNode node) const;
  std::uint64_t name_of(CUgraph graph) const;
  // The graphs in a node that the client knows.
  std::set<std::uint64_t> graphs_in(std::uint64_t node) const;
  // The node that a graph is in; 0: none.
  std::uint64_t around(std::uint64_t graph) const;
  // The parts of the GPU in which a graph, or one around it, was made; empty where they never
  // change. note_part(): it gets nodes in the present one.
  std::vector<std::shared_ptr<SmPart>> parts(std::uint64_t graph) const;
  void note_part(std::uint64_t graph);
  void note_parts_of(std::uint64_t graph, std::uint64_t other);
  // All of them, or false.
  bool nodes(const wire::List<std::uint64_t>& names, std::vector<CUgraphNode>& out) const;

  // Whether there are numbers left, for what is going to be made.
  bool full() const { return graphs_.size() + nodes_.size() + ending_.nodes >= kNamesMax; }
  // The number of a graph, a new one if it has none; `around`: the node that it is in, or 0. 0 when
  // there are no numbers left.
  std::uint64_t name_graph(CUgraph native, std::uint64_t around);
  // The same for a node of the graph with the number `graph`.
  std::uint64_t name_node(CUgraphNode native, std::uint64_t graph);
  // A session that goes on here has them again. False: the name is no such one, or in use.
  bool restore_graph(std::uint64_t name, CUgraph native, std::uint64_t around);
  bool restore_node(std::uint64_t name, CUgraphNode native, std::uint64_t graph);
  // So many names have been given out before.
  void begin_names_at(std::uint64_t names) { names_ = names; }
  // A graph has become part of a node.
  void put_around(std::uint64_t graph, std::uint64_t node);
  // The driver has destroyed it: its number, and those of all that is in it, are gone.
  void forget_graph(std::uint64_t name);
  void forget_node(std::uint64_t name);

  // What they are, for whoever goes on with the session.
  GraphRecords& records() { return records_; }
  // What copies of them cost.
  GraphCosts& costs() { return costs_; }

  // Some node of the session allocates or frees memory.
  bool has_memory_nodes() const { return memory_nodes_; }
  void note_memory_node() { memory_nodes_ = true; }

  // As long as somebody has what this gives, a worker uses graphs or executable ones, and what the
  // client destroys of them stays: end() does it now or, from poll(), when nobody uses any. A
  // result that is not known yet is success. `cost`: of what stays until then. end_exec() is the
  // same for what has that name; null for `native` is success.
  std::shared_ptr<void> at_work();
  bool working() const { return at_work_.use_count() != 1; }
  CUresult end(const GraphCosts::Cost& cost, std::function<CUresult()> destroy);
  CUresult end_exec(std::uint64_t name, CUgraphExec native);
  // Of all that is to be destroyed.
  const GraphCosts::Cost& ending() const { return ending_; }
  void poll();
  // What is counted of a graph, with all that is in it.
  GraphCosts::Cost cost_of(std::uint64_t graph) const;

  // An executable graph ends with its context, a green one's with the primary one: asked about it
  // later, NVIDIA's driver crashes or hangs. The client's handle of it stays, with no object, until
  // the client destroys it. Where the client has several contexts, nobody knows in which its nodes
  // run, and it is left to the driver. on_context_destroy(): before the driver ends the context,
  // under Session::alone().
  void note_exec(std::uint64_t exec, std::uint32_t context);
  void forget_exec(std::uint64_t exec) { execs_.erase(exec); }
  void on_context_destroy(std::uint32_t context);

  // As long as somebody has what this gives, a worker makes an executable graph what a graph is.
  // Drivers do not expect that anything else happens to one of them meanwhile: nothing but to be
  // destroyed, as above.
  std::shared_ptr<const void> begin_update(std::uint64_t exec, std::uint64_t graph);
  bool updating(std::uint64_t exec) const;
  bool in_update(std::uint64_t graph) const;

  // Handles of conditional nodes, which are the driver's own values and end with their graph: so
  // many at a time.
  static constexpr std::size_t kConditionalsMax = 64 * 1024;
  bool may_add_conditional() const { return conditionals_.size() < kConditionalsMax; }
  void add_conditional(std::uint64_t handle, std::uint64_t graph);
  bool has_conditional(std::uint64_t handle) const { return conditionals_.contains(handle); }

  // Held while streams join captures, and by others while they make sure that one is in none.
  Mutex& joining() RETURN_CAPABILITY(joining_) { return joining_; }
  // A stream, as the driver knows it, has begun a capture; `into`: the client's graph that it adds
  // to, or 0.
  void capture_begun(CUstream stream, std::uint64_t into);
  // Some capture adds to that graph.
  bool captured_into(std::uint64_t graph) const;
  // The driver was asked to end it, or the stream was destroyed: looks whether it has ended.
  void look_after_capture(CUstream stream, bool has_graph);
  // The client's name of the graph that a capturing stream adds to; 0 when there are none left.
  std::uint64_t captured_graph(CUstream stream);
  // So many nodes of a command go into a capture. False: more than a session may have, and it ends.
  bool note_captured(std::uint64_t nodes = 1);
  // The stream is gone; under Session::alone().
  void forget_stream(CUstream stream);
  // Any thread: some capture may be going on.
  bool capturing() const { return captures_.load(std::memory_order_acquire) != 0; }
  // Any thread: is the stream part of a capture? A plain load while none goes on.
  bool capturing(CUstream stream) const;
  // Any thread, with the context current: waits for its work, which a capture must not notice.
  CUresult wait_for_context(std::uint32_t context) EXCLUDES(joining_);

 private:
  struct Graph {
    CUgraph native = nullptr;
    std::uint64_t around = 0;
    std::set<std::uint64_t> nodes;
    std::vector<std::uint64_t> conditionals;
    std::vector<std::shared_ptr<SmPart>> parts;  // Of one that is in no node.
  };
  struct Node {
    CUgraphNode native = nullptr;
    std::uint64_t graph = 0;
    std::set<std::uint64_t> graphs;  // Those that are in it.
  };

  struct End {
    std::uint32_t context = 0;  // That it must come before the end of; 0: of none.
    std::function<CUresult()> destroy;
  };

  std::uint64_t next_name(wire::HandleKind kind);
  CUresult end(const GraphCosts::Cost& cost, End end);

  Session& session_;
  GraphRecords records_;
  GraphCosts costs_;
  std::unordered_map<std::uint64_t, Graph> graphs_;
  std::unordered_map<std::uint64_t, Node> nodes_;
  std::unordered_map<const void*, std::uint64_t> graph_names_;
  std::unordered_map<const void*, std::uint64_t> node_names_;
  std::uint64_t names_ = 0;
  std::set<std::uint64_t> conditionals_;
  bool memory_nodes_ = false;
  std::shared_ptr<void> at_work_ = std::make_shared<int>();
  std::map<std::uint64_t, std::uint32_t> execs_;  // Their contexts.
  std::vector<End> ends_;
  GraphCosts::Cost ending_;  // Of what they end.
  struct Update {
    std::uint64_t exec = 0;
    std::uint64_t graph = 0;  // The one that it is in at last.
  };
  std::vector<std::weak_ptr<const Update>> updates_;
  struct Capture {
    CUgraph graph = nullptr;  // The driver's.
    bool shared = false;      // The client had it before, and has it if the capture fails.
  };
  std::map<CUstream, Capture> streams_;  // Where captures began.
  std::atomic<std::size_t> captures_{0};
  Mutex joining_;
};

}  // namespace flyt::server
