// Graphs: what this process keeps about graphs: executable ones, the functions and the memory of
// the program that they use, and what it was told about nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/pages.h"
#include "client/context.h"
#include "client/handle_table.h"
#include "cuda/types.h"

namespace flyt::client {

class HostMirror;
class Session;

// The bytes of a box: `pitch` is at least `width`.
struct LentRows {
  std::uint64_t first = 0;
  std::uint64_t width = 0;
  std::uint64_t rows = 1;
  std::uint64_t pitch = 0;
  std::uint64_t slices = 1;
  std::uint64_t slice_pitch = 0;
  std::uint64_t end() const;
  bool meet(const LentRows& other) const;
};

// How a program names a box: what it begins in, and how far from there it lies.
struct LentOrigin {
  std::uint64_t base = 0;
  std::size_t x_bytes = 0;
  std::size_t y = 0;
  std::size_t z = 0;
};

// Memory that CUDA does not know, in use by a copy of graphs until the last of them is gone.
class LentMemory {
 public:
  // `loan`: its number there.
  LentMemory(HostMirror& mirror, std::uint64_t loan, const LentRows& rows, const LentOrigin& origin,
             bool written)
      : mirror_(mirror), loan_(loan), rows_(rows), origin_(origin), written_(written) {}
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  // One writes what the other one uses too, and the GPU has that at two places.
  bool clashes(const LentMemory& other) const {
    return loan_ != other.loan_ && (written_ || other.written_) && rows_.meet(other.rows_);
  }
  std::uint64_t first() const { return rows_.first; }
  const LentOrigin& origin() const { return origin_; }

 private:
  HostMirror& mirror_;
  const std::uint64_t loan_;
  const LentRows rows_;
  const LentOrigin origin_;
  const bool written_;
};
using LentMemories = std::set<std::shared_ptr<LentMemory>>;

struct ExecState {
  bool has_memory = false;
  // A launch in a stream of this context was accepted: later ones are posted.
  std::atomic<const ContextState*> accepted{nullptr};
  LentMemories lent;  // Guarded by Graphs.

  void reset() {
    has_memory = false;
    accepted = nullptr;
    lent.clear();
  }
};

struct UserObjectState {
  void reset() {}
};

// What questions about a node's parameters were answered with, which the program may read as long
// as the node has them.
struct ToldNode {
  std::vector<std::byte> data;
  std::uint64_t function = 0;  // Of a kernel node: it says what lies where in the data.
  std::vector<void*> pointers;
  std::vector<CUstreamBatchMemOpParams> words;
  std::vector<CUmemAccessDesc> access;
  std::vector<CUgraph> graphs;
};
// The same of cuStreamGetCaptureInfo.
struct ToldFrontier {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};

// Safe from any thread.
class Graphs {
 public:
  explicit Graphs(Session& session);
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // A graph is inside of another one, and goes with it.
  void put_within(std::uint64_t graph, std::uint64_t around) EXCLUDES(mutex_);
  void forget_graph(std::uint64_t graph) EXCLUDES(mutex_);
  // What nodes of a graph use.
  LentMemories lent_to(std::uint64_t graph) EXCLUDES(mutex_);
  // How a copy of the graph names the memory that is lent to it from this address on.
  std::optional<LentOrigin> origin_of(std::uint64_t graph, std::uint64_t first) EXCLUDES(mutex_);
  // CUDA_ERROR_NOT_SUPPORTED, by name, where a copy that is to come clashes with one that is there.
  CUresult check_clash(const char* call, std::uint64_t graph, const LentMemories& more)
      EXCLUDES(mutex_);
  void lend(std::uint64_t graph, const LentMemories& memories) EXCLUDES(mutex_);
  void lend_to_exec(ExecState& exec, const LentMemories& memories) EXCLUDES(mutex_);
  LentMemories take_back(ExecState& exec) EXCLUDES(mutex_);

  // Executable graphs that were ended last: whoever goes on with the session may not know it.
  void note_ended(std::uint64_t exec) EXCLUDES(mutex_);
  std::vector<std::uint64_t> ended_execs() EXCLUDES(mutex_);

  // Keeps it until the node tells something else, or the end of the graph. What it has told before
  // stays where it is, and is returned instead.
  ToldNode& keep(std::uint64_t graph, std::uint64_t node, std::unique_ptr<ToldNode> told)
      EXCLUDES(mutex_);
  ToldFrontier& keep(CUstream stream, std::unique_ptr<ToldFrontier> told) EXCLUDES(mutex_);

  // A function of the program under the name by which graphs run it, the same one each time.
  std::uint64_t name_of(CUhostFn function, void* data) EXCLUDES(mutex_);
  std::pair<CUhostFn, void*> function_of(std::uint64_t name) EXCLUDES(mutex_);
  std::uint64_t name_of(CUstreamCallback callback, CUstream stream, void* data) EXCLUDES(mutex_);

  // Memory of graphs, at the driver's addresses: from now on known here. CUDA_ERROR_OUT_OF_MEMORY
  // where something of the program's lies there.
  CUresult add_memory(std::uint64_t address, std::uint64_t bytes, CUdevice device) EXCLUDES(mutex_);

  // A context that comes alive again under its handle has accepted nothing.
  void on_context_destroyed(const ContextState& context);

  HandleTable<ExecState> execs;
  HandleTable<UserObjectState> user_objects;

 private:
  struct Graph {
    LentMemories lent;
    std::map<std::uint64_t, std::unique_ptr<ToldNode>> told;
    std::set<std::uint64_t> within;
  };
  struct Function {
    CUhostFn function = nullptr;
    void* data = nullptr;
  };

  // Of those that end unheard; more than are on their way at a time.
  static constexpr std::size_t kEndedMax = 1024;

  std::uint64_t root(std::uint64_t graph) const REQUIRES(mutex_);

  Session& session_;
  Mutex mutex_;
  std::map<std::uint64_t, Graph> graphs_ GUARDED_BY(mutex_);          // Those that are in no other.
  std::map<std::uint64_t, std::uint64_t> around_ GUARDED_BY(mutex_);  // The others.
  std::map<std::pair<CUhostFn, void*>, std::uint64_t> names_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Function> functions_ GUARDED_BY(mutex_);
  std::map<std::pair<CUstream, const void*>, std::unique_ptr<ToldFrontier>> frontiers_
      GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> memory_ GUARDED_BY(mutex_);  // Sizes by address.
  FixedPages pages_ GUARDED_BY(mutex_);
  std::deque<std::uint64_t> ended_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
