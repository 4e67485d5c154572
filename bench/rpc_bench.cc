// What the rpc layer costs beside bare sockets, in one run: ns per post, a waiting call against a
// ping-pong, bulk against a bare stream. The server is another process and does nothing else.
//
//   flyt-rpc-bench [unix|tcp|poll|spin]...
//
// poll: the server looks for commands for a while before it sleeps. spin: a waiting call looks for
// its reply for a while before it sleeps.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

#include "rpc/channel.h"
#include "rpc/endpoint.h"
#include "rpc/no_pushes.h"
#include "transport/transport.h"

namespace flyt {
namespace {

constexpr std::uint16_t kOpPost = 16;
constexpr std::uint16_t kOpCall = 17;
constexpr std::uint16_t kOpBulk = 18;
constexpr std::uint16_t kOpCopyOut = 19;

constexpr std::size_t kPostBytes = 64;
constexpr int kPosts = 200'000;
constexpr int kCalls = 2'000;
constexpr std::size_t kBulkTotal = 128 * kMiB;
constexpr std::size_t kCopyOutBytes = 64 * kMiB;
constexpr int kRounds = 15;

double seconds_of(const std::function<void()>& work) {
  const Instant begin = system_clock().now();
  work();
  return static_cast<double>((system_clock().now() - begin).count()) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class BenchServer final : public rpc::CommandHandler {
 public:
  BenchServer(std::unique_ptr<transport::Connection> connection, bool polls)
      : endpoint_(std::move(connection), {}, pool_), data_(kCopyOutBytes), polls_(polls) {}

  void run() {
    constexpr Duration kPolling = std::chrono::microseconds(50);
    Instant polling_until{};
    while (true) {
      const bool poll = system_clock().now() < polling_until;
      const rpc::Received received =
          endpoint_.receive(*this, poll && polls_ ? Instant{} : transport::kNever);
      if (received == rpc::Received::kClosed) return;
      if (received == rpc::Received::kCommands) polling_until = system_clock().now() + kPolling;
    }
  }

  Status on_command(const rpc::Command& command) override {
    if (command.header.op == kOpCopyOut) {
      Reader reader(command.payload);
      endpoint_.deliver(reader.take<std::uint64_t>(), 0, data_);
    }
    if (command.wants_reply()) endpoint_.reply(command.header.sequence, 0);
    return {};
  }

 private:
  rpc::HeapBufferPool pool_;
  rpc::Endpoint endpoint_;
  std::vector<std::byte> data_;
  const bool polls_;
};

// Serves one connection of the listener in a child process.
template <class Serve>
std::unique_ptr<transport::Connection> with_child(transport::Listener& listener, Serve serve) {
  if (::fork() == 0) {
    auto connection = listener.accept(transport::kNever, nullptr);
    if (connection) serve(std::move(*connection));
    ::_exit(0);
  }
  auto connection =
      transport::connect(listener.url(), system_clock().now() + std::chrono::seconds(5));
  FLYT_ASSERT(connection.ok());
  return std::move(*connection);
}

void serve_rpc(std::unique_ptr<transport::Connection> connection, bool polls) {
  const Instant deadline = system_clock().now() + std::chrono::seconds(5);
  if (!rpc::receive_hello(*connection, deadline)) return;
  if (!rpc::send_welcome(*connection, {}, deadline)) return;
  BenchServer(std::move(connection), polls).run();
}

// The bare peer: each request is 'p' + 40 bytes answered by 40 bytes, 'r' + u64 bytes that follow,
// answered by one byte, or 'w' + u64 bytes to send.
void serve_raw(std::unique_ptr<transport::Connection> connection) {
  const int fd = connection->fd();
  std::vector<char> buffer(256 * kKiB);
  char request[48];
  const auto read_all = [fd](void* into, std::size_t size) {
    return ::recv(fd, into, size, MSG_WAITALL) == static_cast<ssize_t>(size);
  };
  while (read_all(request, sizeof request)) {
    std::uint64_t size = 0;
    Reader reader(bytes_at(request + 8, 8));
    reader.read(size);
    if (request[0] == 'p') ::send(fd, request, 40, 0);
    if (request[0] == 'r') {
      while (size > 0) {
        const ssize_t got = ::recv(fd, buffer.data(), std::min(size, buffer.size()), 0);
        if (got <= 0) return;
        size -= static_cast<std::uint64_t>(got);
      }
      ::send(fd, request, 40, 0);
    }
    while (request[0] == 'w' && size > 0) {
      const ssize_t sent = ::send(fd, buffer.data(), std::min(size, buffer.size()), 0);
      if (sent <= 0) return;
      size -= static_cast<std::uint64_t>(sent);
    }
  }
}

class RawClient {
 public:
  explicit RawClient(std::unique_ptr<transport::Connection> connection)
      : connection_(std::move(connection)), buffer_(kCopyOutBytes) {}

  void ping() { ask('p', 0), answer(40); }
  void send_bulk(std::size_t total) {
    ask('r', total);
    for (std::size_t sent = 0; sent < total; sent += 256 * kKiB) put(buffer_.data(), 256 * kKiB);
    answer(40);
  }
  void receive_bulk(std::size_t total) { ask('w', total), answer(total); }

 private:
  void ask(char what, std::uint64_t size) {
    std::array<std::byte, 48> request{};
    Writer writer(request);
    writer.write(std::uint64_t{static_cast<unsigned char>(what)});
    writer.write(size);
    put(request.data(), request.size());
  }
  void put(const std::byte* data, std::size_t size) {
    while (size > 0) {
      const ssize_t sent = ::send(connection_->fd(), data, size, MSG_NOSIGNAL);
      FLYT_ASSERT(sent > 0);
      data += sent;
      size -= static_cast<std::size_t>(sent);
    }
  }
  void answer(std::size_t size) {
    std::byte* at = buffer_.data();
    while (size > 0) {
      const ssize_t got = ::recv(connection_->fd(), at, size, 0);
      FLYT_ASSERT(got > 0);
      at += got;
      size -= static_cast<std::size_t>(got);
    }
  }

  std::unique_ptr<transport::Connection> connection_;
  std::vector<std::byte> buffer_;
};

void post(rpc::Channel& channel) {
  rpc::Post post = channel.begin(kOpPost, kPostBytes, 0);
  FLYT_ASSERT(static_cast<bool>(post));
  for (std::uint64_t i = 0; i < kPostBytes / 8; ++i) post.writer().write(i);
  post.commit();
}

void call(rpc::Channel& channel, rpc::Reply& reply) {
  rpc::Post post = channel.begin(kOpCall, 0, 0, rpc::Answer::kReply);
  const Status status = channel.call(std::move(post), reply);
  FLYT_ASSERT(status.ok());
}

void send_bulk(rpc::Channel& channel, const std::vector<std::byte>& data, std::size_t total) {
  std::array<std::byte, 16> fields{};
  for (std::size_t sent = 0; sent < total; sent += wire::kBulkBytesMax) {
    const auto posted =
        channel.post_bulk(kOpBulk, 0, fields, Bytes(data).first(wire::kBulkBytesMax));
    FLYT_ASSERT(posted.ok());
  }
}

void copy_out(rpc::Channel& channel, std::vector<std::byte>& into) {
  rpc::Delivery delivery = channel.expect(rpc::Destination::flat(into.data(), into.size()));
  rpc::Post post = channel.begin(kOpCopyOut, 8, 0, rpc::Answer::kReply);
  post.writer().write(delivery.id());
  rpc::Reply reply;
  const Status status = channel.call(std::move(post), reply);
  FLYT_ASSERT(status.ok() && delivery.complete());
}

struct Figures {
  std::vector<double> post_ns, paced_post_ns, rare_post_ns, call_us, ping_us, bulk, raw_bulk, out,
      raw_out;
};

void measure(rpc::Channel& channel, RawClient& raw, Figures& figures) {
  rpc::Reply reply;
  std::vector<std::byte> memory(kCopyOutBytes);
  figures.ping_us.push_back(seconds_of([&] {
                              for (int i = 0; i < kCalls; ++i) raw.ping();
                            }) /
                            kCalls * 1e6);
  figures.call_us.push_back(seconds_of([&] {
                              for (int i = 0; i < kCalls; ++i) call(channel, reply);
                            }) /
                            kCalls * 1e6);
  const double posting = seconds_of([&] {
    for (int i = 0; i < kPosts; ++i) post(channel);
    call(channel, reply);
  });
  figures.post_ns.push_back(posting / kPosts * 1e9);
  // Bursts that fit the send buffer, with pauses in which the server catches up.
  constexpr int kBurst = 1000;
  double bursts = 0;
  for (int burst = 0; burst < 40; ++burst) {
    bursts += seconds_of([&] {
      for (int i = 0; i < kBurst; ++i) post(channel);
    });
    call(channel, reply);
  }
  figures.paced_post_ns.push_back(bursts / (40 * kBurst) * 1e9);
  // One post at a time, so rarely that the sender sleeps.
  double rare = 0;
  for (int i = 0; i < 100; ++i) {
    system_clock().sleep_for(std::chrono::microseconds(200));
    rare += seconds_of([&] { post(channel); });
  }
  figures.rare_post_ns.push_back(rare / 100 * 1e9);
  const double gigabytes = static_cast<double>(kBulkTotal) * 1e-9;
  figures.raw_bulk.push_back(gigabytes / seconds_of([&] { raw.send_bulk(kBulkTotal); }));
  figures.bulk.push_back(gigabytes / seconds_of([&] {
                           send_bulk(channel, memory, kBulkTotal);
                           call(channel, reply);
                         }));
  const double out = static_cast<double>(kCopyOutBytes) * 1e-9;
  figures.raw_out.push_back(out / seconds_of([&] { raw.receive_bulk(kCopyOutBytes); }));
  figures.out.push_back(out / seconds_of([&] { copy_out(channel, memory); }));
}

void run(const transport::Url& url, bool polls, bool spins) {
  auto listener = transport::listen(url);
  FLYT_ASSERT(listener.ok());
  rpc::NoPushes pushes;
  RawClient raw(with_child(**listener, serve_raw));
  auto channel =
      rpc::Channel::open(with_child(**listener,
                                    [polls](std::unique_ptr<transport::Connection> connection) {
                                      serve_rpc(std::move(connection), polls);
                                    }),
                         wire::ClientHello{}, system_clock().now() + std::chrono::seconds(5),
                         pushes, {.reply_spin = std::chrono::microseconds(spins ? 50 : 0)});
  FLYT_ASSERT(channel.ok());
  Figures figures;
  for (int round = 0; round < kRounds; ++round) measure(**channel, raw, figures);

  const auto alone = [](const char* what, const std::vector<double>& values) {
    std::printf("  %-26s %8.0f ns\n", what, median(values));
  };
  // Neighbours in time are compared, since a busy machine changes from second to second.
  const auto beside = [](const char* what, const char* unit, const std::vector<double>& ours,
                         const std::vector<double>& bare) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / bare[i]);
    std::printf("  %-26s %8.2f %-4s  %5.2fx of bare %.2f\n", what, median(ours), unit,
                median(ratios), median(bare));
  };
  std::printf("%s\n", std::string(to_string(url.kind)).c_str());
  alone("post, in bursts of 1000", figures.paced_post_ns);
  alone("post, sustained", figures.post_ns);
  alone("post, every 200 us", figures.rare_post_ns);
  beside("waiting call", "us", figures.call_us, figures.ping_us);
  beside("bulk to the server", "GB/s", figures.bulk, figures.raw_bulk);
  beside("bulk to the client", "GB/s", figures.out, figures.raw_out);
  const rpc::ChannelCounters counters = (*channel)->counters();
  std::printf("  credit waits %" PRIu64 "\n", counters.credit_waits);
  channel->reset();
  raw = RawClient(nullptr);
  while (::wait(nullptr) > 0) {
  }
}

}  // namespace
}  // namespace flyt

int main(int argc, char** argv) {
  using flyt::transport::Kind;
  const std::vector<std::string_view> wanted(argv + 1, argv + argc);
  const auto given = [&wanted](std::string_view word) {
    return std::find(wanted.begin(), wanted.end(), word) != wanted.end();
  };
  const bool both = given("unix") == given("tcp");
  const std::string name = "@flyt-rpc-bench-" + std::to_string(::getpid());
  if (both || given("unix")) flyt::run({Kind::kUnix, name, {}, 0}, given("poll"), given("spin"));
  if (both || given("tcp"))
    flyt::run({Kind::kTcp, {}, "127.0.0.1", 0}, given("poll"), given("spin"));
  return 0;
}
