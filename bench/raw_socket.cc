#include "bench/raw_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "bench/stopwatch.h"

namespace flyt::bench {
namespace {

constexpr std::size_t kPing = 64;
constexpr std::size_t kChunk = 256 << 10;

struct Pair {
  Fd near;
  Fd far;
};

Result<Pair> unix_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return system_error("socketpair", errno);
  return Pair{Fd(ends[0]), Fd(ends[1])};
}

Result<Pair> tcp_pair() {
  const Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), any, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &size) != 0) {
    return system_error("listen", errno);
  }
  Pair pair;
  pair.near = Fd(::socket(AF_INET, SOCK_STREAM, 0));
  if (::connect(pair.near.get(), any, size) != 0) return system_error("connect", errno);
  pair.far = Fd(::accept(listener.get(), nullptr, nullptr));
  if (!pair.far.valid()) return system_error("accept", errno);
  const int on = 1;
  for (const int fd : {pair.near.get(), pair.far.get()}) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return pair;
}

bool send_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::write(fd, data, std::min(size, kChunk));
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t received = ::read(fd, data, size);
    if (received <= 0) return false;
    data += received;
    size -= static_cast<std::size_t>(received);
  }
  return true;
}

// The peer: each request begins with its size; small ones are echoed, of others the end is told.
[[noreturn]] void serve(int fd) {
  std::vector<char> buffer(std::end(kCopySizes)[-1] + sizeof(std::uint64_t));
  while (true) {
    std::uint64_t size = 0;
    if (!receive_all(fd, reinterpret_cast<char*>(&size), sizeof(size))) ::_exit(0);
    if (!receive_all(fd, buffer.data(), size)) ::_exit(0);
    const std::size_t answer = size + sizeof(size) == kPing ? kPing : 1;
    if (!send_all(fd, buffer.data(), answer)) ::_exit(0);
  }
}

}  // namespace

Result<Figures> measure_raw_socket(SocketKind kind) {
  auto made = kind == SocketKind::kUnix ? unix_pair() : tcp_pair();
  if (!made) return made.error();
  Pair pair = std::move(*made);
  const pid_t peer = ::fork();
  if (peer == 0) {
    pair.near.close();
    serve(pair.far.get());
  }
  pair.far.close();
  const int fd = pair.near.get();
  std::vector<char> buffer(std::end(kCopySizes)[-1] + sizeof(std::uint64_t));
  // The bytes that follow the size; the answer is awaited.
  const auto exchange = [&](std::uint64_t size, std::size_t answer) {
    std::copy_n(reinterpret_cast<const char*>(&size), sizeof(size), buffer.data());
    return send_all(fd, buffer.data(), size + sizeof(size)) &&
           receive_all(fd, buffer.data(), answer);
  };
  Figures figures;
  figures["rtt_us"] =
      median_us(30, 100, [&] { return exchange(kPing - sizeof(std::uint64_t), kPing); });
  for (const std::size_t size : kCopySizes) {
    const int repeats = size <= (1 << 20) ? 20 : 3;
    figures[bulk_name(size)] = median_us(repeats, 1, [&] { return exchange(size, 1); });
  }
  pair.near.close();
  ::waitpid(peer, nullptr, 0);
  return figures;
}

}  // namespace flyt::bench
