// For tests: a client Channel and a server Endpoint on its own thread, over any connection pair.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rpc/channel.h"
#include "rpc/endpoint.h"
#include "transport/sim.h"
#include "transport/transport.h"

namespace flyt::rpc::testing {

// Ops that TestServer knows.
inline constexpr std::uint16_t kOpNote = 16;     // Posted: remembers the payload.
inline constexpr std::uint16_t kOpEcho = 17;     // Waits: the payload comes back.
inline constexpr std::uint16_t kOpCopyOut = 18;  // Waits: u64 delivery, u64 size: counts bytes out.
inline constexpr std::uint16_t kOpFail = 19;     // Posted: u32 result: fails with it.
inline constexpr std::uint16_t kOpBulk = 20;     // Posted: u64 offset, then data.
inline constexpr std::uint16_t kOpRefuse = 21;   // The handler refuses it.
inline constexpr std::uint16_t kOpCopyOutPosted = 22;  // Posted: the same as kOpCopyOut.
inline constexpr std::uint16_t kOpHostCall = 23;       // Posted: u64 token: a host call comes back.
inline constexpr std::uint16_t kOpHold = 24;           // Waits: answered by release_held().
inline constexpr std::uint16_t kOpWithhold =
    25;  // Posted: acknowledged with others, see withheld_max.
inline constexpr std::uint16_t kOpRelease =
    26;  // Posted: releases them, and sets withheld_max to 1.

// The byte at `offset` of the test pattern.
inline std::byte pattern(std::uint64_t offset) {
  return static_cast<std::byte>((offset * 2654435761U) >> 11);
}

// Executes the ops above. Its members are safe to read once the session is over or, for the
// atomics, at any time.
class TestServer final : public CommandHandler {
 public:
  explicit TestServer(std::unique_ptr<transport::Connection> connection)
      : connection_(std::move(connection)) {}
  ~TestServer() override { stop(); }

  // Greets and serves until the session is over, on a thread.
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void stop() {
    if (thread_.joinable()) thread_.join();
  }

  // The session has ended by the client's goodbye.
  bool stop_in_order() {
    stop();
    return in_order;
  }

  Status on_command(const Command& command) override;

  // Ends the session from another thread.
  void end(std::string_view reason) {
    wait_until_open();
    endpoint_->end(wire::EndedCode::kShutdown, reason);
  }
  void release_held();
  void wait_until_open() {
    while (!open_.load()) std::this_thread::yield();
  }
  Endpoint& endpoint() { return *endpoint_; }

  std::vector<std::string> notes;
  std::vector<std::uint32_t> note_threads;
  std::vector<std::byte> bulk;
  std::atomic<std::uint64_t> commands{0};
  std::atomic<bool> stalled{false};                     // While set, the server reads nothing.
  std::atomic<std::uint64_t> withheld_max{UINT64_MAX};  // They are released when there are so many.
  std::string ended_with;
  bool in_order = false;
  bool greeted = false;

 private:
  void run();
  Status copy_out(const Command& command, bool waits);
  void withhold(const Command& command);

  std::unique_ptr<transport::Connection> connection_;
  HeapBufferPool pool_;
  std::unique_ptr<Endpoint> endpoint_;
  std::atomic<bool> open_{false};
  std::uint64_t withheld_ = 0;
  std::uint64_t withheld_bytes_ = 0;
  std::mutex held_mutex_;
  std::vector<std::uint64_t> held_;
  std::thread thread_;
};

// Counts what is pushed.
class TestPushes final : public PushHandler {
 public:
  // A host function that is one too many.
  static constexpr std::uint64_t kTooMany = 4712;

  bool on_host_call(std::uint64_t, std::uint64_t token, Bytes) override {
    host_call.store(token);
    return token != kTooMany;
  }
  void on_output(std::uint32_t, Bytes text) override {
    const std::lock_guard lock(mutex);
    output += text_of(text);
  }
  void on_delivered(std::uint64_t delivery, bool dropped) override {
    (dropped ? this->dropped : delivered).store(delivery);
  }
  void on_completed(std::uint64_t token, std::uint64_t result) override {
    completed_result.store(result);
    completed.store(token);
  }
  void on_lost(const Error& error) override {
    const std::lock_guard lock(mutex);
    loss = error.message;
    losses.fetch_add(1);
  }

  std::atomic<std::uint64_t> host_call{0};
  std::atomic<std::uint64_t> delivered{0};
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> completed_result{0};
  std::atomic<int> losses{0};
  std::mutex mutex;
  std::string output;
  std::string loss;
};

inline Instant soon(int seconds = 20) {
  return system_clock().now() + std::chrono::seconds(seconds);
}

// A connected client and server.
struct Session {
  explicit Session(transport::ConnectionPair pair, const ChannelOptions& options = {},
                   const wire::Limits& limits = {});
  ~Session();

  TestPushes pushes;
  TestServer server;
  std::unique_ptr<Channel> channel;  // Null if the hello failed.
  std::string open_error;
};

// Kinds of connection that every test of a session runs over.
enum class PairKind { kUnix, kTcp, kSim, kShm };
transport::ConnectionPair make_pair(PairKind kind, std::uint64_t seed = 1);
std::string name_of(PairKind kind);

// Posts a note / waits for an echo. Not ok: the session is lost.
bool post_note(Channel& channel, std::string_view text);
Result<std::string> echo(Channel& channel, std::string_view text);

}  // namespace flyt::rpc::testing
