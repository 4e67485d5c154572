// HandClock: time that passes when a test says so.
#pragma once

#include "base/clock.h"

namespace flyt {

class HandClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  void sleep_for(Duration) const override {}  // lint: allow(sleep): it does not.
  void pass(Duration time) { now_ = now_ + time; }

 private:
  Instant now_{1'000'000'000};
};

}  // namespace flyt
