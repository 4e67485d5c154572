#include "softgpu/kernel_heap.h"

#include "softgpu/device.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kAlign = 16;

}  // namespace

KernelHeap::~KernelHeap() {
  const Lock lock(mutex_);
  if (base_ == 0) return;
  device_.map().remove(base_, limit_);
  device_.memory().release(base_, limit_);
}

bool KernelHeap::set_limit(std::uint64_t limit) {
  const Lock lock(mutex_);
  if (base_ != 0) return limit == limit_;
  if (limit == 0 || limit > device_.memory().limit()) return false;
  limit_ = limit;
  return true;
}

std::uint64_t KernelHeap::allocate(std::uint64_t bytes) {
  const Lock lock(mutex_);
  if (base_ == 0) {
    const auto base = device_.memory().allocate(limit_);
    if (!base) return 0;
    base_ = *base;
    ranges_.emplace(base_, limit_);
    device_.map().add(base_, limit_);
  }
  const std::uint64_t size = (bytes + kAlign - 1) & ~(kAlign - 1);
  if (size == 0) return 0;
  const auto address = ranges_->allocate(size, kAlign);
  if (!address) return 0;
  sizes_[*address] = size;
  return *address;
}

bool KernelHeap::release(std::uint64_t address) {
  const Lock lock(mutex_);
  const auto found = sizes_.find(address);
  if (found == sizes_.end()) return false;
  ranges_->release(address, found->second);
  sizes_.erase(found);
  return true;
}

}  // namespace flyt::softgpu
