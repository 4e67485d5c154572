// PinnedHeap: the page-locked host memory that programs ask for.
#include "client/memory/pinned_heap.h"

#include <sys/mman.h>

#include "base/bytes.h"
#include "base/pages.h"

namespace flyt::client {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

}  // namespace

void* PinnedHeap::allocate(std::uint64_t bytes) {
  const std::uint64_t size = Pages::whole(bytes);
  if (size < bytes) return nullptr;
  const std::uint64_t base = windowed() ? space_.take(size, Pages::kPageBytes, 0) : 0;
  if (windowed() && base == 0) return nullptr;
  void* memory = shared() ? mmap(pointer_at(base), size, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(offset_of(base)))
                          : mmap(pointer_at(base), size, PROT_READ | PROT_WRITE,
                                 kPrivate | (windowed() ? MAP_FIXED : 0), -1, 0);
  if (memory != MAP_FAILED) return memory;
  if (windowed()) space_.give(base, size);
  return nullptr;
}

void PinnedHeap::free(void* memory, std::uint64_t bytes) {
  const std::uint64_t size = Pages::whole(bytes);
  if (!windowed()) {
    munmap(memory, size);
    return;
  }
  // The file gives its pages back; the next that gets them finds zeros.
  if (shared()) madvise(memory, size, MADV_REMOVE);
  // The pages go, the reservation stays.
  mmap(memory, size, PROT_NONE, kPrivate | MAP_NORESERVE | MAP_FIXED, -1, 0);
  space_.give(address_of(memory), size);
}

}  // namespace flyt::client
