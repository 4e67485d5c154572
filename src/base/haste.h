// Haste: what sleeps in the system without a deadline is woken there.
#pragma once

#include <signal.h>
#include <time.h>

namespace flyt {

// The signal for it; a process that hastes has a handler for it, which does nothing.
inline constexpr int kHasteSignal = SIGURG;

// While there is one, no call of this thread to the system sleeps for longer than some
// milliseconds, if it is one that signals end. It is for closing what strangers may have put
// descriptors into: the last one of a socket is closed when its maker lets it (SO_LINGER).
class Haste {
 public:
  Haste();
  ~Haste();
  Haste(const Haste&) = delete;
  Haste& operator=(const Haste&) = delete;

 private:
  timer_t timer_{};
  bool made_ = false;
};

}  // namespace flyt
