// HandClock: time that passes when a test says so, whichever threads look.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace flyt {

class HandClock final : public Clock {
 public:
  Instant now() const override { return {now_.load()}; }
  void sleep_for(Duration) const override {}  // lint: allow(sleep): it does not.
  void pass(Duration time) { now_.fetch_add(time.count()); }

 private:
  std::atomic<std::int64_t> now_{1'000'000'000};
};

}  // namespace flyt
