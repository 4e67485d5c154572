// ManagedMemory: memory that the program and all devices use at the same addresses.
#include "softgpu/memory/managed_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/pages.h"

namespace flyt::softgpu {
namespace {

#if defined(__SANITIZE_THREAD__)
// It allows no memory where it is otherwise.
constexpr std::uint64_t kBase = 0x1000000000;
constexpr std::uint64_t kEnd = kBase + 64 * kGiB;
#else
constexpr std::uint64_t kBase = 0x3c0000000000;
constexpr std::uint64_t kEnd = kBase + 1024 * kGiB;
#endif
constexpr std::uint64_t kStep = 2 * kMiB;

}  // namespace

std::uint64_t map_managed(std::uint64_t bytes) {
  const std::uint64_t size = Pages::whole(bytes);
  if (size < bytes || size > kEnd - kBase) return 0;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  // The first place that is free.
  for (std::uint64_t wanted = kBase; wanted <= kEnd - size; wanted += kStep) {
    void* at = ::mmap(pointer_at(wanted), size, PROT_READ | PROT_WRITE,
                      kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == pointer_at(wanted)) return wanted;
    if (at != MAP_FAILED) ::munmap(at, size);
    if (at == MAP_FAILED && errno != EEXIST) break;
  }
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  return at == MAP_FAILED ? 0 : address_of(at);
}

void unmap_managed(std::uint64_t address, std::uint64_t bytes) {
  ::munmap(pointer_at(address), Pages::whole(bytes));
}

ManagedVariable::ManagedVariable(Regions& regions, std::uint64_t bytes, int device)
    : regions_(regions), address_(map_managed(bytes)), bytes_(bytes) {
  if (address_ == 0) return;
  Region region;
  region.kind = RegionKind::kModule;
  region.base = address_;
  region.size = bytes;
  region.device = device;
  region.managed = region.sync_memops = true;
  region.readers = region.writers = kAllDevices;
  regions.add(region);
  regions.managed().add(address_, bytes);
}

ManagedVariable::~ManagedVariable() {
  if (address_ == 0) return;
  regions_.managed().remove(address_, bytes_);
  regions_.remove(address_, RegionKind::kModule);
  unmap_managed(address_, bytes_);
}

}  // namespace flyt::softgpu
