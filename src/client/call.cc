#include "client/call.h"

#include "client/code/code_state.h"
#include "client/memory_state.h"
#include "client/refusals.h"

namespace flyt::client {
namespace {

template <class Handle, class TableOf>
ContextState* home_in(Handle handle, TableOf&& table_of) {
  Session* session = current_session();
  if (session == nullptr) return nullptr;
  const auto* state = table_of(*session).find(address_of(handle));
  return state == nullptr ? nullptr : state->context;
}

CUresult handle_result(bool live) { return live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

}  // namespace

ContextOf::ContextOf(ContextState* context)
    : scope_(context),
      bad_(enter(thread_state().current_state == nullptr ? Needs::kInit : Needs::kContext)) {}

ContextState* home_of(CUstream stream) {
  // Default streams are the current context's.
  if (address_of(stream) <= wire::kStreamPerThread) return nullptr;
  return home_in(
      stream, [](Session & of) -> auto& { return of.memory().streams; });
}
ContextState* home_of(CUfunction function) {
  return home_in(
      function, [](Session & of) -> auto& { return of.code().functions; });
}
ContextState* home_of(CUarray array) {
  return home_in(
      array, [](Session & of) -> auto& { return of.memory().images.arrays; });
}
ContextState* home_of(CUmipmappedArray array) {
  return home_in(
      array, [](Session & of) -> auto& { return of.memory().images.mipmapped_arrays; });
}
ContextState* home_of(CUtexref reference) {
  return home_in(
      reference, [](Session & of) -> auto& { return of.memory().images.texture_references; });
}
ContextState* home_of(CUsurfref reference) {
  return home_in(
      reference, [](Session & of) -> auto& { return of.memory().images.surface_references; });
}
ContextState* home_of(const Memory& memory) {
  return memory.context == 0
             ? nullptr
             : session().contexts().find(static_cast<CUcontext>(pointer_at(memory.context)));
}

CUresult enter(Needs needs) {
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  Session* session = current_session();
  if (session == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const ThreadState& thread = thread_state();
  const bool permitted = thread.host_call == HostCall::kNone ||
                         (thread.host_call == HostCall::kCallback && needs == Needs::kQuery);
  if (!permitted) return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult lost = session->health(); lost != CUDA_SUCCESS) return lost;
  if (needs == Needs::kInit) return CUDA_SUCCESS;
  const ContextState* context = thread.current_state;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->live.load(std::memory_order_relaxed) != thread.current) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return static_cast<CUresult>(context->home->sticky.load(std::memory_order_relaxed));
}

CUresult check(CUmodule handle) {
  return handle_result(session().code().modules.find(address_of(handle)) != nullptr);
}
CUresult check(CUlibrary handle) {
  return handle_result(session().code().libraries.find(address_of(handle)) != nullptr);
}
CUresult check(CUfunction handle) {
  return handle_result(session().code().functions.find(address_of(handle)) != nullptr);
}
CUresult check(CUkernel handle) {
  return handle_result(session().code().kernels.find(address_of(handle)) != nullptr);
}
CUresult check(CUlinkState handle) {
  return handle_result(session().code().links.find(address_of(handle)) != nullptr);
}
CUresult check(CUcontext handle) {
  const ContextState* state = session().contexts().find(handle);
  if (state == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return state->live.load() == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}
CUresult check_device(CUdevice device) {
  return session().devices().find(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult refused(const char* name, const char* reason) {
  if (Session* session = current_session()) {
    session->refusals().note(session->log(), name, reason);
    session->code().driver_log.write(CU_LOG_LEVEL_ERROR, std::string(name) + ": " + reason);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult distrust(std::string_view why) {
  session().channel().shut_down(why);
  const CUresult lost = session().health();
  // It has gone on in another process by now, which has not said that.
  return lost == CUDA_SUCCESS ? CUDA_ERROR_UNKNOWN : lost;
}

void tell_refused_code(std::string_view reason) {
  constexpr std::size_t kReasonBytesMax = 1024;
  reason = reason.substr(0, std::min(reason.size(), kReasonBytesMax));
  while (reason.ends_with('\n')) reason.remove_suffix(1);
  Session& ours = session();
  ours.code().driver_log.write(CU_LOG_LEVEL_ERROR, reason);
  if (ours.refusals().first(std::string(reason))) {
    ours.log().warn("code refused", {{"reason", reason}});
  }
}

}  // namespace flyt::client
