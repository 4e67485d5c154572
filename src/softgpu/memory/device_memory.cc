#include "softgpu/memory/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"

namespace flyt::softgpu {
namespace {

// Address space is plentiful: fragmentation must not be what ends an allocation.
constexpr std::uint64_t kSpacePerMemory = 8;
constexpr std::uint64_t kSpaceAlign = 2 * kMiB;

// Addresses first, then access, as NVIDIA's driver does.
std::uint64_t reserve(std::uint64_t bytes) {
  void* at = ::mmap(nullptr, bytes + kSpaceAlign, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return 0;
  if (::mprotect(at, bytes + kSpaceAlign, PROT_READ | PROT_WRITE) == 0) return address_of(at);
  ::munmap(at, bytes + kSpaceAlign);
  return 0;
}

std::uint64_t aligned(std::uint64_t address) {
  return (address + kSpaceAlign - 1) & ~(kSpaceAlign - 1);
}

}  // namespace

std::uint64_t allocation_bytes(std::uint64_t bytes) {
  const std::uint64_t rounded = (bytes + kAllocationAlign - 1) & ~(kAllocationAlign - 1);
  return rounded < bytes ? 0 : rounded;
}

DeviceMemory::DeviceMemory(std::uint64_t limit)
    : limit_(limit),
      reserved_(limit * kSpacePerMemory),
      base_(reserve(reserved_)),
      ranges_(aligned(base_), reserved_) {}

DeviceMemory::~DeviceMemory() {
  if (base_ != 0) ::munmap(pointer_at(base_), reserved_ + kSpaceAlign);
}

void DeviceMemory::shift_addresses() {
  // Processes with numbers near each other are far apart.
  constexpr std::uint64_t kSteps = 1021;
  const std::uint64_t steps = static_cast<std::uint64_t>(::getpid()) % kSteps + 1;
  static_cast<void>(::mmap(nullptr, steps * 2 * kGiB, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

std::optional<std::uint64_t> DeviceMemory::place(std::uint64_t bytes) {
  if (!usable() || bytes == 0) return std::nullopt;
  const Lock lock(mutex_);
  return ranges_.allocate(bytes, kAllocationAlign);
}

void DeviceMemory::empty(std::uint64_t address, std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t first = (address + page - 1) & ~(page - 1);
  const std::uint64_t last = (address + bytes) & ~(page - 1);
  // Pages that the range shares with neighbours stay.
  if (first < last) ::madvise(pointer_at(first), last - first, MADV_DONTNEED);
}

void DeviceMemory::unplace(std::uint64_t address, std::uint64_t bytes) {
  empty(address, bytes);
  const Lock lock(mutex_);
  ranges_.release(address, bytes);
}

bool DeviceMemory::charge(std::uint64_t bytes) {
  const Lock lock(mutex_);
  if (bytes > limit_ - used_) return false;
  used_ += bytes;
  return true;
}

void DeviceMemory::uncharge(std::uint64_t bytes) {
  const Lock lock(mutex_);
  used_ -= bytes;
}

std::optional<std::uint64_t> DeviceMemory::allocate(std::uint64_t bytes) {
  const std::uint64_t rounded = allocation_bytes(bytes);
  if (rounded == 0 || !charge(rounded)) return std::nullopt;
  const auto address = place(rounded);
  if (!address) uncharge(rounded);
  return address;
}

void DeviceMemory::release(std::uint64_t address, std::uint64_t bytes) {
  const std::uint64_t rounded = allocation_bytes(bytes);
  unplace(address, rounded);
  uncharge(rounded);
}

std::uint64_t DeviceMemory::used() const {
  const Lock lock(mutex_);
  return used_;
}

}  // namespace flyt::softgpu
