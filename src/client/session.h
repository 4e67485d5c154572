// Session: everything a client process knows about its GPU server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "client/captures.h"
#include "client/code_state.h"
#include "client/context.h"
#include "client/device_cache.h"
#include "client/exchange.h"
#include "client/host_mirror.h"
#include "client/refusals.h"
#include "cuda/context_storage.h"
#include "cuda/types.h"
#include "rpc/channel.h"

namespace flyt::client {

class MemoryState;  // Memory, streams, events, pools, host functions: client/memory_state.h.
class Graphs;       // Graphs, and what of the program they use: client/graphs.h.

struct SessionOptions {
  std::string url;             // As FLYT_SERVER.
  std::string credential;      // What the server is shown; empty: as the environment says.
  Duration connect_timeout{};  // Covers connecting and the hello.
  LogLevel log_level = LogLevel::kWarn;
  CodeSending code;           // open() of a URL sets it as the URL says.
  Duration fence_patience{};  // As of Fences: how long a wait looks at a word of its own.
  rpc::ChannelOptions channel;
};

// How long a wait looks before it sleeps where the program wants its threads to sleep: it would
// take longer to put one to sleep and wake it again.
inline constexpr Duration kSleepersSpin = std::chrono::microseconds(50);

// Owns the channel and all client state. Safe from any thread. A process's own one lives until the
// process ends: threads may be inside calls when it exits.
class Session {
 public:
  // Connects, greets, and fetches what never changes about the devices.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);
  // The same over a connection that is there already (simulator).
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<transport::Connection> connection,
                                               const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // A connection to the client manager, to be open for as long as the session is.
  void keep(std::unique_ptr<transport::Connection> desk) { desk_ = std::move(desk); }
  // In a child after fork(): the parent's connections stay as they are.
  void abandon_after_fork() {
    channel_->abandon_after_fork();
    if (desk_ != nullptr) desk_->abandon();
  }

  rpc::Channel& channel() { return *channel_; }
  const Log& log() const { return log_; }

  // CUDA_ERROR_DEVICE_UNAVAILABLE once the server is lost, for ever. One load while it is there.
  CUresult health() const {
    return channel_->lost() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
  }

  const DeviceCache& devices() const { return devices_; }
  Contexts& contexts() { return *contexts_; }
  MemoryState& memory() { return *memory_; }
  CodeState& code() { return *code_; }
  Captures& captures() { return captures_; }
  Graphs& graphs() { return *graphs_; }
  cuda::ContextStorage& storage() { return storage_; }
  Refusals& refusals() { return refusals_; }

  // Sends a command that nobody waits for, in the calling thread's current context. While streams
  // are captured, one that is for a stream is waited for: a capture refuses at once.
  template <class Command>
  CUresult post(const Command& command) {
    if constexpr (requires { command.stream; }) {
      if (captures_.any()) return post_and_hear(command);
    }
    if (mirror_ != nullptr) mirror_->before(Command::kOp);
    return send(*channel_, context_index(), command) ? CUDA_SUCCESS : health();
  }

  // The same, and waits until it was executed: its own error, or that of the lost session.
  template <class Command>
  CUresult post_and_hear(const Command& command) {
    if (mirror_ != nullptr) mirror_->before(Command::kOp);
    std::uint64_t sequence = 0;
    return send(*channel_, context_index(), command, &sequence) ? hear(sequence) : health();
  }

  // Sends a command in the calling thread's current context and waits for the answer; never
  // CUDA_SUCCESS without one. A device error becomes sticky. The error of an earlier posted
  // command is kept for take_posted_error().
  template <class Command>
  CUresult ask(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
    if (mirror_ != nullptr) mirror_->before(Command::kOp);
    if (!exchange(*channel_, context_index(), command, reply, answer)) return health();
    return settle(answer);
  }

  // What an answer means for the calling thread's context and for posted errors; its own result.
  CUresult settle(const rpc::Reply& answer);

  // The program wants threads that wait to sleep; from now on all of the session's do.
  void let_waits_sleep() {
    waits_sleep_.store(true, std::memory_order_relaxed);
    channel_->limit_reply_spin(kSleepersSpin);
  }
  bool waits_sleep() const { return waits_sleep_.load(std::memory_order_relaxed); }

  // The error of an earlier posted command that no call has returned yet, which is then forgotten.
  CUresult take_posted_error() {
    if (posted_error_.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
    return static_cast<CUresult>(posted_error_.exchange(0));
  }

  // The index of the calling thread's current context for command headers; 0 if it has none or it
  // is not alive.
  static std::uint32_t context_index();

 private:
  class Pushes;

  Session(const SessionOptions& options);
  // `share`: go on in shared memory if the server offers it.
  Status start(std::unique_ptr<transport::Connection> connection, bool share,
               const SessionOptions& options, Instant deadline);

  CUresult hear(std::uint64_t sequence);

  Log log_;
  std::atomic<bool> waits_sleep_{false};
  std::unique_ptr<Pushes> pushes_;
  std::unique_ptr<rpc::Channel> channel_;
  DeviceCache devices_;
  cuda::ContextStorage storage_;
  Refusals refusals_;
  std::unique_ptr<Contexts> contexts_;
  std::unique_ptr<CodeState> code_;
  std::unique_ptr<MemoryState> memory_;
  Captures captures_{*this};
  std::unique_ptr<Graphs> graphs_;
  HostMirror* mirror_ = nullptr;  // memory_'s.
  std::atomic<int> posted_error_{0};
  std::unique_ptr<transport::Connection> desk_;
};

// True for errors after which a context is unusable: the kernel or the device failed.
bool is_sticky(CUresult result);

}  // namespace flyt::client
