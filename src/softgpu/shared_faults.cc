#include "softgpu/shared_faults.h"

#include <utility>

namespace flyt::softgpu {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

std::unique_ptr<SharedFaults> SharedFaults::open(const std::string& folder, unsigned unit,
                                                 std::size_t contexts) {
  auto roll = Roll::open(folder + "/softgpu-" + std::to_string(unit), kPageBytes);
  if (!roll) return nullptr;
  return std::unique_ptr<SharedFaults>(new SharedFaults(std::move(*roll), contexts));
}

SharedFaults::SharedFaults(Roll roll, std::size_t contexts)
    : roll_(std::move(roll)), page_(static_cast<Page*>(roll_.memory())), contexts_(contexts) {}

CUresult SharedFaults::enter(Place& place) {
  // Behind the processes' places.
  std::size_t number = kProcessesMax;
  {
    const Lock lock(mutex_);
    if (const CUresult bad = enter_process(); bad != CUDA_SUCCESS || contexts_ == 0) return bad;
    const std::size_t end = kProcessesMax + contexts_;
    while (number < end && (places_.contains(number) || !roll_.take(number, number + 1))) ++number;
    if (number == end) return CUDA_ERROR_MPS_MAX_CLIENTS_REACHED;
    places_.insert(number);
  }
  place = Place(*this, number);
  return CUDA_SUCCESS;
}

void SharedFaults::leave(std::size_t number) {
  const Lock lock(mutex_);
  places_.erase(number);
  roll_.leave(number);
}

CUresult SharedFaults::enter_process() {
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
