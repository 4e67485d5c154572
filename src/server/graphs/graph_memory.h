// GraphMemory: memory that nodes of graphs allocate, at addresses of the driver's.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "base/annotations.h"
#include "base/clock.h"
#include "cuda/types.h"
#include "server/lease/usage_board.h"

namespace flyt::server {

class Session;

// A client may name an address from the moment that it was told one, until the graph, what was
// instantiated from it, and the memory itself are gone. Main thread only
// where nothing else is said.
class GraphMemory {
 public:
  explicit GraphMemory(Session& session) : session_(session) {}
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  // Before a node is made; CUDA_ERROR_OUT_OF_MEMORY if the lease has no more.
  CUresult reserve(CUdevice device, std::uint64_t bytes, UsedMemory& charge);
  // `graph`: the number of the one that has the node. `charge`: what was reserved for it.
  void add(std::uint64_t address, std::uint64_t bytes, std::uint64_t graph, UsedMemory charge);
  // An executable graph has been made of that graph.
  void add_exec(std::uint64_t graph, std::uint64_t exec);
  bool contains(std::uint64_t address) const { return ranges_.contains(address); }
  bool any() const { return !ranges_.empty(); }
  // Looks which are gone: after something was destroyed or freed.
  void sweep();

  // Puts on the board what the driver has reserved for graphs: after what may change that. Safe
  // from any thread.
  void count() EXCLUDES(mutex_);
  // Now and then: some of it goes when a launch is over.
  void poll();

 private:
  struct Range {
    std::uint64_t bytes = 0;
    std::uint64_t graph = 0;
    std::set<std::uint64_t> execs;
    UsedMemory charge;
  };

  bool in_use(const Range& range) const;
  void note_charges() EXCLUDES(mutex_);

  Session& session_;
  std::map<std::uint64_t, Range> ranges_;  // By address.
  Instant counted_{};
  Mutex mutex_;
  // Beyond what nodes have been charged for.
  std::map<CUdevice, UsedMemory> reserved_ GUARDED_BY(mutex_);
  std::map<CUdevice, std::uint64_t> charged_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
