// Ranges of addresses that a driver reserves in this process, at places that are the same in every
// process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace flyt::server {

// A driver puts variables of code, and much else of its own, into ranges of addresses that it asks
// the system for: no place named, no access, 32 MiB to some GiB. Linux puts them below whatever the
// process has mapped before, down to the stacks of its threads; so the same ranges lie elsewhere in
// the process that goes on with a session, and the variables with them. These take the first slot
// that is free instead, of those for their size (rounded up to a power of two).
struct DriverRanges {
  static constexpr std::uint64_t kBase = 0x400000000000;
  static constexpr std::uint64_t kBytesMin = 1ull << 25;
  static constexpr std::uint64_t kBytesMax = 1ull << 35;
  static constexpr std::uint64_t kSlots = 256;  // Of each size.

  // Where the slots for `bytes` begin; each is as large as `bytes` rounded up. 0: there are none.
  static std::uint64_t slots_of(std::uint64_t bytes);
};

// mmap(), but for such ranges; all that are placed nowhere else (there is no free slot, the kernel
// cannot say so, below 4.17) are the system's to place. Sets errno as mmap() does. Safe from any
// thread.
void* map_memory(void* address, std::size_t bytes, int protection, int flags, int file,
                 off_t offset);

}  // namespace flyt::server
