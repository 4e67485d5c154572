// SharedFaults: one GPU that processes have together, so that a kernel's fault in one of them is
// every process's, as under NVIDIA's MPS. FLYT_SOFTGPU_SHARED_FAULTS names the folder.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/annotations.h"
#include "base/roll.h"
#include "cuda/types.h"

namespace flyt::softgpu {

// What one process has of it. Safe from any thread.
class SharedFaults {
 public:
  // Processes with a context on one GPU.
  static constexpr std::size_t kProcessesMax = 1024;

  // Null where the folder cannot be used: then faults stay in their process.
  static std::unique_ptr<SharedFaults> open(const std::string& folder, unsigned unit);

  // Before a context is made: this process has a part in the GPU from then on until it ends.
  // CUDA_ERROR_MPS_SERVER_NOT_READY after a fault, until all processes that had a part have ended.
  CUresult enter() EXCLUDES(mutex_);

  // The first fault of any of them; CUDA_SUCCESS: none.
  CUresult fault() const {
    return entered_.load(std::memory_order_acquire)
               ? static_cast<CUresult>(page_->fault.load(std::memory_order_acquire))
               : CUDA_SUCCESS;
  }
  void tell(CUresult fault);

 private:
  struct Page {
    std::atomic<int> fault;
  };
  static_assert(std::atomic<int>::is_always_lock_free);

  explicit SharedFaults(Roll roll);

  const Roll roll_;
  Page* const page_;
  Mutex mutex_;
  std::atomic<bool> entered_{false};
};

}  // namespace flyt::softgpu
