#include "control/daemon/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <cerrno>

namespace flyt::control {

Fd take_stop_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // A full disk, or a limit on files, is an error of the write.
  ::signal(SIGXFSZ, SIG_IGN);
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC));
}

void await_stop(const Fd& signals) {
  pollfd entry{signals.get(), POLLIN, 0};
  while (::poll(&entry, 1, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace flyt::control
