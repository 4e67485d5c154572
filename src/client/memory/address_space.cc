// AddressSpace: which addresses of a window are free.
#include "client/memory/address_space.h"

#include <sys/mman.h>

#include <array>
#include <iterator>

#include "base/bytes.h"

namespace flyt::client {
namespace {

// Far from where Linux puts programs, libraries, heaps and stacks; the next column is tried when
// something is in the way. V8 (Node.js, for one) takes memory anywhere below 64 TiB, by chance, and
// the last column is above. (Up to 80 TiB the server has ranges of its driver, DriverRanges.)
// ThreadSanitizer allows no memory at any of them: for programs under it there is a smaller window
// below 512 GiB.
struct Candidates {
  wire::WindowPurpose purpose;
  std::array<std::uint64_t, 4> bases;
  std::uint64_t low_base;
};
constexpr Candidates kArenaBases{wire::WindowPurpose::kArena,
                                 {0x300000000000, 0x200000000000, 0x100000000000, 0x500000000000},
                                 0x2000000000};
constexpr Candidates kVmmBases{wire::WindowPurpose::kVmm,
                               {0x340000000000, 0x240000000000, 0x140000000000, 0x510000000000},
                               0x4000000000};
constexpr Candidates kPinnedBases{wire::WindowPurpose::kPinned,
                                  {0x380000000000, 0x280000000000, 0x180000000000, 0x520000000000},
                                  0x6000000000};
constexpr std::uint64_t kWindowBytes = 1024 * kGiB;
constexpr std::uint64_t kLowWindowBytes = 128 * kGiB;

bool reserve(std::uint64_t base, std::uint64_t bytes) {
  void* wanted = pointer_at(base);
  void* got = mmap(wanted, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == wanted) return true;
  // A kernel that does not know the flag takes the address as a hint.
  munmap(got, bytes);
  return false;
}

wire::Window reserve_first(const Candidates& candidates) {
  for (const std::uint64_t base : candidates.bases) {
    if (reserve(base, kWindowBytes)) return {candidates.purpose, 0, base, kWindowBytes};
  }
  if (reserve(candidates.low_base, kLowWindowBytes)) {
    return {candidates.purpose, 0, candidates.low_base, kLowWindowBytes};
  }
  return {candidates.purpose, 0, 0, 0};
}

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace

std::vector<wire::Window> reserve_windows() {
  std::vector<wire::Window> windows;
  for (const Candidates& candidates : {kArenaBases, kVmmBases}) {
    const wire::Window window = reserve_first(candidates);
    if (window.bytes != 0) windows.push_back(window);
  }
  return windows;
}

wire::Window reserve_pinned_window() { return reserve_first(kPinnedBases); }

std::uint64_t AddressSpace::take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t hint) {
  const Lock lock(mutex_);
  if (hint != 0 && hint % alignment == 0 && take_at(hint, bytes)) return hint;
  for (const auto& [base, size] : free_) {
    const std::uint64_t start = align_up(base, alignment);
    if (start < base || start - base > size || size - (start - base) < bytes) continue;
    return take_at(start, bytes) ? start : 0;
  }
  return 0;
}

bool AddressSpace::take_at(std::uint64_t base, std::uint64_t bytes) {
  auto range = free_.upper_bound(base);
  if (range == free_.begin()) return false;
  --range;
  const auto [start, size] = *range;
  if (base - start > size || size - (base - start) < bytes) return false;
  free_.erase(range);
  if (base > start) free_.emplace(start, base - start);
  const std::uint64_t behind = size - (base - start) - bytes;
  if (behind > 0) free_.emplace(base + bytes, behind);
  return true;
}

void AddressSpace::give(std::uint64_t base, std::uint64_t bytes) {
  const Lock lock(mutex_);
  auto next = free_.lower_bound(base);
  if (next != free_.end() && base + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(base, bytes);
}

}  // namespace flyt::client
