#include "server/handoff.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rpc/endpoint.h"

namespace flyt::server {
namespace {

// The socket's buffer takes a refusal at once, unless the client is up to something.
constexpr Duration kRefusalTime = std::chrono::milliseconds(100);

void refuse(transport::Connection& connection, wire::RefusalCode code, std::string_view reason) {
  const wire::Refusal refusal{code, std::string(reason)};
  const Instant deadline = system_clock().now() + kRefusalTime;
  static_cast<void>(rpc::send_refusal(connection, refusal, deadline).ok());
}

}  // namespace

Result<Ends> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe2", errno);
  return Ends{Fd(ends[0]), Fd(ends[1])};
}

Result<Ends> make_socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error("socketpair", errno);
  }
  return Ends{Fd(ends[0]), Fd(ends[1])};
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 1024> piece;
  while (true) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

void refuse_late(transport::Connection& connection) {
  refuse(connection, wire::RefusalCode::kMalformed, kNoHello);
}

void refuse_full(transport::Connection& connection) {
  refuse(connection, wire::RefusalCode::kFull, "the server has no room for another session");
}

void refuse_without_driver(transport::Connection& connection, std::string_view why) {
  refuse(connection, wire::RefusalCode::kNoDriver, why);
}

void close_in_child(transport::Listener& listener) { ::close(listener.fd()); }

}  // namespace flyt::server
