// Call: what every CUDA call does first (is there a session, a context, a live handle?) and last
// (send the command, take the answer). Generated stubs and hooks are written with it:
//
//   CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
//     Call call(Need::kContext);
//     commands::EventRecord command;
//     command.hEvent = call.handle(hEvent);
//     command.hStream = call.handle(hStream);
//     return call.post(command);
//   }
#pragma once

#include <cstdint>
#include <string_view>

#include "client/context.h"
#include "client/current.h"
#include "client/session.h"
#include "cuda/default_stream.h"
#include "cuda/types.h"

namespace flyt::client {

enum class Need : std::uint8_t {
  kSession,  // cuInit was called.
  kContext,  // ... and the thread has a current context, which has no sticky error.
};

// One CUDA call on one thread. Every member may be called after a failure: it then does nothing and
// the first failure is what post(), wait() and result() return.
class Call {
 public:
  explicit Call(Need need) : session_(current_session()) {
    if (session_ == nullptr) {
      result_ = CUDA_ERROR_NOT_INITIALIZED;
      return;
    }
    result_ = session_->health();
    if (result_ == CUDA_SUCCESS && need == Need::kContext) enter_context();
  }

  bool ok() const { return result_ == CUDA_SUCCESS; }
  CUresult result() const { return result_; }
  // Keeps the first failure.
  CUresult fail(CUresult result) {
    if (ok()) result_ = result;
    return result_;
  }
  // CUDA_ERROR_INVALID_VALUE unless `condition`. Returns ok().
  bool require(bool condition) {
    if (!condition) fail(CUDA_ERROR_INVALID_VALUE);
    return ok();
  }

  // Only where ok().
  Session& session() { return *session_; }
  ContextState& context() { return *context_; }  // Needs kContext.
  MemoryState& memory() { return session_->memory(); }
  // The context index for command headers; 0 without one.
  std::uint32_t context_index() const { return context_ == nullptr ? 0 : context_->index; }

  // The wire value of a handle; fails with CUDA_ERROR_INVALID_HANDLE unless it is live.
  // Streams: 0 becomes 1 (legacy) or 2 (per thread) as the entry point demands; those need no table.
  std::uint64_t handle(CUstream stream);
  std::uint64_t handle(CUevent event);
  std::uint64_t handle(CUmemoryPool pool);
  std::uint64_t handle(CUmodule module);
  std::uint64_t handle(CUlibrary library);
  std::uint64_t handle(CUfunction function);  // Also takes a CUkernel, as launches do.
  std::uint64_t handle(CUkernel kernel);
  std::uint64_t handle(CUlinkState link);
  std::uint64_t handle(CUcontext context);
  // Fails with CUDA_ERROR_INVALID_DEVICE unless the ordinal exists.
  CUdevice device(CUdevice device);

  // `new` arguments of generated stubs: takes a handle for the command, and gives it to the program
  // once the command is sent. One table per kind decides (overloads as for handle()).
  std::uint64_t create(CUstream* out);
  std::uint64_t create(CUevent* out);
  // `drop` arguments: ends the handle at once, so that its second use is refused.
  std::uint64_t drop(CUstream stream);
  std::uint64_t drop(CUevent event);

  // Sends a command that no one waits for.
  template <class Command>
  CUresult post(const Command& command) {
    if (!ok()) return result_;
    if (!session_->channel().post(command, context_index(), thread_state().number)) {
      return fail(session_->health());
    }
    return CUDA_SUCCESS;
  }

  // Sends a command and waits for its answer. Views in `reply` stay valid as long as this Call.
  // Returns reply.result after making a device error sticky; never CUDA_SUCCESS without an answer.
  template <class Command>
  CUresult wait(const Command& command, typename Command::Reply& reply) {
    if (!ok()) return result_;
    if (!exchange(command, reply)) return fail(session_->health());
    return fail(session_->settle(context_, reply.result));
  }
  // For commands whose reply has no fields.
  template <class Command>
  CUresult wait(const Command& command) {
    typename Command::Reply reply;
    return wait(command, reply);
  }
  // A wait after which earlier work is known done (synchronise, query, blocking copy): an earlier
  // posted command's error is returned in place of CUDA_SUCCESS.
  template <class Command>
  CUresult wait_and_surface(const Command& command, typename Command::Reply& reply) {
    const CUresult result = wait(command, reply);
    return result == CUDA_SUCCESS ? fail(session_->take_posted_error()) : result;
  }

 private:
  void enter_context() {
    context_ = session_->current_context(result_);
    if (context_ == nullptr) return;
    const int sticky = context_->sticky.load(std::memory_order_relaxed);
    if (sticky != 0) result_ = static_cast<CUresult>(sticky);
  }
  template <class Command>
  bool exchange(const Command& command, typename Command::Reply& reply);

  Session* session_;
  ContextState* context_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  rpc::Reply answer_;
};

// What a refused call does: CUDA_ERROR_NOT_SUPPORTED, named in the log once a name.
CUresult refused(const char* name, const char* reason);

}  // namespace flyt::client
