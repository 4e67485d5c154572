// Gathering: what several threads bring while one of them is busy is done by the next one at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "base/annotations.h"

namespace flyt::cluster {

// So that many share one wait for a disk: Gathering<Request> has one commit for all requests that
// came during the last commit. Safe from any thread.
template <class Item>
class Gathering {
 public:
  // Returns when the item is done: by this thread, which calls `act` with up to `most` items that
  // have come, its own perhaps among them, or by another one.
  template <class Act>
  void join(Item& item, std::size_t most, Act act) {
    bool done = false;
    std::unique_lock<Mutex> lock(mutex_);
    waiting_.push_back({&item, &done});
    while (!done) {
      if (acting_) {
        changed_.wait(lock);
        continue;
      }
      acting_ = true;
      const auto end =
          waiting_.begin() + static_cast<std::ptrdiff_t>(std::min(most, waiting_.size()));
      const std::vector<std::pair<Item*, bool*>> some(waiting_.begin(), end);
      waiting_.erase(waiting_.begin(), end);
      lock.unlock();
      std::vector<Item*> items;
      for (const auto& one : some) items.push_back(one.first);
      act(items);
      lock.lock();
      for (const auto& one : some) *one.second = true;
      acting_ = false;
      changed_.notify_all();
    }
  }

  // Who has come and is not being done yet.
  std::size_t waiting() {
    const Lock lock(mutex_);
    return waiting_.size();
  }

 private:
  Mutex mutex_;
  Condition changed_;
  // With where its thread looks whether it is done.
  std::vector<std::pair<Item*, bool*>> waiting_ GUARDED_BY(mutex_);
  bool acting_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::cluster
