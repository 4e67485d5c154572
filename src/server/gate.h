// Gate: many threads are inside, or one is alone.
#pragma once

#include <atomic>
#include <cstdint>

namespace flyt::server {

// For std::shared_lock and std::unique_lock. Going in and out is one instruction each while nobody
// is alone, or waits to be: a tenth of what std::shared_mutex needs. Those who come overtake who
// waits to be alone.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void lock_shared() {
    if ((state_.fetch_add(kOne, std::memory_order_acquire) & kAlone) != 0) wait_for_entry();
  }
  void unlock_shared() {
    const std::uint32_t before = state_.fetch_sub(kOne, std::memory_order_release);
    if (before == (kOne | kAwaited)) state_.notify_all();
  }

  void lock() {
    while (!try_lock()) {
      const std::uint32_t seen = state_.fetch_or(kAwaited, std::memory_order_relaxed) | kAwaited;
      if (seen != kAwaited) state_.wait(seen, std::memory_order_relaxed);
    }
  }
  bool try_lock() {
    std::uint32_t seen = state_.load(std::memory_order_relaxed) & kAwaited;
    return state_.compare_exchange_strong(seen, kAlone, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() {
    state_.fetch_and(~kAlone, std::memory_order_release);
    state_.notify_all();
  }

 private:
  static constexpr std::uint32_t kAlone = 1;
  static constexpr std::uint32_t kAwaited = 2;  // Somebody waits to be alone.
  static constexpr std::uint32_t kOne = 4;      // Inside, or waiting for who is alone.

  void wait_for_entry() {
    std::uint32_t seen = state_.load(std::memory_order_acquire);
    while ((seen & kAlone) != 0) {
      state_.wait(seen, std::memory_order_relaxed);
      seen = state_.load(std::memory_order_acquire);
    }
  }

  std::atomic<std::uint32_t> state_{0};
};

}  // namespace flyt::server
