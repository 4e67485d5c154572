// CodeChunks: variables of code in chunks that are taken at the first free place, as NVIDIA's
// driver has them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "softgpu/memory/device_memory.h"

namespace flyt::softgpu {

// Variables share a chunk in the order in which they come; one that is larger than a chunk has as
// many as it needs, one behind the other. A chunk in which nothing is any more is free. Safe from
// any thread.
class CodeChunks {
 public:
  static constexpr std::uint64_t kBytes = 2 * kMiB;

  // Takes the address range of `places` chunks for good. Which of them is the first to be taken is
  // another one in each process.
  CodeChunks(DeviceMemory& memory, unsigned places);

  bool usable() const { return base_ != 0; }
  // Zeroes, charged to the memory by the chunk.
  std::optional<std::uint64_t> allocate(std::uint64_t bytes) EXCLUDES(mutex_);
  void release(std::uint64_t address) EXCLUDES(mutex_);

 private:
  struct Chunk {
    std::uint64_t bytes = 0;
    std::uint64_t filled = 0;  // From its start.
    unsigned variables = 0;
  };
  std::optional<std::uint64_t> take(std::uint64_t places) REQUIRES(mutex_);

  DeviceMemory& memory_;
  const std::uint64_t base_;
  const std::uint64_t first_;
  Mutex mutex_;
  std::vector<bool> taken_ GUARDED_BY(mutex_);                // By place.
  std::map<std::uint64_t, Chunk> chunks_ GUARDED_BY(mutex_);  // By address.
};

}  // namespace flyt::softgpu
