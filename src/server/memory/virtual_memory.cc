// VirtualMemory: physical allocations of the program and where it has mapped them.
#include "server/memory/virtual_memory.h"

#include <set>

#include "server/memory/driver_blocks.h"
#include "server/recovery/recovery.h"
#include "wire/handle.h"

namespace flyt::server {

VirtualMemory::Physical::~Physical() {
  if (keeper != nullptr) keeper->drop_allocation(allocation);
}

VirtualMemory::VirtualMemory(const driver::Table& driver, Regions& regions, AddressWindow window,
                             Recovery* recovery)
    : driver_(driver),
      regions_(regions),
      window_(window),
      recovery_(recovery),
      restoring_(recovery != nullptr && recovery->before()) {}

VirtualMemory::~VirtualMemory() {
  for (const auto& [address, mapping] : mappings_) driver_.cuMemUnmap(address, mapping.bytes);
  for (const auto& [handle, allocation] : allocations_) driver_.cuMemRelease(allocation.native);
  for (const auto& [handle, allocation] : kept_) driver_.cuMemRelease(allocation.native);
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
  if (restoring_) return create_kept(allocation, bytes, device, block_id);
  const CUmemAllocationProp properties = device_memory(driver_, device);
  Allocation made{.bytes = bytes, .device = device, .physical = std::make_shared<Physical>()};
  if (!made.physical->charge.reserve(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = driver_.cuMemCreate(&made.native, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  if (recovery_ != nullptr) {
    recovery_->keep_allocation(driver_, allocation, made.native, bytes, device);
    made.physical->keeper = recovery_;
    made.physical->allocation = allocation;
  }
  block_id = next_block_id_++;
  allocations_.emplace(allocation, std::move(made));
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::create_kept(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                                    std::uint64_t& block_id) {
  const auto found = kept_.find(allocation);
  if (found == kept_.end()) return CUDA_ERROR_NOT_FOUND;
  if (found->second.bytes != bytes || found->second.device != device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  block_id = next_block_id_++;
  allocations_.emplace(allocation, std::move(found->second));
  kept_.erase(found);
  return CUDA_SUCCESS;
}

bool VirtualMemory::adopt_kept(const Kept& kept) {
  if (!supported() || driver_.cuMemImportFromShareableHandle == nullptr) return false;
  Allocation adopted{.bytes = kept.bytes, .device = kept.device};
  const CUresult result = driver_.cuMemImportFromShareableHandle(
      &adopted.native, pointer_at(static_cast<std::uint64_t>(kept.file.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return false;
  // Whatever the lease has: it had this before.
  adopted.physical = std::make_shared<Physical>();
  adopted.physical->charge = UsedMemory(kept.device, kept.bytes);
  adopted.physical->keeper = recovery_;
  adopted.physical->allocation = kept.id;
  const Lock lock(mutex_);
  kept_.emplace(kept.id, std::move(adopted));
  return true;
}

void VirtualMemory::end_restoring() {
  const Lock lock(mutex_);
  restoring_ = false;
  for (const auto& [handle, allocation] : kept_) driver_.cuMemRelease(allocation.native);
  kept_.clear();
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
  Allocation adopted{native, bytes, device, std::make_shared<Physical>()};
  if (result == CUDA_SUCCESS && !adopted.physical->charge.reserve(device, bytes)) {
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
  if (next != mappings_.end() && next->first == address && next->second.bytes == bytes &&
      next->second.physical == found->second.physical) {
    return CUDA_SUCCESS;
  }
  if (next != mappings_.end() && next->first - address < bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings_.begin()) {
    const auto before = std::prev(next);
    if (address - before->first < before->second.bytes) return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = driver_.cuMemMap(address, bytes, 0, found->second.native, 0);
  if (result == CUDA_SUCCESS) {
    const Allocation& allocated = found->second;
    mappings_.emplace(address, Mapping{bytes, allocated.device, 0, allocated.physical});
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
    if (at->second.open_to != 0) regions_.remove(at->first);
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
  if (device < 0 || device >= kDevicesMax) return CUDA_ERROR_INVALID_DEVICE;
  const std::uint64_t bit = std::uint64_t{1} << device;
  for (auto at = begin; at != end; ++at) {
    const CUresult result = set_driver_access({at->first, at->second.bytes, device}, access);
    if (result != CUDA_SUCCESS) return result;
    const bool was_open = at->second.open_to != 0;
    if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      at->second.open_to |= bit;
    } else {
      at->second.open_to &= ~bit;
    }
    const bool is_open = at->second.open_to != 0;
    if (is_open && !was_open) {
      regions_.add({at->first, at->second.bytes, Regions::Kind::kDevice});
    } else if (was_open && !is_open) {
      regions_.remove(at->first);
    }
  }
  return CUDA_SUCCESS;
}

bool VirtualMemory::elsewhere(std::uint64_t address, std::uint64_t bytes, CUdevice device) {
  const Lock lock(mutex_);
  for (auto at = mappings_.lower_bound(address); at != mappings_.end(); ++at) {
    if (at->first - address >= bytes) return false;
    if (at->second.device != device) return true;
  }
  return false;
}

VirtualMemory::Reached::Reached(VirtualMemory& memory) : memory_(memory) {
  const Lock lock(memory.mutex_);
  std::set<const Physical*> known;
  for (const auto& [address, mapping] : memory.mappings_) {
    if (!mapping.reached()) continue;
    known.insert(mapping.physical.get());
    places_.push_back({address, mapping.bytes, mapping.device});
  }
  for (const auto& [address, mapping] : memory.mappings_) {
    if (!known.insert(mapping.physical.get()).second) continue;
    all_ = memory.open_for(*this, {address, mapping.bytes, mapping.device}) && all_;
  }
  for (const auto& [handle, allocation] : memory.allocations_) {
    if (!known.insert(allocation.physical.get()).second) continue;
    all_ = memory.map_for(*this, allocation) && all_;
  }
}

VirtualMemory::Reached::~Reached() {
  const Lock lock(memory_.mutex_);
  for (const Place& place : opened_) {
    memory_.set_driver_access(place, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  }
  for (const Place& place : mapped_) {
    memory_.driver_.cuMemUnmap(place.address, place.bytes);
    memory_.driver_.cuMemAddressFree(place.address, place.bytes);
  }
}

bool VirtualMemory::open_for(Reached& reached, const Place& place) {
  if (set_driver_access(place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) != CUDA_SUCCESS) return false;
  reached.opened_.push_back(place);
  reached.places_.push_back(place);
  return true;
}

// Anywhere: the program's own window is none of ours.
bool VirtualMemory::map_for(Reached& reached, const Allocation& allocation) {
  Place place{.bytes = allocation.bytes, .device = allocation.device};
  CUdeviceptr address = 0;
  if (driver_.cuMemAddressReserve(&address, place.bytes, Arena::kBlockBytes, 0, 0) !=
      CUDA_SUCCESS) {
    return false;
  }
  place.address = address;
  if (driver_.cuMemMap(address, place.bytes, 0, allocation.native, 0) != CUDA_SUCCESS) {
    driver_.cuMemAddressFree(address, place.bytes);
    return false;
  }
  reached.mapped_.push_back(place);
  if (set_driver_access(place, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) != CUDA_SUCCESS) return false;
  reached.places_.push_back(place);
  return true;
}

CUresult VirtualMemory::set_driver_access(const Place& place, CUmemAccess_flags access) const {
  CUmemAccessDesc wanted{};
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = place.device;
  wanted.flags = access;
  return driver_.cuMemSetAccess(place.address, place.bytes, &wanted, 1);
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
