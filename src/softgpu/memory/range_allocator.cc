#include "softgpu/memory/range_allocator.h"

#include <iterator>

#include "base/assert.h"

namespace flyt::softgpu {

RangeAllocator::RangeAllocator(std::uint64_t base, std::uint64_t size) {
  free_.emplace(base, size);
}

std::optional<std::uint64_t> RangeAllocator::allocate(std::uint64_t size, std::uint64_t align) {
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto [base, free_bytes] = *at;
    const std::uint64_t aligned = (base + align - 1) & ~(align - 1);
    const std::uint64_t skipped = aligned - base;
    if (free_bytes < skipped || free_bytes - skipped < size) continue;
    free_.erase(at);
    if (skipped != 0) free_.emplace(base, skipped);
    const std::uint64_t rest = free_bytes - skipped - size;
    if (rest != 0) free_.emplace(aligned + size, rest);
    return aligned;
  }
  return std::nullopt;
}

void RangeAllocator::release(std::uint64_t base, std::uint64_t size) {
  auto next = free_.lower_bound(base);
  FLYT_ASSERT(next == free_.end() || base + size <= next->first);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    FLYT_ASSERT(before->first + before->second <= base);
    if (before->first + before->second == base) {
      base = before->first;
      size += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && base + size == next->first) {
    size += next->second;
    free_.erase(next);
  }
  free_.emplace(base, size);
}

}  // namespace flyt::softgpu
