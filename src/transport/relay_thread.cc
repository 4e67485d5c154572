#include "transport/relay_thread.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "transport/socket.h"

namespace flyt::transport {
namespace {

constexpr std::size_t kReadBytesMax = 256 * kKiB;

}  // namespace

Status RelayThread::start() {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failure = ::pthread_create(&thread_, nullptr, &RelayThread::entry, this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) return flyt::system_error("starting a thread", failure);
  ::pthread_setname_np(thread_, "flyt-delay");
  running_ = true;
  return {};
}

void RelayThread::finish(Instant deadline) {
  if (!running_) return;
  give_up_ns_.store(deadline.ns);
  wakeup_.signal();
  ::pthread_join(thread_, nullptr);
  running_ = false;
}

void* RelayThread::entry(void* self) {
  static_cast<RelayThread*>(self)->run();
  return nullptr;
}

void RelayThread::run() {
  // The system may else round a short sleep up by 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  DelayLine line(delay_);
  std::vector<std::byte> scratch(kReadBytesMax);
  while (step(line, scratch)) {
  }
}

bool RelayThread::step(DelayLine& line, MutableBytes scratch) {
  bool blocked = false;
  const Instant now = system_clock().now();
  if (const Bytes bytes = line.due(now); !bytes.empty()) {
    const ssize_t sent = ::send(to_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    blocked = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (sent < 0 && !blocked && errno != EINTR) {
      give_up();
      return false;
    }
    if (sent > 0) line.take(static_cast<std::size_t>(sent));
    if (!blocked) return true;
  }
  if (line.over(now)) {
    ::shutdown(to_, SHUT_WR);
    return false;
  }
  const Instant give_up_at{give_up_ns_.load()};
  if (now >= give_up_at) {
    give_up();
    return false;
  }
  // A descriptor that is not asked about stays out, for a hangup is reported unasked.
  PollEntry entries[3] = {{line.has_room() ? from_ : -1, POLLIN, 0},
                          {blocked ? to_ : -1, POLLOUT, 0},
                          {wakeup_.fd(), POLLIN, 0}};
  poll_until(entries, std::min(blocked ? kNever : line.next_due(), give_up_at));
  if (entries[2].found != 0) wakeup_.clear();
  return entries[0].found == 0 || receive(line, scratch);
}

bool RelayThread::receive(DelayLine& line, MutableBytes scratch) {
  const ssize_t got = ::recv(from_, scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (got > 0) line.push(scratch.first(static_cast<std::size_t>(got)), system_clock().now());
  const bool again = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  // A reset reaches the other side as an end, after what came before it.
  if (got <= 0 && !again) line.end(system_clock().now());
  return true;
}

// The source learns that nobody listens any more, and the other side that nothing more comes.
void RelayThread::give_up() {
  ::shutdown(from_, SHUT_RD);
  ::shutdown(to_, SHUT_WR);
}

}  // namespace flyt::transport
