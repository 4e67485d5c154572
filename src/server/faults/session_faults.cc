#include "server/faults/session_faults.h"

#include <unistd.h>

#include <string>

#include "server/graphs/graphs.h"
#include "server/recovery/marks.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// How long a driver may take to notice another process's fault: MPS was seen to take 2 ms.
constexpr Duration kNoticeMax = std::chrono::milliseconds(250);
constexpr Duration kNoticeLook = std::chrono::milliseconds(1);
// How long suspects wait for each other: some process may be held up.
constexpr Duration kSuspectsMax = std::chrono::seconds(4);
// What the client of a session that is lost may still hear.
constexpr Duration kTellTime = std::chrono::milliseconds(200);

bool of_device(CUresult fault) {
  return fault != CUDA_ERROR_MPS_RPC_FAILURE && fault != CUDA_ERROR_MPS_CLIENT_TERMINATED;
}

}  // namespace

void SessionFaults::watch(Session& session) {
  session_ = &session;
  worker_ = std::make_unique<FaultWorker>(parts_.board, [this] { clear_up(); });
}

void SessionFaults::note_alone(std::uint64_t sequence) {
  if (parts_.marks != nullptr && !parts_.marks->unsettled()) alone_since_.store(sequence);
}

bool SessionFaults::goes_on() const {
  const Recovery* const recovery = session_->recovery();
  return recovery != nullptr && recovery->may_go_on();
}

void SessionFaults::await() const {
  while (parts_.board.told() && goes_on()) system_clock().sleep_for(kNoticeLook);
}

void SessionFaults::see(CUresult result) {
  if (!is_gpu_fault(result)) return;
  int none = CUDA_SUCCESS;
  seen_.compare_exchange_strong(none, result);
  parts_.board.tell();
}

void SessionFaults::answer_fault(CUresult result, const Request& request) {
  // The driver has refused it for what had happened before: it was the first thing since all was
  // done. Who waits for it asks again.
  if (parts_.marks != nullptr && alone_since_.load() == request.sequence() &&
      parts_.marks->work() == request.sequence()) {
    refused_.store(true);
    if (request.waits()) parts_.marks->settle(request.sequence());
  }
  see(result);
  await();
}

CUresult SessionFaults::ask_contexts() {
  const auto using_objects = session_->use();
  // A query would end a capture.
  if (session_->graphs().capturing()) return CUDA_SUCCESS;
  for (const Handles::Entry& entry : session_->handles().all(wire::HandleKind::kContext)) {
    CUresult result = session_->driver().cuCtxSetCurrent(static_cast<CUcontext>(entry.native));
    if (result == CUDA_SUCCESS) result = session_->driver().cuStreamQuery(CU_STREAM_LEGACY);
    if (is_gpu_fault(result)) return result;
  }
  return CUDA_SUCCESS;
}

bool SessionFaults::concerned() {
  if (session_->handles().all(wire::HandleKind::kContext).empty() && (parts_.warm || goes_on())) {
    return true;
  }
  const Instant until = system_clock().now() + kNoticeMax;
  while (seen_.load() == CUDA_SUCCESS && system_clock().now() < until) {
    const CUresult result = ask_contexts();
    if (result != CUDA_SUCCESS) {
      seen_.store(result);
    } else {
      system_clock().sleep_for(kNoticeLook);
    }
  }
  return seen_.load() != CUDA_SUCCESS;
}

void SessionFaults::clear_up() {
  if (!concerned()) return parts_.board.stay();
  Marks* const marks = parts_.marks;
  const bool unsettled = marks == nullptr || marks->unsettled();
  const bool suspect = unsettled && !refused_.load();
  const auto seen = static_cast<CUresult>(seen_.load());
  // Work that is lost, or comes too late, gets the error that it would get natively.
  if (marks != nullptr && of_device(seen)) {
    marks->set_fault(static_cast<std::uint32_t>(seen));
  }
  // What its kernels have printed.
  if (suspect) session_->flush_before_reply();
  const bool returns = goes_on();
  parts_.board.give(suspect ? FaultPart::kSuspect : FaultPart::kInnocent);
  tell_end(!returns ? Outcome::kLost : unsettled ? Outcome::kWithError : Outcome::kGoesOn, suspect);
  if (!returns) system_clock().sleep_for(kTellTime);
  ::_exit(kExitGpuFault);
}

void SessionFaults::tell_end(Outcome outcome, bool suspect) {
  const auto error = static_cast<std::uint32_t>(seen_.load());
  UsageSlot usage = own_usage();
  if (suspect) {
    const std::uint32_t suspects = parts_.board.suspects(system_clock().now() + kSuspectsMax);
    usage.note_suspect(
        {.error = error, .suspects = suspects, .goes_on = outcome != Outcome::kLost});
    return parts_.log.warn(suspects == 1 ? "the session's work faulted on a shared GPU"
                                         : "the session's work may have faulted on a shared GPU",
                           {{"pid", ::getpid()}, {"error", error}, {"suspects", suspects}});
  }
  usage.note_innocent(outcome == Outcome::kGoesOn);
  parts_.log.info("another session's work faulted on the shared GPU",
                  {{"pid", ::getpid()}, {"goes_on", outcome != Outcome::kLost}});
}

}  // namespace flyt::server
