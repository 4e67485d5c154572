// LostGpu: why a software GPU is of no use any more to this process: a kernel of the process has
// faulted, or a file has appeared, as others fall off their bus. FLYT_SOFTGPU_LOST names the
// folder.
#pragma once

#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "cuda/types.h"

namespace flyt::softgpu {

// Safe from any thread.
class LostGpu {
 public:
  // No folder: it never fails by itself.
  LostGpu(const std::string& folder, unsigned unit)
      : file_(folder.empty() ? "" : folder + "/lost-" + std::to_string(unit)) {}

  // All contexts have that error from now on, and others cannot be made: as with NVIDIA's driver
  // only another process has a healthy GPU then (seen on an H100, driver 580, whatever contexts
  // were reset or destroyed).
  void fault(CUresult error) {
    CUresult none = CUDA_SUCCESS;
    fault_.compare_exchange_strong(none, error);
  }

  // CUDA_SUCCESS until it has failed, for as long as this process lives.
  CUresult error() const {
    if (const CUresult fault = fault_.load(std::memory_order_acquire); fault != CUDA_SUCCESS) {
      return fault;
    }
    if (!file_.empty() && !lost_.load(std::memory_order_relaxed)) {
      lost_.store(::access(file_.c_str(), F_OK) == 0, std::memory_order_relaxed);
    }
    return lost_.load(std::memory_order_relaxed) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
  }

 private:
  const std::string file_;
  mutable std::atomic<bool> lost_{false};
  std::atomic<CUresult> fault_{CUDA_SUCCESS};
};

}  // namespace flyt::softgpu
