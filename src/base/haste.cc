#include "base/haste.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace flyt {
namespace {

// Again and again: the first signal may come before the thread sleeps.
constexpr timespec kPause{0, 5'000'000};

}  // namespace

Haste::Haste() {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kHasteSignal;
  event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
  made_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  const itimerspec often{kPause, kPause};
  if (made_) ::timer_settime(timer_, 0, &often, nullptr);
}

Haste::~Haste() {
  if (made_) ::timer_delete(timer_);
}

}  // namespace flyt
