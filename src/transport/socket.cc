#include "transport/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace flyt::transport {
namespace {

constexpr std::size_t kPollEntriesMax = 4;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// Pieces of either constness as the system wants them; empty pieces are dropped. Returns how many.
template <class Piece>
std::size_t gather(std::span<const Piece> pieces, std::span<iovec, kPiecesMax> out) {
  std::size_t used = 0;
  for (const Piece& piece : pieces) {
    if (piece.empty()) continue;
    if (used == out.size()) break;
    out[used++] = iovec{const_cast<std::byte*>(piece.data()), piece.size()};
  }
  return used;
}

}  // namespace

Wakeup::Wakeup() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { FLYT_ASSERT(event_.valid()); }

void Wakeup::signal() const {
  const std::uint64_t one = 1;
  // The counter is full only if it was signalled already.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

bool Wakeup::clear() const {
  std::uint64_t count = 0;
  return ::read(event_.get(), &count, sizeof count) == sizeof count;
}

bool poll_until(std::span<PollEntry> entries, Instant deadline) {
  FLYT_ASSERT(entries.size() <= kPollEntriesMax);
  pollfd fds[kPollEntriesMax];
  for (std::size_t i = 0; i < entries.size(); ++i) fds[i] = {entries[i].fd, entries[i].wanted, 0};

  int found = 0;
  while (true) {
    timespec left{};
    if (deadline != kNever && deadline.ns > 0) {
      const std::int64_t ns = std::max<std::int64_t>(0, (deadline - system_clock().now()).count());
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    found = ::ppoll(fds, entries.size(), deadline == kNever ? nullptr : &left, nullptr);
    if (found >= 0 || errno != EINTR) break;
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    entries[i].found = found > 0 ? fds[i].revents : 0;
  return found > 0;
}

Error SocketConnection::lost(std::string_view what, int system_error) const {
  if (shut_.load(std::memory_order_relaxed)) {
    return Error{ErrorCode::kLost, "connection to " + peer_ + " was shut down here"};
  }
  if (system_error == 0) {
    return Error{ErrorCode::kLost, "connection to " + peer_ + " was closed by the peer"};
  }
  Error error = flyt::system_error(std::string(what) + " " + peer_, system_error);
  error.code = ErrorCode::kLost;
  return error;
}

Result<std::size_t> SocketConnection::read(std::span<const MutableBytes> into, Patience patience) {
  iovec pieces[kPiecesMax];
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = gather(into, std::span<iovec, kPiecesMax>(pieces));
  FLYT_ASSERT(message.msg_iovlen > 0);
  while (true) {
    const ssize_t got =
        ::recvmsg(socket_.get(), &message, patience == Patience::kNow ? MSG_DONTWAIT : 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return lost("reading from", 0);
    if (errno == EINTR) continue;
    if (would_block(errno)) return std::size_t{0};
    if (errno == EFAULT) return Error{ErrorCode::kInvalid, "reading to memory that is not there"};
    return lost("reading from", errno);
  }
}

Result<std::size_t> SocketConnection::write(std::span<const Bytes> from, Patience patience) {
  iovec pieces[kPiecesMax];
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = gather(from, std::span<iovec, kPiecesMax>(pieces));
  FLYT_ASSERT(message.msg_iovlen > 0);
  const int flags = MSG_NOSIGNAL | (patience == Patience::kNow ? MSG_DONTWAIT : 0);
  while (true) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, flags);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EINTR) continue;
    if (would_block(errno)) return std::size_t{0};
    if (errno == EFAULT) return Error{ErrorCode::kInvalid, "writing from memory that is not there"};
    return lost("writing to", errno);
  }
}

ReadySet SocketConnection::wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) {
  short events = 0;
  if ((wanted & kReadable) != 0) events |= POLLIN;
  if ((wanted & kWritable) != 0) events |= POLLOUT;
  if ((wanted & kHangup) != 0) events |= POLLRDHUP;
  // poll(2) reports a broken socket unasked.
  PollEntry entries[2] = {{wanted != kNothing ? socket_.get() : -1, events, 0},
                          {wakeup != nullptr ? wakeup->fd() : -1, POLLIN, 0}};
  if (!socket_.valid()) return wanted & (kReadable | kWritable | kHangup);
  if (!poll_until(entries, deadline)) return kNothing;

  const short found = entries[0].found;
  ReadySet ready = kNothing;
  // A broken socket counts as ready for whatever was asked, so that the caller meets the error.
  const bool broken = (found & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  if (broken || (found & POLLIN) != 0) ready |= wanted & kReadable;
  if (broken || (found & POLLOUT) != 0) ready |= wanted & kWritable;
  if (broken || (found & POLLRDHUP) != 0) ready |= wanted & kHangup;
  if ((entries[1].found & POLLIN) != 0 && wakeup->clear()) ready |= kWoken;
  return ready;
}

void SocketConnection::shut_down() {
  shut_.store(true, std::memory_order_relaxed);
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);
}

void SocketConnection::abandon() { socket_.close(); }

Result<std::unique_ptr<Connection>> SocketListener::accept(Instant deadline, const Wakeup* wakeup) {
  while (true) {
    if (stopped_.load()) return Error{ErrorCode::kLost, "listener was shut down"};
    const int fd = ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) return adopt(Fd(fd));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (!would_block(errno)) return flyt::system_error("accept on " + to_string(url_), errno);

    PollEntry entries[3] = {{socket_.get(), POLLIN, 0},
                            {stop_.fd(), POLLIN, 0},
                            {wakeup != nullptr ? wakeup->fd() : -1, POLLIN, 0}};
    const bool found = poll_until(entries, deadline);
    const bool woken = (entries[2].found & POLLIN) != 0 && wakeup->clear();
    if (!found || woken) return Error{ErrorCode::kTimeout, "nobody connected"};
  }
}

void SocketListener::shut_down() {
  stopped_.store(true);
  stop_.signal();
}

Status connect_by(int fd, const sockaddr* address, socklen_t size, Instant deadline) {
  // A full backlog of a Unix listener has no event to wait for, so it is tried again.
  constexpr Duration kRetry = std::chrono::milliseconds(2);
  while (::connect(fd, address, size) != 0) {
    if (errno == EINTR || errno == EISCONN) continue;
    if (errno == EAGAIN) {
      if (system_clock().now() >= deadline) return Error{ErrorCode::kTimeout, "no answer in time"};
      system_clock().sleep_for(kRetry);
      continue;
    }
    if (errno != EINPROGRESS && errno != EALREADY) return flyt::system_error("connect", errno);
    PollEntry entry{fd, POLLOUT, 0};
    if (!poll_until({&entry, 1}, deadline)) return Error{ErrorCode::kTimeout, "no answer in time"};
    int failure = 0;
    socklen_t failure_size = sizeof failure;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &failure_size);
    if (failure != 0) return flyt::system_error("connect", failure);
    return {};
  }
  return {};
}

}  // namespace flyt::transport
