#include "client/transfers/careful_copy.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace flyt::client {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

CarefulCopy::CarefulCopy() : file_(::memfd_create("flyt-copy", MFD_CLOEXEC)) {}

// The calls themselves: tools that watch the program's memory must not judge these.
bool CarefulCopy::move(std::byte* to, const std::byte* from, std::size_t bytes) const {
  const auto size = static_cast<long>(bytes);
  return ::syscall(SYS_pwrite64, file_.get(), from, bytes, 0L) == size &&
         ::syscall(SYS_pread64, file_.get(), to, bytes, 0L) == size;
}

void CarefulCopy::read(MutableBytes to, const std::byte* from) const {
  if (move(to.data(), from, to.size())) return;
  for (std::size_t at = 0; at < to.size();) {
    const std::size_t in_page = address_of(from + at) % kPageBytes;
    const std::size_t size = std::min(kPageBytes - in_page, to.size() - at);
    static_cast<void>(move(to.data() + at, from + at, size));
    at += size;
  }
}

void CarefulCopy::write(std::byte* to, Bytes from, Bytes before) const {
  for (std::size_t at = 0; at < from.size();) {
    if (from[at] == before[at]) {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    while (end < from.size() && from[end] != before[end]) ++end;
    static_cast<void>(move(to + at, from.data() + at, end - at));
    at = end;
  }
}

}  // namespace flyt::client
