// LostGpu: a software GPU that fails for good when a file appears, as others fall off their bus.
// FLYT_SOFTGPU_LOST names the folder.
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
  // No folder: it never fails.
  LostGpu(const std::string& folder, unsigned unit)
      : file_(folder.empty() ? "" : folder + "/lost-" + std::to_string(unit)) {}

  // CUDA_SUCCESS until it has failed, for as long as this process lives.
  CUresult error() const {
    if (!file_.empty() && !lost_.load(std::memory_order_relaxed)) {
      lost_.store(::access(file_.c_str(), F_OK) == 0, std::memory_order_relaxed);
    }
    return lost_.load(std::memory_order_relaxed) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_SUCCESS;
  }

 private:
  const std::string file_;
  mutable std::atomic<bool> lost_{false};
};

}  // namespace flyt::softgpu
