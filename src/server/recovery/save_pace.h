// SavePace: how often a session saves what another process would need to go on with it.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace flyt::server {

// Whoever changes a little of much after each rest is not held up for most of the time: after a
// save there is a rest of several times what it took.
class SavePace {
 public:
  static constexpr int kRestsPerSave = 9;
  static constexpr Duration kRestMax = std::chrono::seconds(2);

  bool due(Instant now) const { return now >= next_; }
  void saved(Instant begun, Instant ended) {
    next_ = ended + std::min((ended - begun) * kRestsPerSave, kRestMax);
  }

 private:
  Instant next_;
};

}  // namespace flyt::server
