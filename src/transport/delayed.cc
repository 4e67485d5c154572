#include "transport/delayed.h"

#include <array>
#include <cerrno>
#include <string>

#include "transport/relay_thread.h"
#include "transport/socket.h"

namespace flyt::transport {
namespace {

// How much longer than the delay the last bytes may take at the end of a connection.
constexpr Duration kLastBytesPatience = std::chrono::seconds(1);

// The session's end is one of a socket pair, so that it polls, shuts down and forks as any other;
// the threads stand between the pair's far end and the real connection.
class DelayedConnection final : public Connection {
 public:
  DelayedConnection(std::unique_ptr<Connection> real, ConnectionPair pair, Duration delay)
      : real_(std::move(real)),
        near_(std::move(pair.first)),
        far_(std::move(pair.second)),
        delay_(delay),
        out_(far_->fd(), real_->fd(), delay),
        in_(real_->fd(), far_->fd(), delay) {}
  ~DelayedConnection() override {
    near_->shut_down();
    out_.finish(system_clock().now() + delay_ + kLastBytesPatience);
    in_.finish(Instant{});
  }

  Status start() {
    Status started = out_.start();
    return started ? in_.start() : std::move(started);
  }

  Result<std::size_t> read(std::span<const MutableBytes> into, Patience patience) override {
    return near_->read(into, patience);
  }
  Result<std::size_t> write(std::span<const Bytes> from, Patience patience) override {
    return near_->write(from, patience);
  }
  ReadySet wait(ReadySet wanted, Instant deadline, const Wakeup* wakeup) override {
    return near_->wait(wanted, deadline, wakeup);
  }
  void shut_down() override { near_->shut_down(); }
  void abandon() override {
    near_->abandon();
    far_->abandon();
    real_->abandon();
  }
  int fd() const override { return near_->fd(); }
  std::string peer() const override { return real_->peer(); }

 private:
  const std::unique_ptr<Connection> real_;
  const std::unique_ptr<Connection> near_;
  const std::unique_ptr<Connection> far_;
  const Duration delay_;
  RelayThread out_;
  RelayThread in_;
};

// A pair whose ends tell of the real peer, and not of this process, what becomes of the connection.
Result<ConnectionPair> pair_to(const std::string& peer) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return flyt::system_error("socketpair", errno);
  }
  Fd first(ends[0]);
  Fd second(ends[1]);
  set_unix_options(first.get());
  set_unix_options(second.get());
  return ConnectionPair(std::make_unique<SocketConnection>(std::move(first), peer),
                        std::make_unique<SocketConnection>(std::move(second), peer));
}

}  // namespace

Result<std::unique_ptr<Connection>> delayed(std::unique_ptr<Connection> connection,
                                            Duration delay) {
  FLYT_ASSERT(connection->fd() >= 0 && delay.count() >= 0);
  Result<ConnectionPair> pair = pair_to(connection->peer());
  if (!pair) return std::move(pair).error();
  auto made = std::make_unique<DelayedConnection>(std::move(connection), std::move(*pair), delay);
  if (Status started = made->start(); !started) return std::move(started).error();
  return std::unique_ptr<Connection>(std::move(made));
}

}  // namespace flyt::transport
