// AsyncCallbacks: who wants to be told of a device's notifications. The only kind that CUDA has
// tells that a budget of memory is exceeded; there are no budgets here, so nobody is ever called.
#pragma once

#include <cstdint>
#include <map>

#include "base/annotations.h"
#include "base/bytes.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Safe from any thread.
class AsyncCallbacks {
 public:
  static constexpr std::size_t kCallbacksMax = 65536;

  CUresult add(CUdevice device, CUasyncCallback callback, CUasyncCallbackHandle* out) {
    if (callback == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(mutex_);
    if (devices_.size() == kCallbacksMax) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::uint64_t number = next_++;
    devices_.emplace(number, device);
    *out = static_cast<CUasyncCallbackHandle>(pointer_at(number));
    return CUDA_SUCCESS;
  }
  CUresult remove(CUdevice device, CUasyncCallbackHandle handle) {
    const Lock lock(mutex_);
    const auto found = devices_.find(address_of(handle));
    if (found == devices_.end() || found->second != device) return CUDA_ERROR_INVALID_VALUE;
    devices_.erase(found);
    return CUDA_SUCCESS;
  }

 private:
  Mutex mutex_;
  std::map<std::uint64_t, CUdevice> devices_ GUARDED_BY(mutex_);  // By the handle's number.
  std::uint64_t next_ GUARDED_BY(mutex_) = 1;
};

}  // namespace flyt::cuda
