#include "bench/raw_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "bench/stopwatch.h"
#include "transport/delayed.h"

namespace flyt::bench {
namespace {

constexpr std::size_t kPing = 64;
constexpr std::size_t kChunk = 256 << 10;
constexpr std::size_t kBytesMax = std::end(kCopySizes)[-1];

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

// The peer: each request begins with its size, at most `bytes_max`; small ones are echoed, of
// others the end is told.
[[noreturn]] void serve(int fd, std::size_t bytes_max) {
  std::vector<char> buffer(bytes_max + sizeof(std::uint64_t));
  while (true) {
    std::uint64_t size = 0;
    if (!receive_all(fd, reinterpret_cast<char*>(&size), sizeof(size))) ::_exit(0);
    if (size > bytes_max || !receive_all(fd, buffer.data(), size)) ::_exit(0);
    const std::size_t answer = size + sizeof(size) == kPing ? kPing : 1;
    if (!send_all(fd, buffer.data(), answer)) ::_exit(0);
  }
}

// A connection with a forked process at its other end, which ends with it.
class Link {
 public:
  static Result<std::unique_ptr<Link>> open(SocketKind kind, std::size_t bytes_max,
                                            Duration delay) {
    auto made = kind == SocketKind::kUnix ? unix_pair() : tcp_pair();
    if (!made) return made.error();
    const pid_t peer = ::fork();
    if (peer < 0) return system_error("fork", errno);
    if (peer == 0) {
      made->near.close();
      serve(made->far.get(), bytes_max);
    }
    auto link = std::make_unique<Link>(std::move(made->near), peer, bytes_max);
    if (delay == Duration{}) return link;
    auto socket = transport::adopt(std::move(link->fd_));
    if (!socket) return socket.error();
    auto relayed = transport::delayed(std::move(*socket), delay);
    if (!relayed) return relayed.error();
    link->relayed_ = std::move(*relayed);
    return link;
  }

  Link(Fd fd, pid_t peer, std::size_t bytes_max)
      : fd_(std::move(fd)), peer_(peer), buffer_(bytes_max + sizeof(std::uint64_t)) {}
  // A later peer has a copy of this connection too: only shutting it down ends it.
  ~Link() {
    ::shutdown(fd(), SHUT_RDWR);
    ::waitpid(peer_, nullptr, 0);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Sends that many bytes behind their size; the answer is awaited.
  bool exchange(std::uint64_t size, std::size_t answer) {
    std::copy_n(reinterpret_cast<const char*>(&size), sizeof(size), buffer_.data());
    return send_all(fd(), buffer_.data(), size + sizeof(size)) &&
           receive_all(fd(), buffer_.data(), answer);
  }

  double round_trip_us() {
    return median_us(30, 100, [&] { return exchange(kPing - sizeof(std::uint64_t), kPing); });
  }

 private:
  int fd() const { return relayed_ == nullptr ? fd_.get() : relayed_->fd(); }

  Fd fd_;                                           // Without a delay,
  std::unique_ptr<transport::Connection> relayed_;  // and with one.
  const pid_t peer_;
  std::vector<char> buffer_;
};

}  // namespace

Result<Figures> measure_raw_socket(SocketKind kind) {
  auto link = Link::open(kind, kBytesMax, {});
  if (!link) return link.error();
  Figures figures;
  figures["rtt_us"] = (*link)->round_trip_us();
  for (const std::size_t size : kCopySizes) {
    const int repeats = size <= (1 << 20) ? 20 : 3;
    figures[bulk_name(size)] = median_us(repeats, 1, [&] { return (*link)->exchange(size, 1); });
  }
  return figures;
}

Result<Figures> measure_raw_round_trip(SocketKind kind, Duration delay) {
  auto link = Link::open(kind, kPing, delay);
  if (!link) return link.error();
  return Figures{{"rtt_us", (*link)->round_trip_us()}};
}

Result<Figures> measure_raw_streams(SocketKind kind, Duration delay) {
  Figures figures;
  for (const std::size_t count : kStreamCounts) {
    const std::size_t part = kBytesMax / count;
    std::vector<std::unique_ptr<Link>> links;
    for (std::size_t i = 0; i < count; ++i) {
      auto link = Link::open(kind, part, delay);
      if (!link) return link.error();
      links.push_back(std::move(*link));
    }
    figures["streams_" + std::to_string(count) + "_us"] = median_us(3, 1, [&] {
      std::atomic<bool> good{true};
      std::vector<std::thread> threads;
      for (const auto& link : links) {
        threads.emplace_back([&good, &link, part] {
          if (!link->exchange(part, 1)) good = false;
        });
      }
      for (std::thread& thread : threads) thread.join();
      return good.load();
    });
  }
  return figures;
}

}  // namespace flyt::bench
