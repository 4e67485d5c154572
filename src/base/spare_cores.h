// SpareCores: whether this machine has cores for threads that look instead of sleeping.
#pragma once

#include "base/clock.h"

namespace flyt {

// Belongs to one thread.
class SpareCores {
 public:
  // How often the load of the machine is looked at.
  static constexpr Duration kLooks = std::chrono::milliseconds(250);
  // Of fewer cores none are to spare, of more as long as less than half of them are busy.
  static constexpr double kCoresMin = 4;

  bool any(Instant now);

 private:
  bool any_ = false;
  Instant looked_{};
};

}  // namespace flyt
