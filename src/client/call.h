// What every CUDA call does first (is there a session, a context, a live handle?) and last (send
// the command, take the answer). Generated stubs and hooks are written with it:
//
//   CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
//     const CUresult no = client::enter(client::Needs::kContext);
//     if (no != CUDA_SUCCESS) return no;
//     ... client::check(hEvent), client::check(hStream) in the same way ...
//     return client::post(commands::EventRecord{.hEvent = hEvent, .hStream = hStream});
//   }
//
// Every export calls enter() before anything else, so hooks may use session() and context().
#pragma once

#include <cstdint>
#include <span>

#include "client/context.h"
#include "client/current.h"
#include "client/session.h"
#include "cuda/types.h"
#include "wire/fields.h"

namespace flyt::client {

enum class Needs : std::uint8_t {
  kNothing,  // Works before cuInit.
  kInit,     // cuInit was called and the server is there.
  kContext,  // ... and the thread has a live current context without a sticky error.
  kQuery,    // As kContext; allowed in a stream's callback too.
};

// The calling thread's current context is this one while the scope lasts; null changes nothing. A
// current context that has been destroyed stays, for enter() to tell.
class ContextScope {
 public:
  explicit ContextScope(ContextState* context) : before_(thread_state().current_state) {
    adopted_ = context != nullptr && context != before_ &&
               (before_ == nullptr || before_->live.load(std::memory_order_relaxed) != 0);
    if (adopted_) set_current(context);
  }
  ~ContextScope() {
    if (adopted_) set_current(before_);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  ContextState* const before_;
  bool adopted_ = false;
};

// A module, function, event, array or block of memory brings its context along: a thread that has
// none current may make calls on it, and one that has must have that in order. Null: an object that
// belongs to no context needs none.
//
//   const ContextOf home(module->context);
//   if (home.bad() != CUDA_SUCCESS) return home.bad();
class ContextOf {
 public:
  explicit ContextOf(ContextState* context);
  CUresult bad() const { return bad_; }

 private:
  ContextScope scope_;
  CUresult bad_ = CUDA_SUCCESS;
};

// The context that an object brings along, as natively. Null, so that the current one counts, for
// default streams, for what is no such object, and before cuInit. Generated exports that have a
// stream or a reference start with `const ContextScope scope(home_of(stream));`: commands and
// errors are that context's, whatever the thread's current one is.
ContextState* home_of(CUstream stream);
ContextState* home_of(CUfunction function);
ContextState* home_of(CUarray array);
ContextState* home_of(CUmipmappedArray array);
ContextState* home_of(CUtexref reference);
ContextState* home_of(CUsurfref reference);
ContextState* home_of(const Memory& memory);

// CUDA_SUCCESS, or what the call must return at once.
CUresult enter(Needs needs);

// Only after enter(kInit) or enter(kContext) succeeded on this thread.
inline Session& session() { return *current_session(); }
// Only after enter(kContext) succeeded on this thread.
inline ContextState& context() { return *thread_state().current_state; }

// The context to which belongs what is made while context() is current.
inline ContextState& owner() { return *context().home; }

// CUDA_ERROR_INVALID_HANDLE unless the handle is live.
CUresult check(CUevent handle);
CUresult check(CUmemoryPool handle);
CUresult check(CUmodule handle);
CUresult check(CUlibrary handle);
CUresult check(CUfunction handle);
CUresult check(CUkernel handle);
CUresult check(CUlinkState handle);
CUresult check(CUarray handle);
CUresult check(CUmipmappedArray handle);
CUresult check(CUtexref handle);
CUresult check(CUsurfref handle);
// CUDA_ERROR_INVALID_CONTEXT unless it is alive; CUDA_ERROR_CONTEXT_IS_DESTROYED if it was.
CUresult check(CUcontext handle);
// The default stream becomes CU_STREAM_PER_THREAD inside a PerThreadDefaultStream scope.
CUresult check(CUstream& handle);
// CUDA_ERROR_INVALID_DEVICE unless the ordinal exists.
CUresult check_device(CUdevice device);

// Sends a command that nobody waits for.
template <class Command>
CUresult post(const Command& command) {
  return session().post(command);
}

// Sends a command and waits for its answer. Never CUDA_SUCCESS without one. A device error becomes
// sticky for the current context. Views in `reply` are valid as long as `answer`. For calls whose
// result says nothing about earlier work.
template <class Command>
CUresult ask(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
  return session().ask(command, reply, answer);
}
template <class Command>
CUresult ask(const Command& command, typename Command::Reply& reply) {
  rpc::Reply answer;
  return session().ask(command, reply, answer);
}
template <class Command>
CUresult ask(const Command& command) {
  typename Command::Reply reply;
  return ask(command, reply);
}

// As of Session.
template <class Command, class Note>
CUresult ask_and_note(const Command& command, Note&& note) {
  typename Command::Reply reply;
  rpc::Reply answer;
  return session().ask_and_note(command, reply, answer, [&] { return note(reply); });
}

// The same for calls after which earlier work is known done (synchronise, query, blocking copy): in
// place of CUDA_SUCCESS it returns the error of an earlier posted command.
template <class Command>
CUresult call(const Command& command, typename Command::Reply& reply, rpc::Reply& answer) {
  const CUresult result = session().ask(command, reply, answer);
  return result == CUDA_SUCCESS ? session().take_posted_error() : result;
}
template <class Command>
CUresult call(const Command& command, typename Command::Reply& reply) {
  rpc::Reply answer;
  return call(command, reply, answer);
}
template <class Command>
CUresult call(const Command& command) {
  typename Command::Reply reply;
  return call(command, reply);
}

// The same for answers that never change; `reply` has no views.
template <class Command>
CUresult cached(const Command& command, typename Command::Reply& reply) {
  return ask(command, reply);
}

// What a refused call does: CUDA_ERROR_NOT_SUPPORTED, named in the log once a name.
CUresult refused(const char* name, const char* reason);

// The server has answered what cannot be: nothing that it says can be trusted any more. What the
// call returns; never CUDA_SUCCESS. Not while the session is kept steady.
CUresult distrust(std::string_view why);

// Copies what a reply has to where the caller wants it. A server that sends another number of
// values than was asked for is not believed any more.
template <class T>
CUresult deliver(const wire::List<T>& values, std::span<T> out) {
  if (values.size() != out.size()) return distrust("not as many values as were asked for");
  values.copy_to(out);
  return CUDA_SUCCESS;
}

// Tells why code is not run, once a reason.
void tell_refused_code(std::string_view reason);

}  // namespace flyt::client
