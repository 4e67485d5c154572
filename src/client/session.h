// Session: everything a client process knows about its GPU server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "client/code/code_state.h"
#include "client/context.h"
#include "client/device_cache.h"
#include "client/exchange.h"
#include "client/graphs/captures.h"
#include "client/memory/host_mirror.h"
#include "client/refusals.h"
#include "cuda/compile_cache.h"
#include "cuda/context_storage.h"
#include "cuda/types.h"
#include "rpc/channel.h"

namespace flyt::client {

class MemoryState;     // Memory, streams, events, pools, host functions: client/memory_state.h.
class Graphs;          // Graphs, and what of the program they use: client/graphs/graphs.h.
class RecoveryThread;  // Looks whether it has to: client/recovery/recovery_thread.h.
class Recovery;        // How it goes on when its process was killed: client/recovery/recovery.h.

struct SessionOptions {
  std::string url;             // As FLYT_SERVER.
  std::string credential;      // What the server is shown; empty: as the environment says.
  Duration connect_timeout{};  // Covers connecting and the hello.
  LogLevel log_level = LogLevel::kWarn;
  CodeSending code;          // open() of a URL sets it as the URL says, and the next two.
  bool recoverable = false;  // The session goes on when its process was killed.
  bool replays = false;      // And what was not done is done again.
  Duration recovery_patience = std::chrono::minutes(10);  // Until it does.
  Duration fence_patience{};  // As of Fences: how long a wait looks at a word of its own.
  rpc::ChannelOptions channel;
};

// What a command names that ends something: a session that goes on elsewhere has it no more.
constexpr bool ends_something(std::string_view name) {
  return name.ends_with("_destroy") || name.starts_with("destroy_") || name.ends_with("_free") ||
         name == "drop_upload" || name == "host_call_done" || name == "unshare";
}

// How long a wait looks before it sleeps where the program wants its threads to sleep: it would
// take longer to put one to sleep and wake it again.
inline constexpr Duration kSleepersSpin = std::chrono::microseconds(50);

// Owns the channel and all client state. Safe from any thread. A process's own one lives until the
// process ends: threads may be inside calls when it exits.
class Session {
 public:
  // Connects, greets, and fetches what never changes about the devices; again, a few times, if
  // whoever is to greet ends before it does.
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

  // CUDA_ERROR_DEVICE_UNAVAILABLE once the server is lost, for ever. One load while it is there. A
  // session that can goes on in another process of the server first.
  CUresult health() {
    if (!channel_->lost()) [[likely]]
      return CUDA_SUCCESS;
    return recover() ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  // After a command met the loss: CUDA_SUCCESS if the session goes on and the command is to be sent
  // again; else what the call returns.
  CUresult after_loss();
  // How the session goes on; null if it ends with its process.
  Recovery* recovery() { return recovery_.get(); }
  // Into how many other processes of the server the session has gone on. Whoever has sent something
  // and sees the same number before and behind that has sent it to one and the same.
  unsigned times_recovered() const;

  const DeviceCache& devices() const { return devices_; }
  Contexts& contexts() { return *contexts_; }
  MemoryState& memory() { return *memory_; }
  CodeState& code() { return *code_; }
  Captures& captures() { return captures_; }
  Graphs& graphs() { return *graphs_; }
  cuda::ContextStorage& storage() { return storage_; }
  cuda::CompileCache& compile_cache() { return compile_cache_; }
  Refusals& refusals() { return refusals_; }

  // Sends a command that nobody waits for, in the calling thread's current context. While streams
  // are captured, one that is for a stream is waited for: a capture refuses at once.
  template <class Command>
  CUresult post(const Command& command) {
    if constexpr (requires { command.stream; }) {
      if (captures_.any()) return post_and_hear(command);
    }
    const auto attempt = [&] {
      return behind_mirror(Command::kOp, [&] { return send(*channel_, context_index(), command); });
    };
    if (attempt()) [[likely]]
      return CUDA_SUCCESS;
    if constexpr (ends_something(Command::kName)) return after_loss();
    return again(attempt);
  }

  // One try of the same, for what belongs to one connection: a delivery, a block of a lane, under
  // the lock of steady(). False: after_loss() says how to go on, without that lock held.
  template <class Command>
  bool post_once(const Command& command) {
    if (mirror_ != nullptr) mirror_->before(Command::kOp);
    return send(*channel_, context_index(), command);
  }
  template <class Command>
  bool ask_once(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
    if (mirror_ != nullptr) mirror_->before(Command::kOp);
    return exchange(*channel_, context_index(), command, reply, answer);
  }
  // While it is held the session does not go on over another connection.
  std::shared_lock<std::shared_mutex> steady() { return std::shared_lock(steady_); }
  std::shared_mutex& steady_mutex() { return steady_; }

  // Sends again what met the loss, if the session goes on: `attempt` returns whether it was sent.
  template <class Attempt>
  CUresult again(Attempt&& attempt) {
    for (int tries = 0; tries < kAttemptsMax; ++tries) {
      if (const CUresult lost = after_loss(); lost != CUDA_SUCCESS) return lost;
      if (attempt()) return CUDA_SUCCESS;
    }
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }

  // The same, and waits until it was executed: its own error, or that of the lost session.
  template <class Command>
  CUresult post_and_hear(const Command& command) {
    std::uint64_t sequence = 0;
    const auto attempt = [&] {
      return behind_mirror(Command::kOp,
                           [&] { return send(*channel_, context_index(), command, &sequence); });
    };
    const CUresult lost = attempt() ? CUDA_SUCCESS : again(attempt);
    return lost == CUDA_SUCCESS ? hear(sequence) : lost;
  }

  // Sends a command in the calling thread's current context and waits for the answer; never
  // CUDA_SUCCESS without one. A device error becomes sticky. The error of an earlier posted
  // command is kept for take_posted_error().
  template <class Command>
  CUresult ask(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
    const auto attempt = [&] {
      return behind_mirror(Command::kOp, [&] {
        return exchange(*channel_, context_index(), command, reply, answer);
      });
    };
    if (!attempt()) [[unlikely]] {
      if (const CUresult lost = again(attempt); lost != CUDA_SUCCESS) return lost;
    }
    return settle(answer);
  }

  // The same for what is made again where the session goes on, if it is known by then: `note`
  // writes down what the answer tells before the session can go on. Only after CUDA_SUCCESS, and
  // once; it returns what the call returns, and waits for nobody.
  template <class Command, class Note>
  CUresult ask_and_note(const Command& command, typename Command::Reply& reply, rpc::Reply& answer,
                        Note&& note) {
    CUresult result = CUDA_SUCCESS;
    const auto attempt = [&] {
      const auto steady = this->steady();
      if (!ask_once(command, reply, answer)) return false;
      result = settle(answer);
      if (result == CUDA_SUCCESS) result = note();
      return true;
    };
    const CUresult lost = attempt() ? CUDA_SUCCESS : again(attempt);
    return lost == CUDA_SUCCESS ? result : lost;
  }
  // As post(), likewise.
  template <class Command, class Note>
  CUresult post_and_note(const Command& command, Note&& note) {
    const auto attempt = [&] {
      const auto steady = this->steady();
      if (!post_once(command)) return false;
      note();
      return true;
    };
    if (!captures_.any()) return attempt() ? CUDA_SUCCESS : again(attempt);
    // It is heard, and a session that captures does not go on.
    const CUresult result = post(command);
    if (result == CUDA_SUCCESS) note();
    return result;
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
  // Before that the error of work that was lost, which another thread may have met since this
  // thread's call began.
  CUresult take_posted_error() {
    if (const ContextState* const context = thread_state().current_state) {
      const int lost = context->home->sticky.load(std::memory_order_relaxed);
      if (lost != 0) return static_cast<CUresult>(lost);
    }
    if (posted_error_.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
    return static_cast<CUresult>(posted_error_.exchange(0));
  }

  // The index of the calling thread's current context for command headers; 0 if it has none or it
  // is not alive.
  static std::uint32_t context_index();

 private:
  class Pushes;
  static constexpr int kAttemptsMax = 8;

  Session(const SessionOptions& options);
  // What is the same however often a session is begun.
  struct Terms {
    bool share = false;  // Go on in shared memory if the server offers it.
    Instant deadline{};
    std::vector<wire::Window> windows;
  };
  // kLost: the other end is gone, and a new one may greet.
  Status start(std::unique_ptr<transport::Connection> connection, const Terms& terms,
               const SessionOptions& options);

  // One try to send a command: ahead of it, over the same connection, what the program has written
  // where kernels reach it.
  template <class Attempt>
  bool behind_mirror(std::uint16_t op, Attempt&& attempt) {
    if (mirror_ == nullptr || !mirror_->concerns(op)) [[likely]]
      return attempt();
    const auto steady = this->steady();
    mirror_->before(op);
    return attempt();
  }

  CUresult hear(std::uint64_t sequence);
  bool recover();

  Log log_;
  std::atomic<bool> waits_sleep_{false};
  std::unique_ptr<Pushes> pushes_;
  std::unique_ptr<rpc::Channel> channel_;
  DeviceCache devices_;
  cuda::ContextStorage storage_;
  cuda::CompileCache compile_cache_;
  Refusals refusals_;
  std::unique_ptr<Contexts> contexts_;
  std::unique_ptr<CodeState> code_;
  std::unique_ptr<MemoryState> memory_;
  Captures captures_;
  std::unique_ptr<Graphs> graphs_;
  HostMirror* mirror_ = nullptr;  // memory_'s.
  std::unique_ptr<Recovery> recovery_;
  std::unique_ptr<RecoveryThread> recovery_thread_;
  std::shared_mutex steady_;
  std::atomic<int> posted_error_{0};
  std::unique_ptr<transport::Connection> desk_;
};

}  // namespace flyt::client
