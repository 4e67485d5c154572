#include "cuda/async_callbacks.h"

#include "base/bytes.h"

namespace flyt::cuda {

CUresult AsyncCallbacks::add(CUdevice device, CUasyncCallback callback,
                             CUasyncCallbackHandle* out) {
  if (callback == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(mutex_);
  if (devices_.size() == kCallbacksMax) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t number = next_++;
  devices_.emplace(number, device);
  *out = static_cast<CUasyncCallbackHandle>(pointer_at(number));
  return CUDA_SUCCESS;
}

CUresult AsyncCallbacks::remove(CUdevice device, CUasyncCallbackHandle handle) {
  const Lock lock(mutex_);
  const auto found = devices_.find(address_of(handle));
  if (found == devices_.end() || found->second != device) return CUDA_ERROR_INVALID_VALUE;
  devices_.erase(found);
  return CUDA_SUCCESS;
}

}  // namespace flyt::cuda
