// SharedWord: a number in memory that processes share, on whose change they can wait.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace flyt {

// Safe from any thread of any process. Who waits may be killed at any moment.
class SharedWord {
 public:
  std::uint32_t value() const { return word_.load(std::memory_order_acquire); }
  // To the next number.
  void advance();
  // The same, unless it is another than `seen` by now.
  void advance_from(std::uint32_t seen);
  // Wakes whoever waits, although nothing has changed.
  void rouse();
  // Until it is another than `seen`, until somebody calls rouse(), or so long; now and then for
  // nothing.
  void wait(std::uint32_t seen, Duration at_most) const;

 private:
  std::atomic<std::uint32_t> word_{0};
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
};

}  // namespace flyt
