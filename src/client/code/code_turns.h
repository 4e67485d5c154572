// CodeTurns: who loads code, and copies that are made when their stream comes to them, take turns.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "base/annotations.h"
#include "base/clock.h"

namespace flyt::client {

// Such a copy needs the driver while its stream stands and waits for it; and while code is loaded
// NVIDIA's driver waits for all streams and lets nobody in. Each waits for those of the others that
// came before it, so that a steady flow of one kind does not hold up the other; but not for long: a
// stream may stand for a reason of the program's own. Safe from any thread.
class CodeTurns {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(10);

  // What has its turn until the last copy of this is gone.
  using Turn = std::shared_ptr<void>;
  Turn copy() { return take(&State::copies, &State::loads); }
  Turn load() { return take(&State::loads, &State::copies); }

 private:
  // Those that wait or have their turn, by the order in which they came.
  using Places = std::set<std::uint64_t>;
  struct State {
    Mutex mutex;
    Condition changed;
    std::uint64_t next GUARDED_BY(mutex) = 0;
    Places copies GUARDED_BY(mutex);
    Places loads GUARDED_BY(mutex);
  };
  Turn take(Places State::*mine, Places State::*others);

  // Turns may outlive this.
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace flyt::client
