// RangeAllocator: which parts of a range of addresses are taken.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace flyt::softgpu {

// First fit by address; neighbours that are free become one. Not thread-safe.
class RangeAllocator {
 public:
  RangeAllocator(std::uint64_t base, std::uint64_t size);

  // `size` > 0; `align` a power of two.
  std::optional<std::uint64_t> allocate(std::uint64_t size, std::uint64_t align);
  // Exactly what allocate() gave.
  void release(std::uint64_t base, std::uint64_t size);

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // Size by address.
};

}  // namespace flyt::softgpu
