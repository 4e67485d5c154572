// TCP sockets, IPv4 and IPv6.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/socket.h"

namespace flyt::transport {
namespace {

constexpr int kBacklog = 256;
// A peer whose machine is gone is noticed after about ten seconds: idle by keepalive, with data
// under way by the user timeout.
constexpr int kKeepaliveIdleSeconds = 4;
constexpr int kKeepaliveIntervalSeconds = 2;
constexpr int kKeepaliveProbes = 3;
constexpr unsigned kUserTimeoutMilliseconds = 10'000;

Error with_url(Error error, const Url& url) {
  error.message = to_string(url) + ": " + error.message;
  return error;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> resolve(const Url& url, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int failure =
      ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &list);
  if (failure != 0) {
    return with_url(Error{ErrorCode::kNotFound, std::string("host: ") + ::gai_strerror(failure)},
                    url);
  }
  return Addresses(list);
}

std::uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

void set_tcp_options(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUserTimeoutMilliseconds));
}

Result<std::unique_ptr<Connection>> connect_tcp(const Url& url, Instant deadline) {
  Result<Addresses> addresses = resolve(url, false);
  if (!addresses) return std::move(addresses).error();
  Error failure{ErrorCode::kNotFound, to_string(url) + ": the host has no address"};
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) {
      failure = flyt::system_error("socket", errno);
      continue;
    }
    Status connected = connect_by(socket.get(), at->ai_addr, at->ai_addrlen, deadline);
    if (connected) {
      set_blocking(socket.get(), true);
      return adopt(std::move(socket));
    }
    failure = with_url(std::move(connected).error(), url);
  }
  return failure;
}

Result<std::unique_ptr<Listener>> listen_tcp(const Url& url) {
  Result<Addresses> addresses = resolve(url, true);
  if (!addresses) return std::move(addresses).error();
  Error failure{ErrorCode::kNotFound, to_string(url) + ": the host has no address"};
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.valid()) {
      failure = flyt::system_error("socket", errno);
      continue;
    }
    const int on = 1;
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) != 0) {
      failure = with_url(flyt::system_error("bind", errno), url);
      continue;
    }
    if (::listen(socket.get(), kBacklog) != 0) {
      failure = with_url(flyt::system_error("listen", errno), url);
      continue;
    }
    Url bound = url;
    bound.port = bound_port(socket.get());
    return std::unique_ptr<Listener>(
        std::make_unique<SocketListener>(std::move(socket), std::move(bound)));
  }
  return failure;
}

}  // namespace flyt::transport
