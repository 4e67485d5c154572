// Handles for other processes: events. Memory of cuMemAlloc stays in its process; what cuMemCreate
// made is shared by its file (vmm.cc).
#include "softgpu/abi/enter.h"
#include "softgpu/shared_event.h"

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Event> found;
    if (const CUresult bad = find_event(driver, event, found); bad != CUDA_SUCCESS) return bad;
    if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (found->shared() == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pHandle = found->shared()->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto shared = SharedEvent::open(handle);
    if (shared == nullptr) return CUDA_ERROR_MAP_FAILED;
    *phEvent = to_handle<CUevent>(driver.events().add(std::make_shared<Event>(
        context.handle(), CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, std::move(shared))));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
