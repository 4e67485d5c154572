// Clock: where time comes from, so that tests and the simulator can give their own.
#pragma once

#include <chrono>
#include <cstdint>

namespace flyt {

using Duration = std::chrono::nanoseconds;

// A moment of a Clock; only differences mean anything.
struct Instant {
  std::int64_t ns = 0;
  friend auto operator<=>(const Instant&, const Instant&) = default;
  friend Instant operator+(Instant at, Duration by) { return {at.ns + by.count()}; }
  friend Duration operator-(Instant a, Instant b) { return Duration(a.ns - b.ns); }
};

// Safe from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
  virtual void sleep_for(Duration duration) const = 0;
};

// CLOCK_MONOTONIC of this machine.
const Clock& system_clock();

}  // namespace flyt
