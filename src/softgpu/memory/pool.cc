#include "softgpu/memory/pool.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "softgpu/device.h"

namespace flyt::softgpu {
namespace {

// What a pool takes from the device at a time, if the device has it.
constexpr std::uint64_t kChunkBytes = 32 * kMiB;
constexpr std::uint64_t kSmallChunkBytes = 2 * kMiB;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t chunk) {
  return (bytes + chunk - 1) / chunk * chunk;
}

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace

DeviceSet Pool::device_set_of(const Device& device) { return device_set(device.number()); }

Pool::~Pool() {
  const Lock lock(mutex_);
  device_.memory().uncharge(reserved_);
}

// Makes the reservation hold `bytes` more.
bool Pool::reserve(std::uint64_t bytes) {
  if (placed_ + bytes <= reserved_) return true;
  for (const std::uint64_t chunk : {kChunkBytes, kSmallChunkBytes, kAllocationAlign}) {
    const std::uint64_t wanted = rounded(placed_ + bytes, chunk);
    if (wanted <= reserved_) continue;
    if (!device_.memory().charge(wanted - reserved_)) continue;
    reserved_ = wanted;
    reserved_high_ = std::max(reserved_high_, reserved_);
    return true;
  }
  return false;
}

CUresult Pool::allocate(std::uint64_t bytes, std::uint64_t context, CUdeviceptr* out) {
  const std::uint64_t size = allocation_bytes(bytes);
  if (size == 0 || size > device_.memory().limit()) return CUDA_ERROR_OUT_OF_MEMORY;
  Region region;
  {
    const Lock lock(mutex_);
    if (props_.maxSize != 0 && placed_ + size > rounded(props_.maxSize, kChunkBytes)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!reserve(size)) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto address = device_.memory().place(size);
    if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
    placed_ += size;
    used_ += bytes;
    used_high_ = std::max(used_high_, used_);
    region.base = *address;
    region.readers = readers_;
    region.writers = writers_;
  }
  region.kind = RegionKind::kPool;
  region.size = bytes;
  region.device = device_.number();
  region.context = context;
  region.pool = handle_;
  regions_.add(region);
  *out = region.base;
  return CUDA_SUCCESS;
}

std::uint64_t Pool::pending_free(const Region& region, const void* stream) {
  const Lock lock(mutex_);
  pending_[region.base] = {stream, ++next_token_, region.size};
  return next_token_;
}

CUdeviceptr Pool::reuse(std::uint64_t bytes, const void* stream) {
  const Lock lock(mutex_);
  const auto found =
      std::find_if(pending_.begin(), pending_.end(), [bytes, stream](const auto& entry) {
        return entry.second.stream == stream &&
               allocation_bytes(entry.second.bytes) == allocation_bytes(bytes);
      });
  if (found == pending_.end()) return 0;
  const CUdeviceptr address = found->first;
  used_ += bytes - found->second.bytes;
  used_high_ = std::max(used_high_, used_);
  pending_.erase(found);
  regions_.revive(address, bytes);
  return address;
}

void Pool::finish_free(const Region& region, std::uint64_t token) {
  const Lock lock(mutex_);
  const auto found = pending_.find(region.base);
  if (found == pending_.end() || found->second.token != token) return;
  pending_.erase(found);
  if (const auto removed = regions_.remove(region.base, region.kind)) give_back(*removed);
}

void Pool::release(const Region& region) {
  const Lock lock(mutex_);
  give_back(region);
}

void Pool::give_back(const Region& region) {
  const std::uint64_t size = allocation_bytes(region.size);
  device_.memory().unplace(region.base, size);
  placed_ -= size;
  used_ -= region.size;
}

void Pool::trim(std::uint64_t keep) {
  const Lock lock(mutex_);
  const std::uint64_t least = std::max(rounded(placed_, kSmallChunkBytes), keep);
  if (reserved_ <= least) return;
  device_.memory().uncharge(reserved_ - least);
  reserved_ = least;
}

void Pool::trim_to_threshold() {
  std::uint64_t threshold = 0;
  {
    const Lock lock(mutex_);
    threshold = std::max(threshold_, rounded(placed_, kChunkBytes));
  }
  trim(threshold);
}

CUresult Pool::attribute(CUmemPool_attribute attribute, void* value) const {
  const Lock lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      store(value, follow_events_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      store(value, opportunistic_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      store(value, internal_dependencies_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      store(value, threshold_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      store(value, reserved_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      store(value, reserved_high_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      store(value, used_);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      store(value, used_high_);
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Pool::set_attribute(CUmemPool_attribute attribute, const void* value) {
  const Lock lock(mutex_);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      follow_events_ = load<int>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      opportunistic_ = load<int>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      internal_dependencies_ = load<int>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      threshold_ = load<std::uint64_t>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (load<std::uint64_t>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      reserved_high_ = reserved_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (load<std::uint64_t>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      used_high_ = used_;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void Pool::set_access(int device, CUmemAccess_flags flags) {
  const bool read = flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const bool write = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  {
    const Lock lock(mutex_);
    readers_ = read ? readers_ | device_set(device) : readers_ & ~device_set(device);
    writers_ = write ? writers_ | device_set(device) : writers_ & ~device_set(device);
  }
  const std::uint64_t handle = handle_;
  for (const Region& region : regions_.select([handle](const Region& candidate) {
         return candidate.kind == RegionKind::kPool && candidate.pool == handle;
       })) {
    regions_.set_access(region.base, device_set(device), read, write);
  }
}

CUmemAccess_flags Pool::access(int device) const {
  const Lock lock(mutex_);
  if ((writers_ & device_set(device)) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if ((readers_ & device_set(device)) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READ;
  return CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace flyt::softgpu
