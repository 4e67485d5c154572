// SessionFaults: what a session does about faults on a GPU that processes share: whether it may
// have caused one, and how it goes on. docs/recovery.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/log.h"
#include "cuda/types.h"
#include "server/faults/fault_board.h"
#include "server/faults/fault_worker.h"

namespace flyt::server {

class Marks;
class Request;
class Session;

// What it works with; all of it outlives the session.
struct FaultParts {
  FaultBoard& board;
  Marks* marks = nullptr;  // Null: nobody knows what is under way.
  const Log& log;
  bool warm = false;  // The process had a context before it had the session.
};

class SessionFaults {
 public:
  explicit SessionFaults(const FaultParts& parts) : parts_(parts) {}

  // From now on the process ends after a fault that concerns it.
  void watch(Session& session);

  // Main thread: a command is about to begin. While a fault is cleared up it does not come back,
  // and the command is as if it had never come.
  void before(std::uint64_t sequence) {
    if (parts_.board.told()) await();
    note_alone(sequence);
  }
  // An answer that is about to be given: if it tells of a fault, and the session goes on in another
  // process, this does not come back. Safe from any thread.
  void before_answer(CUresult result, const Request& request) {
    if (is_gpu_fault(result)) answer_fault(result, request);
  }
  // What the driver said of itself. Safe from any thread.
  void see(CUresult result);

 private:
  enum class Outcome : std::uint8_t { kGoesOn, kWithError, kLost };

  void note_alone(std::uint64_t sequence);
  void answer_fault(CUresult result, const Request& request);
  void await() const;
  bool goes_on() const;
  // Whether the contexts of this process are lost, as far as the driver says so soon.
  bool concerned();
  CUresult ask_contexts();
  // Ends the process, if the fault concerns it.
  void clear_up();
  void tell_end(Outcome outcome, bool suspect);

  const FaultParts parts_;
  Session* session_ = nullptr;
  std::atomic<int> seen_{CUDA_SUCCESS};
  // The command that began when all before it was done.
  std::atomic<std::uint64_t> alone_since_{0};
  // Nothing but the refused command was under way, which can have caused nothing.
  std::atomic<bool> refused_{false};
  std::unique_ptr<FaultWorker> worker_;
};

}  // namespace flyt::server
