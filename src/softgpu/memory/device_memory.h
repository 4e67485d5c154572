// DeviceMemory: the bounded memory of one software GPU, at addresses of this process.
#pragma once

#include <cstdint>
#include <optional>

#include "base/annotations.h"
#include "softgpu/memory/range_allocator.h"

namespace flyt::softgpu {

// Allocations begin at multiples of this and take multiples of it from the budget.
inline constexpr std::uint64_t kAllocationAlign = 512;

// Safe from any thread.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::uint64_t limit);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Memory of this process that is never used nor given back, so that the ranges made from now on
  // are elsewhere than in other processes, as far as it is the system that places them.
  static void shift_addresses();

  // The host gave the address range.
  bool usable() const { return base_ != 0; }
  // Addresses for `bytes`, without taking them from the budget.
  std::optional<std::uint64_t> place(std::uint64_t bytes);
  // Gives them back; the pages are given to the system.
  void unplace(std::uint64_t address, std::uint64_t bytes);
  // Gives whole pages in there to the system; they hold zeroes from then on.
  static void empty(std::uint64_t address, std::uint64_t bytes);

  // Takes `bytes` from the budget; false where so much is not left.
  bool charge(std::uint64_t bytes);
  void uncharge(std::uint64_t bytes);

  // place() and charge(), unplace() and uncharge(). Rounded up to kAllocationAlign.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes);
  void release(std::uint64_t address, std::uint64_t bytes);

  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const;

 private:
  const std::uint64_t limit_;
  std::uint64_t reserved_ = 0;  // Bytes of address space at base_.
  std::uint64_t base_ = 0;
  mutable Mutex mutex_;
  RangeAllocator ranges_ GUARDED_BY(mutex_);
  std::uint64_t used_ GUARDED_BY(mutex_) = 0;
};

// `bytes` rounded up; 0 where that overflows.
std::uint64_t allocation_bytes(std::uint64_t bytes);

}  // namespace flyt::softgpu
