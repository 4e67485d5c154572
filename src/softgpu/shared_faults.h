// SharedFaults: one GPU that processes have together, so that a kernel's fault in one of them is
// every process's, as under NVIDIA's MPS. FLYT_SOFTGPU_SHARED_FAULTS names the folder.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/annotations.h"
#include "base/roll.h"
#include "cuda/types.h"

namespace flyt::softgpu {

// What one process has of it. Safe from any thread.
class SharedFaults {
 public:
  // Processes with a context on one GPU, and contexts.
  static constexpr std::size_t kProcessesMax = 1024;
  static constexpr std::size_t kContextsMax = 1024;

  // Null where the folder cannot be used: then faults stay in their process. `contexts`: so many of
  // all processes together, at most kContextsMax; 0: any number.
  static std::unique_ptr<SharedFaults> open(const std::string& folder, unsigned unit,
                                            std::size_t contexts = 0);

  // One of the contexts that the GPU takes, as long as this lives; the GPU outlives it.
  class Place {
   public:
    Place() = default;
    Place(SharedFaults& gpu, std::size_t number) : gpu_(&gpu), number_(number) {}
    ~Place() { leave(); }
    Place(Place&& other) noexcept
        : gpu_(std::exchange(other.gpu_, nullptr)), number_(other.number_) {}
    Place& operator=(Place&& other) noexcept {
      leave();
      gpu_ = std::exchange(other.gpu_, nullptr);
      number_ = other.number_;
      return *this;
    }

   private:
    void leave() {
      if (gpu_ != nullptr) std::exchange(gpu_, nullptr)->leave(number_);
    }
    SharedFaults* gpu_ = nullptr;
    std::size_t number_ = 0;
  };

  // Before a context is made: this process has a part in the GPU from then on until it ends.
  // CUDA_ERROR_MPS_SERVER_NOT_READY after a fault, until all processes that had a part have ended;
  // CUDA_ERROR_MPS_MAX_CLIENTS_REACHED while there are as many contexts as the GPU takes.
  CUresult enter(Place& place) EXCLUDES(mutex_);

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

  SharedFaults(Roll roll, std::size_t contexts);
  CUresult enter_process() REQUIRES(mutex_);
  void leave(std::size_t number) EXCLUDES(mutex_);

  const Roll roll_;
  Page* const page_;
  const std::size_t contexts_;
  Mutex mutex_;
  std::atomic<bool> entered_{false};
  std::set<std::size_t> places_ GUARDED_BY(mutex_);  // Of this process's contexts.
};

}  // namespace flyt::softgpu
