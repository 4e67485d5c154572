// KernelHeap: the memory behind malloc() and free() in kernels of one context.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "base/annotations.h"
#include "softgpu/memory/range_allocator.h"

namespace flyt::softgpu {

class Device;

// Takes its memory from the device at the first allocation. Safe from any thread.
class KernelHeap {
 public:
  KernelHeap(Device& device, std::uint64_t limit) : device_(device), limit_(limit) {}
  ~KernelHeap();
  KernelHeap(const KernelHeap&) = delete;
  KernelHeap& operator=(const KernelHeap&) = delete;

  // False once the heap is in use: its size is settled then.
  bool set_limit(std::uint64_t limit);
  // 0: no memory. 16-aligned.
  std::uint64_t allocate(std::uint64_t bytes);
  // False where nothing was allocated there.
  bool release(std::uint64_t address);

 private:
  Device& device_;
  Mutex mutex_;
  std::uint64_t limit_ GUARDED_BY(mutex_);
  std::uint64_t base_ GUARDED_BY(mutex_) = 0;
  std::optional<RangeAllocator> ranges_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> sizes_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
