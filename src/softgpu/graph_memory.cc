#include "softgpu/graph_memory.h"

#include <algorithm>
#include <utility>

#include "softgpu/device.h"

namespace flyt::softgpu {

GraphAllocation::~GraphAllocation() { memory_.forget(*this); }

std::shared_ptr<GraphAllocation> GraphMemory::make(std::uint64_t bytes, DeviceSet peers) {
  const std::uint64_t size = allocation_bytes(bytes);
  if (size == 0 || size > device_.memory().limit()) return nullptr;
  const auto address = device_.memory().place(size);
  if (!address) return nullptr;
  Region region;
  region.kind = RegionKind::kGraph;
  region.base = *address;
  region.size = bytes;
  region.device = device_.number();
  region.readers = device_set(device_.number()) | peers;
  region.writers = region.readers;
  regions_.add(region);
  auto made = std::make_shared<GraphAllocation>(*this, *address, bytes);
  const Lock lock(mutex_);
  all_[*address] = made.get();
  return made;
}

bool GraphMemory::back(const std::vector<std::shared_ptr<GraphAllocation>>& allocations) {
  const Lock lock(mutex_);
  std::uint64_t wanted = 0;
  for (const auto& each : allocations) {
    if (!each->backed_) wanted += allocation_bytes(each->bytes_);
  }
  if (wanted == 0) return true;
  if (!device_.memory().charge(wanted)) return false;
  for (const auto& each : allocations) each->backed_ = true;
  reserved_ += wanted;
  reserved_high_ = std::max(reserved_high_, reserved_);
  used_high_ = std::max(used_high_, reserved_);
  return true;
}

void GraphMemory::begin_launch(const std::vector<std::shared_ptr<GraphAllocation>>& allocations) {
  const Lock lock(mutex_);
  for (const auto& each : allocations) ++each->launches_;
}

void GraphMemory::end_launch(const std::vector<std::shared_ptr<GraphAllocation>>& allocations) {
  const Lock lock(mutex_);
  for (const auto& each : allocations) --each->launches_;
}

bool GraphMemory::allocate(const std::shared_ptr<GraphAllocation>& allocation) {
  const Lock lock(mutex_);
  return living_.emplace(allocation->address_, allocation).second;
}

bool GraphMemory::release(std::uint64_t address) {
  std::shared_ptr<GraphAllocation> gone;  // Destroyed without the lock.
  const Lock lock(mutex_);
  const auto found = living_.find(address);
  if (found == living_.end()) return false;
  gone = std::move(found->second);
  living_.erase(found);
  return true;
}

bool GraphMemory::claimed(const GraphAllocation& allocation) const {
  const Lock lock(mutex_);
  return allocation.claimed_;
}

void GraphMemory::claim(GraphAllocation& allocation) {
  const Lock lock(mutex_);
  allocation.claimed_ = true;
}

bool GraphMemory::unclaim(std::uint64_t address) {
  const Lock lock(mutex_);
  const auto found = all_.find(address);
  return found != all_.end() && std::exchange(found->second->claimed_, false);
}

void GraphMemory::trim() {
  const Lock lock(mutex_);
  for (const auto& [address, each] : all_) {
    if (!each->backed_ || each->launches_ != 0 || living_.contains(address)) continue;
    const std::uint64_t size = allocation_bytes(each->bytes_);
    device_.memory().uncharge(size);
    reserved_ -= size;
    each->backed_ = false;
  }
}

CUresult GraphMemory::attribute(CUgraphMem_attribute attribute, std::uint64_t* value) const {
  const Lock lock(mutex_);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *value = reserved_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *value = used_high_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *value = reserved_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *value = reserved_high_;
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult GraphMemory::reset(CUgraphMem_attribute attribute) {
  const Lock lock(mutex_);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      used_high_ = reserved_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      reserved_high_ = reserved_;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void GraphMemory::forget(GraphAllocation& allocation) {
  const std::uint64_t size = allocation_bytes(allocation.bytes_);
  {
    const Lock lock(mutex_);
    all_.erase(allocation.address_);
    if (allocation.backed_) {
      device_.memory().uncharge(size);
      reserved_ -= size;
    }
  }
  if (regions_.remove(allocation.address_, RegionKind::kGraph)) {
    device_.memory().unplace(allocation.address_, size);
  }
}

}  // namespace flyt::softgpu
