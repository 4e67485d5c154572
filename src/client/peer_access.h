// PeerAccess: which contexts may use other contexts' memory, as the program has said.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "base/annotations.h"

namespace flyt::client {

// Safe from any thread.
class PeerAccess {
 public:
  // Handles: who may, and whose.
  using Pair = std::pair<std::uint64_t, std::uint64_t>;

  void enable(Pair pair) {
    const Lock lock(mutex_);
    pairs_.insert(pair);
  }
  void disable(Pair pair) {
    const Lock lock(mutex_);
    pairs_.erase(pair);
  }
  void on_context_destroyed(std::uint64_t context) {
    const Lock lock(mutex_);
    std::erase_if(pairs_, [context](const Pair& pair) {
      return pair.first == context || pair.second == context;
    });
  }
  std::vector<Pair> all() const {
    const Lock lock(mutex_);
    return {pairs_.begin(), pairs_.end()};
  }

 private:
  mutable Mutex mutex_;
  std::set<Pair> pairs_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
