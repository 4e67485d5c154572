// Allocation: physical memory of a device that cuMemMap puts at addresses: a file in memory, so
// that another process can map it too.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "cuda/types.h"

namespace flyt::softgpu {

inline constexpr std::uint64_t kPhysicalGranularity = 2ull << 20;

// What cuMemCreate made. The driver's VMM lock guards the counts.
struct Allocation {
  Fd memory;
  std::uint64_t size = 0;
  int device = 0;
  CUmemAllocationProp prop{};
  std::uint64_t handle = 0;
  unsigned references = 1;  // Handles that the program holds.
  unsigned mappings = 0;
};

// A file of `size` zero bytes that tells its device by its name; none where the system refuses.
std::optional<Fd> make_memory_file(std::uint64_t size, int device);
// The size and device of a file made by make_memory_file() here or elsewhere.
std::optional<std::pair<std::uint64_t, int>> inspect_memory_file(int fd);

}  // namespace flyt::softgpu
