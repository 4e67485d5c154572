#include "transport/transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/delayed.h"
#include "transport/peek.h"
#include "transport/peer.h"
#include "transport/socket.h"

namespace flyt::transport {
namespace {

constexpr std::size_t kTextBytesMax = 64;

int family_of(int fd) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof family;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family;
}

std::string describe_unix(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return "unix";
  return "unix, process " + std::to_string(credentials.pid) + ", user " +
         std::to_string(credentials.uid);
}

std::string describe_tcp(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "tcp";
  Url url{Kind::kTcp, {}, {}, 0};
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    url.port = ntohs(v6->sin6_port);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    url.port = ntohs(v4->sin_port);
  }
  url.host = text;
  return to_string(url);
}

}  // namespace

std::string describe_peer(int fd) {
  return family_of(fd) == AF_UNIX ? describe_unix(fd) : describe_tcp(fd);
}

std::optional<PeerProcess> process_of_peer(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (fd < 0 || family_of(fd) != AF_UNIX ||
      ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return std::nullopt;
  }
  return PeerProcess{credentials.pid, credentials.uid};
}

std::string identity_of_peer(int fd) {
  if (fd < 0) return {};
  if (family_of(fd) == AF_UNIX) {
    const auto process = process_of_peer(fd);
    return process ? "unix-" + std::to_string(process->user) : std::string();
  }
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    // IPv4 through a socket of IPv6 is the same peer.
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      ::inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
    } else {
      ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
  }
  std::string name(text);
  std::replace(name.begin(), name.end(), ':', '_');
  return name.empty() ? name : "tcp-" + name;
}

void set_blocking(int fd, bool blocking) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

namespace {

Result<std::unique_ptr<Connection>> connect_at_once(const Url& url, Instant deadline) {
  switch (url.kind) {
    case Kind::kUnix:
    case Kind::kShm:
      return connect_unix(url, deadline);
    case Kind::kTcp:
      return connect_tcp(url, deadline);
  }
  return Error{ErrorCode::kUnsupported, "unknown kind of transport"};
}

}  // namespace

Result<std::unique_ptr<Connection>> connect(const Url& url, Instant deadline) {
  Result<std::unique_ptr<Connection>> connection = connect_at_once(url, deadline);
  if (!connection || url.delay.count() == 0) return connection;
  return delayed(std::move(*connection), url.delay);
}

Result<std::unique_ptr<Listener>> listen(const Url& url) {
  if (url.delay.count() != 0) {
    return Error{ErrorCode::kInvalid, to_string(url) + ": delay is for clients"};
  }
  switch (url.kind) {
    case Kind::kUnix:
    case Kind::kShm:
      return listen_unix(url);
    case Kind::kTcp:
      return listen_tcp(url);
  }
  return Error{ErrorCode::kUnsupported, "unknown kind of transport"};
}

Result<std::unique_ptr<Connection>> adopt(Fd socket) {
  const int family = family_of(socket.get());
  if (family != AF_UNIX && family != AF_INET && family != AF_INET6) {
    return Error{ErrorCode::kInvalid, "not a socket of a kind that carries sessions"};
  }
  set_blocking(socket.get(), true);
  if (family == AF_UNIX) {
    set_unix_options(socket.get());
  } else {
    set_tcp_options(socket.get());
  }
  std::string peer = describe_peer(socket.get());
  return std::unique_ptr<Connection>(
      std::make_unique<SocketConnection>(std::move(socket), std::move(peer)));
}

Result<ConnectionPair> connection_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return flyt::system_error("socketpair", errno);
  }
  Fd first(fds[0]);
  Fd second(fds[1]);
  Result<std::unique_ptr<Connection>> one = adopt(std::move(first));
  if (!one) return std::move(one).error();
  Result<std::unique_ptr<Connection>> two = adopt(std::move(second));
  if (!two) return std::move(two).error();
  return ConnectionPair(std::move(*one), std::move(*two));
}

Result<std::size_t> peek(int fd, MutableBytes into) {
  ssize_t there = -1;
  do {
    there = ::recv(fd, into.data(), into.size(), MSG_PEEK | MSG_DONTWAIT);
  } while (there < 0 && errno == EINTR);
  if (there > 0) return static_cast<std::size_t>(there);
  if (there == 0) return Error{ErrorCode::kLost, "the peer has gone"};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
  return Error{ErrorCode::kLost, flyt::system_error("looking at a socket", errno).message};
}

Status send_fd(int channel, int fd, std::string_view text) {
  FLYT_ASSERT(text.size() <= kTextBytesMax);
  // A message carries at least one byte: the length of the text.
  const auto length = static_cast<std::uint8_t>(text.size());
  iovec pieces[2] = {{const_cast<std::uint8_t*>(&length), 1},
                     {const_cast<char*>(text.data()), text.size()}};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);

  ssize_t sent = -1;
  do {
    sent = ::sendmsg(channel, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(1 + text.size())) return {};
  if (sent >= 0) return Error{ErrorCode::kLost, "passing a socket: short write"};
  return flyt::system_error("passing a socket", errno);
}

namespace {

// Waits until the sender has said more, then takes of it what is there. Nobody who says a part and
// then nothing is waited for beyond the deadline.
Result<std::size_t> take_part(int channel, msghdr& message, Instant deadline) {
  while (true) {
    PollEntry entry{channel, POLLIN, 0};
    if (!poll_until({&entry, 1}, deadline)) {
      return Error{ErrorCode::kTimeout, "receiving a socket: it did not come in time"};
    }
    const ssize_t got = ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return Error{ErrorCode::kLost, "receiving a socket: the sender is gone"};
    if (errno != EINTR && errno != EAGAIN) return flyt::system_error("receiving a socket", errno);
  }
}

// The text, whose message may come in parts.
Status take_text(int channel, std::string& text, Instant deadline) {
  std::size_t taken = 0;
  while (taken < text.size()) {
    iovec piece{text.data() + taken, text.size() - taken};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const auto got = take_part(channel, message, deadline);
    if (!got) return got.error();
    taken += *got;
  }
  return {};
}

}  // namespace

Result<ReceivedFd> receive_fd(int channel, Instant deadline) {
  std::uint8_t length = 0;
  iovec piece{&length, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  // Of a second one, for which alignment leaves room, nobody would ever know.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const auto got = take_part(channel, message, deadline);
  if (!got) return got.error();

  ReceivedFd received;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    received.fd = Fd(fd);
  }
  if (!received.fd.valid() || (message.msg_flags & MSG_CTRUNC) != 0 || length > kTextBytesMax) {
    return Error{ErrorCode::kInvalid, "receiving a socket: none came"};
  }
  received.text.resize(length);
  Status rest = take_text(channel, received.text, deadline);
  if (!rest) return std::move(rest).error();
  return received;
}

}  // namespace flyt::transport
