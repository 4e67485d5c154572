#include "control/daemon/stop_signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/haste.h"

namespace flyt::control {

Fd take_stop_signals(Hangups hangups) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  if (hangups == Hangups::kTold) ::sigaddset(&set, SIGHUP);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // A full disk, or a limit on files, is an error of the write.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(kHasteSignal, [](int) {});
  return Fd(::signalfd(-1, &set, SFD_CLOEXEC));
}

void await_stop(const Fd& signals, const std::function<void()>& on_hangup) {
  signalfd_siginfo info{};
  while (true) {
    const ssize_t got = ::read(signals.get(), &info, sizeof info);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof info) || info.ssi_signo != SIGHUP) return;
    on_hangup();
  }
}

}  // namespace flyt::control
