#include "softgpu/shared_faults.h"

#include <utility>

namespace flyt::softgpu {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

std::unique_ptr<SharedFaults> SharedFaults::open(const std::string& folder, unsigned unit) {
  auto roll = Roll::open(folder + "/softgpu-" + std::to_string(unit), kPageBytes);
  if (!roll) return nullptr;
  return std::unique_ptr<SharedFaults>(new SharedFaults(std::move(*roll)));
}

SharedFaults::SharedFaults(Roll roll)
    : roll_(std::move(roll)), page_(static_cast<Page*>(roll_.memory())) {}

CUresult SharedFaults::enter() {
  const Lock lock(mutex_);
  const bool entered = entered_.load(std::memory_order_relaxed);
  if (entered) {
    return page_->fault.load() == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_MPS_SERVER_NOT_READY;
  }
  const Roll::Door behind(roll_);
  if (page_->fault.load() != CUDA_SUCCESS) {
    if (roll_.next_taken(0, kProcessesMax)) return CUDA_ERROR_MPS_SERVER_NOT_READY;
    page_->fault.store(CUDA_SUCCESS);
  }
  if (!roll_.take(kProcessesMax)) return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
  entered_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

void SharedFaults::tell(CUresult fault) {
  if (!entered_.load(std::memory_order_acquire)) return;
  int none = CUDA_SUCCESS;
  page_->fault.compare_exchange_strong(none, fault);
}

}  // namespace flyt::softgpu
