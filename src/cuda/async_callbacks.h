// AsyncCallbacks: who wants to be told of a device's notifications. The only kind that CUDA has
// tells that a budget of memory is exceeded; there are no budgets here, so nobody is ever called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::cuda {

// Safe from any thread.
class AsyncCallbacks {
 public:
  static constexpr std::size_t kCallbacksMax = 65536;

  CUresult add(CUdevice device, CUasyncCallback callback, CUasyncCallbackHandle* out)
      EXCLUDES(mutex_);
  CUresult remove(CUdevice device, CUasyncCallbackHandle handle) EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::map<std::uint64_t, CUdevice> devices_ GUARDED_BY(mutex_);  // By the handle's number.
  std::uint64_t next_ GUARDED_BY(mutex_) = 1;
};

}  // namespace flyt::cuda
