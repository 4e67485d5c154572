#include "server/memory/driver_ranges.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

#include "base/bytes.h"

namespace flyt::server {
namespace {

// Behind libc's own mmap(), which may be this one.
void* ask_system(void* address, std::size_t bytes, int protection, int flags, int file,
                 off_t offset) {
  const long got = ::syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
  return pointer_at(static_cast<std::uint64_t>(got));
}

bool reservation(const void* address, int protection, int flags) {
  return address == nullptr && protection == PROT_NONE &&
         (flags & ~MAP_NORESERVE) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

}  // namespace

std::uint64_t DriverRanges::slots_of(std::uint64_t bytes) {
  // A power of two times kSlots: behind all that are smaller.
  return bytes < kBytesMin || bytes > kBytesMax ? 0 : kBase + kSlots * std::bit_ceil(bytes);
}

void* map_memory(void* address, std::size_t bytes, int protection, int flags, int file,
                 off_t offset) {
  const int before = errno;
  const std::uint64_t slots =
      reservation(address, protection, flags) ? DriverRanges::slots_of(bytes) : 0;
  for (std::uint64_t i = 0; slots != 0 && i < DriverRanges::kSlots; ++i) {
    void* const slot = pointer_at(slots + i * std::bit_ceil(bytes));
    void* const got =
        ask_system(slot, bytes, protection, flags | MAP_FIXED_NOREPLACE, file, offset);
    if (got != MAP_FAILED && got != slot) {
      ::munmap(got, bytes);
      break;
    }
    errno = before;
    if (got == slot) return got;
  }
  return ask_system(address, bytes, protection, flags, file, offset);
}

}  // namespace flyt::server
