// Pages: zeroed memory of the system's, whole pages, given back at its end.
#include "base/pages.h"

#include <sys/mman.h>

namespace flyt {

Pages Pages::make(std::uint64_t bytes) {
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped == MAP_FAILED ? Pages() : Pages(mutable_bytes_at(mapped, bytes));
}

Pages::~Pages() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace flyt
