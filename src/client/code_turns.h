// CodeTurns: who loads code, and copies that are made when their stream comes to them, take turns.
#pragma once

#include <memory>

#include "base/annotations.h"
#include "base/clock.h"

namespace flyt::client {

// Such a copy needs the driver while its stream stands and waits for it; and while code is loaded
// NVIDIA's driver waits for all streams and lets nobody in. Neither waits for the other for long: a
// stream may stand for a reason of the program's own. Safe from any thread.
class CodeTurns {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(10);

  // What has its turn until the last copy of this is gone.
  using Turn = std::shared_ptr<void>;
  Turn copy() { return take(&State::copies, &State::loads); }
  Turn load() { return take(&State::loads, &State::copies); }

 private:
  struct State {
    Mutex mutex;
    Condition changed;
    unsigned copies GUARDED_BY(mutex) = 0;
    unsigned loads GUARDED_BY(mutex) = 0;
  };
  Turn take(unsigned State::*mine, unsigned State::*others);

  // Turns may outlive this.
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace flyt::client
