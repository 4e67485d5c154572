// Timeline: how far a stream has come, for whoever waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/annotations.h"

namespace flyt::softgpu {

// Counts completed operations; only grows. Safe from any thread.
class Timeline {
 public:
  bool reached(std::uint64_t sequence) const {
    return completed_.load(std::memory_order_acquire) >= sequence;
  }
  void wait(std::uint64_t sequence) {
    if (reached(sequence)) return;
    const Lock lock(mutex_);
    while (!reached(sequence)) changed_.wait(mutex_);
  }
  void complete(std::uint64_t sequence) {
    {
      const Lock lock(mutex_);
      completed_.store(sequence, std::memory_order_release);
    }
    changed_.notify_all();
  }

 private:
  std::atomic<std::uint64_t> completed_{0};
  Mutex mutex_;  // Orders complete() and wait(); guards nothing else.
  Condition changed_;
};

// The end of one operation of one stream. One that nobody set is reached.
struct Ticket {
  std::shared_ptr<Timeline> timeline;
  std::uint64_t sequence = 0;

  bool reached() const { return timeline == nullptr || timeline->reached(sequence); }
  void wait() const {
    if (timeline != nullptr) timeline->wait(sequence);
  }
};

}  // namespace flyt::softgpu
