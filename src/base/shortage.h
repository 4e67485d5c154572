// Shortage: a loop's patience with what cannot be done for now, for lack of descriptors, processes
// or memory. What it waits for would stay ready all the while, and the loop would spin.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace flyt {

// Belongs to one thread.
class Shortage {
 public:
  // Short enough that who waits hardly notices, long enough that trying costs nothing.
  static constexpr Duration kRest = std::chrono::milliseconds(50);
  // Failures closer together than that are one shortage.
  static constexpr Duration kOver = std::chrono::seconds(30);

  // It failed: to be left alone until the rest is over. True once in each shortage, for the log.
  bool met(Instant now) {
    const bool news = !met_ || now - last_ >= kOver;
    met_ = true;
    last_ = now;
    return news;
  }
  bool resting(Instant now) const { return met_ && now - last_ < kRest; }
  // What poll(2) may sleep at most, of `timeout_ms` (-1: for ever).
  int limit(int timeout_ms, Instant now) const {
    if (!resting(now)) return timeout_ms;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(last_ + kRest - now);
    const int ms = static_cast<int>(left.count()) + 1;
    return timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
  }

 private:
  bool met_ = false;
  Instant last_{};
};

}  // namespace flyt
