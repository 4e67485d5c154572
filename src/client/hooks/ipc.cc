// Handles for other processes: memory and events of one server and user.
#include "client/hooks_ipc.h"

#include <cstring>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/ipc.h"

namespace flyt::client::hooks {
namespace {

static_assert(sizeof(CUipcMemHandle) == sizeof(SharedHandle));
static_assert(sizeof(CUipcEventHandle) == sizeof(SharedHandle));

template <class Handle>
SharedHandle shared_handle(const Handle& handle) {
  SharedHandle shared{};
  std::memcpy(shared.data(), handle.reserved, shared.size());
  return shared;
}

}  // namespace

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = session().memory().map().find(dptr);
  // What pools give and what is mapped have ways of their own.
  if (!memory || memory->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  SharedHandle handle{};
  const CUresult result = session().memory().shared().share(*memory, handle);
  if (result == CUDA_SUCCESS) std::memcpy(pHandle->reserved, handle.data(), handle.size());
  return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  // Natively any handle is bad then, before it is asked for a context.
  if (thread_state().current_state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pdptr == nullptr || (Flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const SharedHandle shared = shared_handle(handle);
  SharedMemory& memory = session().memory().shared();
  // What this process has made is for others to open.
  return memory.is_own(shared) ? CUDA_ERROR_INVALID_CONTEXT : memory.open(shared, *pdptr);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) { return session().memory().shared().close(dptr); }

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check(event); result != CUDA_SUCCESS) return result;
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const EventState* state = session().memory().events.find(address_of(event));
  if (state == nullptr || (state->flags & CU_EVENT_INTERPROCESS) == 0) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  commands::ShareEvent::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(commands::ShareEvent{.event = event}, reply, answer);
  if (result != CUDA_SUCCESS) return result;
  if (reply.handle.size() != sizeof pHandle->reserved) return CUDA_ERROR_UNKNOWN;
  std::memcpy(pHandle->reserved, reply.handle.data(), reply.handle.size());
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  MemoryState& memory = session().memory();
  const auto made = memory.events.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->context = &owner();
  made.state->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  const auto event = static_cast<CUevent>(pointer_at(made.handle));
  const SharedHandle shared = shared_handle(handle);
  const CUresult result = ask(commands::OpenEvent{.event = event, .handle = shared});
  if (result != CUDA_SUCCESS) {
    memory.events.discard(made.handle);
    return result;
  }
  memory.events.publish(made.handle);
  *phEvent = event;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
