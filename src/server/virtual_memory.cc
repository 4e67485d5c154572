// VirtualMemory: physical allocations of the program and where it has mapped them.
#include "server/virtual_memory.h"

#include "server/driver_blocks.h"
#include "wire/handle.h"

namespace flyt::server {

VirtualMemory::VirtualMemory(const driver::Table& driver, Regions& regions, AddressWindow window)
    : driver_(driver), regions_(regions), window_(window) {}

VirtualMemory::~VirtualMemory() {
  for (const auto& [address, mapping] : mappings_) driver_.cuMemUnmap(address, mapping.bytes);
  for (const auto& [handle, allocation] : allocations_) driver_.cuMemRelease(allocation.native);
}

CUresult VirtualMemory::create(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                               std::uint64_t& block_id) {
  if (!supported()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!wire::Handle{allocation}.valid_as(wire::HandleKind::kMemAllocation)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (bytes == 0 || bytes % Arena::kBlockBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(mutex_);
  if (allocations_.size() == kAllocationsMax) return CUDA_ERROR_OUT_OF_MEMORY;
  if (allocations_.contains(allocation)) return CUDA_ERROR_INVALID_HANDLE;
  const CUmemAllocationProp properties = device_memory(driver_, device);
  Allocation made{.bytes = bytes, .device = device, .charge = std::make_shared<UsedMemory>()};
  if (!made.charge->reserve(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver_.cuMemCreate(&made.native, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  block_id = next_block_id_++;
  allocations_.emplace(allocation, std::move(made));
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::adopt(std::uint64_t allocation, CUmemGenericAllocationHandle native,
                              std::uint64_t bytes, CUdevice device, std::uint64_t& block_id) {
  const Lock lock(mutex_);
  CUresult result = CUDA_SUCCESS;
  if (!supported()) result = CUDA_ERROR_NOT_SUPPORTED;
  if (!wire::Handle{allocation}.valid_as(wire::HandleKind::kMemAllocation) ||
      allocations_.contains(allocation)) {
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  if (allocations_.size() == kAllocationsMax) result = CUDA_ERROR_OUT_OF_MEMORY;
  // Charged here too: it may outlive the session that has made it.
  Allocation adopted{native, bytes, device, std::make_shared<UsedMemory>()};
  if (result == CUDA_SUCCESS && !adopted.charge->reserve(device, bytes)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    driver_.cuMemRelease(native);
    return result;
  }
  block_id = next_block_id_++;
  allocations_.emplace(allocation, std::move(adopted));
  return result;
}

CUresult VirtualMemory::release(std::uint64_t allocation) {
  const Lock lock(mutex_);
  const auto found = allocations_.find(allocation);
  if (found == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
  // The driver keeps the memory until it is unmapped everywhere, and mappings keep the charge.
  const CUresult result = driver_.cuMemRelease(found->second.native);
  allocations_.erase(found);
  return result;
}

CUresult VirtualMemory::map(std::uint64_t address, std::uint64_t bytes, std::uint64_t allocation) {
  const Lock lock(mutex_);
  const auto found = allocations_.find(allocation);
  if (found == allocations_.end() || found->second.bytes != bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!in_window(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings_.begin()) {
    const auto before = std::prev(next);
    if (address - before->first < before->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = driver_.cuMemMap(address, bytes, 0, found->second.native, 0);
  if (result == CUDA_SUCCESS) {
    mappings_.emplace(address, Mapping{bytes, false, found->second.charge});
  }
  return result;
}

CUresult VirtualMemory::unmap(std::uint64_t address, std::uint64_t bytes) {
  const Lock lock(mutex_);
  Mappings::iterator begin;
  Mappings::iterator end;
  if (!exactly(address, bytes, begin, end)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (auto at = begin; at != end;) {
    if (at->second.accessible) regions_.remove(at->first);
    const CUresult unmapped = driver_.cuMemUnmap(at->first, at->second.bytes);
    if (result == CUDA_SUCCESS) result = unmapped;
    at = mappings_.erase(at);
  }
  return result;
}

CUresult VirtualMemory::set_access(std::uint64_t address, std::uint64_t bytes, CUdevice device,
                                   CUmemAccess_flags access) {
  const Lock lock(mutex_);
  Mappings::iterator begin;
  Mappings::iterator end;
  if (!exactly(address, bytes, begin, end)) return CUDA_ERROR_INVALID_VALUE;
  CUmemAccessDesc wanted{};
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  wanted.flags = access;
  const bool accessible = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (auto at = begin; at != end; ++at) {
    const CUresult result = driver_.cuMemSetAccess(at->first, at->second.bytes, &wanted, 1);
    if (result != CUDA_SUCCESS) return result;
    if (at->second.accessible == accessible) continue;
    at->second.accessible = accessible;
    if (accessible) {
      regions_.add({at->first, at->second.bytes, Regions::Kind::kDevice});
    } else {
      regions_.remove(at->first);
    }
  }
  return CUDA_SUCCESS;
}

bool VirtualMemory::in_window(std::uint64_t address, std::uint64_t bytes) const {
  return address % Arena::kBlockBytes == 0 && bytes != 0 && address >= window_.base &&
         bytes <= window_.bytes && address - window_.base <= window_.bytes - bytes;
}

bool VirtualMemory::exactly(std::uint64_t address, std::uint64_t bytes, Mappings::iterator& begin,
                            Mappings::iterator& end) {
  begin = end = mappings_.find(address);
  if (begin == mappings_.end() || !in_window(address, bytes)) return false;
  std::uint64_t covered = 0;
  while (end != mappings_.end() && end->first == address + covered && covered < bytes) {
    covered += end->second.bytes;
    ++end;
  }
  return covered == bytes;
}

}  // namespace flyt::server
