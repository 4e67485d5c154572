// GraphRecords: what a session's graphs and executable graphs are, noted and saved so that another
// process can go on with them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cuda/types.h"
#include "server/graphs/graph_image.h"
#include "server/graphs/graph_log.h"
#include "server/recovery/marks.h"
#include "server/request.h"

namespace flyt::server {

class GraphReading;    // server/graphs/graph_reading.h
class MovedVariables;  // server/recovery/moved_variables.h
class Session;

// What is noted is bounded: what comes beyond that is asked for when it is saved, and where that is
// too much as well, there is nothing to go on with. Graphs are known by the names of those that are
// in no node; nodes and children are told by
// theirs. In a session that cannot go on elsewhere nothing is noted. Main thread.
class GraphRecords {
 public:
  // What all that is noted of nodes takes, about: more than fits into the file.
  static constexpr std::uint64_t kBytesMax = 4 * GraphLog::kLiveBytesMax;

  explicit GraphRecords(Session& session) : session_(session) {}
  GraphRecords(const GraphRecords&) = delete;
  GraphRecords& operator=(const GraphRecords&) = delete;

  // A graph, or one in it, is new or has other nodes or edges. `context`: the index of that in
  // which nodes run that name none; 0: as before.
  void changed(std::uint64_t graph, std::uint32_t context = 0);
  // The same of a graph that is a copy of another one.
  void cloned(std::uint64_t clone, std::uint64_t graph);
  // It has a handle for conditional nodes, which is the driver's own.
  void note_conditional(std::uint64_t graph);
  // Something in it has a name that it had not.
  void named(std::uint64_t graph);
  // Before a node ends, or after it was changed by anything but the next two.
  void node_changed(std::uint64_t node);
  // A node does what a command says.
  void node_added(std::uint64_t node, std::uint32_t context, Bytes parameters, Bytes data);
  void node_set(std::uint64_t node, Bytes parameters, Bytes data);
  // It has ended, or is in a node from now on.
  void forget(std::uint64_t graph);
  // Before a context ends: of graphs whose nodes run in it the driver must not be asked any more,
  // and nobody makes them again.
  void on_context_destroy(std::uint32_t context);
  // What a graph is now; null for what cannot be made again, and where nothing is noted.
  GraphImageRef image_of(std::uint64_t graph);
  // All new images go through it.
  NodeBudget& budget() { return budget_; }

  void exec_made(std::uint64_t exec, std::uint64_t graph, std::uint64_t flags);
  void exec_node_set(std::uint64_t exec, std::uint64_t node, Bytes parameters, Bytes data);
  void exec_node_enabled(std::uint64_t exec, std::uint64_t node, bool enabled);
  // `image`: of the graph to which it was updated, as that was then.
  void exec_updated(std::uint64_t exec, GraphImageRef image);
  void exec_ended(std::uint64_t exec);

  // Captures have begun or ended, or graphs' memory has.
  void look_after_captures();
  void look_after_memory();

  // When all work is done, under Session::use(): saves what has changed.
  void save();
  // Whether a word of what they are is an address in one of these.
  bool hold(const MovedVariables& moved) const;
  // A session that goes on here has all else again: once, its graphs, too. What they named and has
  // ended since is left out with them. An error: the driver does not make one as it was.
  Status restore(Request& request);

 private:
  struct Graph {
    std::uint32_t context = 0;
    NodeImages nodes;
    GraphImageRef image;  // Null: it is to be read.
    std::uint16_t blame = 0;
    bool conditional = false;
    bool stale = false;  // Its context has ended.
    bool unsaved = true;
  };
  struct Exec {
    std::uint32_t context = 0;
    std::uint64_t graph = 0;
    std::uint64_t flags = 0;
    GraphImageRef base;     // By whose natives the client knows its nodes; null: it does not.
    GraphImageRef content;  // What it does; null: it cannot be made again.
    std::set<std::uint64_t> disabled;  // Places.
    std::uint16_t blame = 0;
    bool unsaved = true;
  };

  bool wanted() const;
  void touch();
  void note_gone(const GraphLog::Key& key);
  // A change that has been noted; null if nothing is known of it.
  Exec* find(std::uint64_t exec);
  void give_up(Exec& exec, std::uint16_t blame);
  std::optional<std::size_t> place_in(const Exec& exec, std::uint64_t node) const;
  const GraphImageRef& read(std::uint64_t root, Graph& graph);
  void save_graph(GraphLog& log, std::uint64_t name, Graph& graph);
  void save_exec(GraphLog& log, std::uint64_t name, Exec& exec);
  bool put(GraphLog& log, GraphLog::Key key, const std::vector<std::byte>& content);
  std::uint16_t whom_to_blame() const;

  // graph_records_restore.cc.
  Status restore_graph(Request& request, const GraphLog::Entry& entry, CUresult& result);
  Status restore_exec(Request& request, const GraphLog::Entry& entry, CUresult& result);
  Status name_all(const GraphImage& image, std::uint64_t around);
  GraphImageRef with_named_natives(const GraphImage& image) const;

  Session& session_;
  NodeBudget budget_{kBytesMax};
  std::map<std::uint64_t, Graph> graphs_;
  std::map<std::uint64_t, Exec> execs_;
  std::set<GraphLog::Key> gone_;  // Since the last save.
  bool dirty_ = false;
  bool saving_ = false;  // Names are given out for the file.
  bool restored_ = false;
  Spoiler held_;  // Something cannot be made again as of the last save.
  Spoiler capturing_;
};

}  // namespace flyt::server
