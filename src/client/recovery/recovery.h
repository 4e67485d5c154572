// Recovery: how a session goes on when its server process was killed.
//
// The client takes it to another process of the server, where its device memory is still there, and
// makes again under the same handles what it has beside: contexts, streams, events and code.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "client/session.h"
#include "rpc/channel.h"
#include "wire/hello.h"

namespace flyt::client {

class Replay;  // client/recovery/recovery_replay.h

// Code as it was loaded, for loading it again.
struct KeptCode {
  std::vector<std::byte> image;
  std::vector<std::int32_t> options;
  std::vector<std::uint64_t> values;
};

// Safe from any thread.
class Recovery {
 public:
  // Of all modules and libraries of a session together; one that has more cannot go on.
  static constexpr std::uint64_t kCodeBytesMax = 1 * kGiB;
  // Times that a session goes on; each leaves a little behind for threads that are late.
  static constexpr unsigned kTimesMax = 256;

  // Whether the server can do this.
  static bool possible(const rpc::Channel& channel);
  // By op: commands with which nothing is lost if they were sent and never arrived.
  static std::span<const bool> not_missed();
  // `share`: the session is in shared memory.
  Recovery(Session& session, rpc::PushHandler& pushes, const SessionOptions& options, bool share);
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  // The session is lost: true once it goes on. Where work was under way, all contexts have an error
  // that sticks until the program resets or destroys them: CUDA_ERROR_LAUNCH_FAILED, or that of a
  // fault which the work may have caused. False for ever: it cannot go on, and the log has been
  // told why.
  bool run() EXCLUDES(mutex_);

  // What a module or library was made of.
  void keep_code(std::uint64_t handle, Bytes image, const std::vector<std::int32_t>& options,
                 const std::vector<std::uint64_t>& values) EXCLUDES(code_mutex_);
  void drop_code(std::uint64_t handle) EXCLUDES(code_mutex_);
  std::shared_ptr<const KeptCode> code_of(std::uint64_t handle) EXCLUDES(code_mutex_);

  // How many times the session went on.
  unsigned times() const { return times_.load(std::memory_order_acquire); }

 private:
  using Opened = std::unique_ptr<rpc::Channel>;
  // What became of the work of the process that was lost. Whoever goes on may be lost, too, before
  // its client knows that it did, and has marks of its own by then.
  struct Verdict {
    bool known = false;
    bool lost = false;
    bool missed = false;      // Something was sent and not begun.
    bool unfinished = false;  // Of what was begun.
    // What was begun has changed nothing; that of it which is to be sent again.
    std::vector<rpc::Unfinished::Command> unchanging;
    std::uint64_t begun = 0;  // The last command of the first process that was lost.
    std::uint64_t done = 0;   // All work up to that command.
    // What the GPU wrote to the host, as often as it has arrived: HostMirror::take_pushes().
    std::optional<std::uint64_t> pushes;
    CUresult fault = CUDA_SUCCESS;
  };

  Status go_on() REQUIRES(mutex_);
  Result<Opened> open() REQUIRES(mutex_);
  // Makes everything again over a new channel. The error of work that was under way when the old
  // one broke; CUDA_SUCCESS: there was none, or it is done again. `verdict`: of the tries so far.
  // `steady` is taken as soon as the session is known to be one that can go on, and held: nothing
  // that is to be made again becomes known or is forgotten meanwhile.
  Result<CUresult> restore(rpc::Channel& to, Verdict& verdict,
                           std::unique_lock<std::shared_mutex>& steady) REQUIRES(mutex_);
  // `calls`: those without an answer.
  Status judge(Replay& replay, const std::vector<rpc::Unanswered>& calls, Verdict& verdict)
      REQUIRES(mutex_);
  void publish(Opened opened, CUresult work_lost) REQUIRES(mutex_);

  Session& session_;
  rpc::PushHandler& pushes_;
  const SessionOptions options_;
  const bool share_;
  const std::vector<wire::Window> windows_;
  const wire::SessionToken token_;
  const Duration returns_;  // How long another server may take to come in place of this one.
  std::atomic<unsigned> times_{0};
  Mutex mutex_;
  bool given_up_ GUARDED_BY(mutex_) = false;
  Mutex code_mutex_;
  std::map<std::uint64_t, std::shared_ptr<const KeptCode>> code_ GUARDED_BY(code_mutex_);
  std::uint64_t code_bytes_ GUARDED_BY(code_mutex_) = 0;
  bool too_much_code_ GUARDED_BY(code_mutex_) = false;
};

}  // namespace flyt::client
