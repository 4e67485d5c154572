// DriverBlocks: physical memory from the CUDA driver, at fixed addresses where it can map.
#include "server/memory/driver_blocks.h"

#include <vector>

#include "server/lease/usage_board.h"
#include "server/recovery/recovery.h"

namespace flyt::server {

CUmemAllocationProp device_memory(const driver::Table& driver, CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  int shareable = 0;
  if (driver.cuDeviceGetAttribute != nullptr &&
      driver.cuDeviceGetAttribute(&shareable,
                                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                  device) == CUDA_SUCCESS &&
      shareable != 0) {
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  return properties;
}

CUresult DriverBlocks::map(Block& block) {
  if (!own_usage().reserve(block.device, block.bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = CUDA_SUCCESS;
  if (fixed_addresses()) {
    result = map_at_address(block);
  } else {
    CUdeviceptr address = 0;
    result = driver_.cuMemAlloc_v2(&address, block.bytes);
    block.address = address;
  }
  if (result != CUDA_SUCCESS) own_usage().gave(block.device, block.bytes);
  // Before the client can know of it.
  if (result == CUDA_SUCCESS && recovery_ != nullptr) recovery_->keep_block(driver_, block);
  return result;
}

CUresult DriverBlocks::map_at_address(Block& block) {
  const CUmemAllocationProp properties = device_memory(driver_, block.device);
  const CUresult made = driver_.cuMemCreate(&block.handle, block.bytes, &properties, 0);
  if (made != CUDA_SUCCESS) return made;
  return open_at_address(block);
}

// Lets go of the memory if it cannot be mapped.
CUresult DriverBlocks::open_at_address(Block& block) {
  CUresult result = driver_.cuMemMap(block.address, block.bytes, 0, block.handle, 0);
  if (result == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = block.device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver_.cuMemSetAccess(block.address, block.bytes, &access, 1);
    std::vector<CUdevice> accessors;
    {
      const Lock lock(mutex_);
      for (const auto& [pair, count] : allowed_) {
        if (pair.first == block.device && count > 0) accessors.push_back(pair.second);
      }
    }
    for (const CUdevice accessor : accessors) {
      if (result == CUDA_SUCCESS) result = grant(block, accessor, true);
    }
    if (result != CUDA_SUCCESS) driver_.cuMemUnmap(block.address, block.bytes);
  }
  if (result != CUDA_SUCCESS) driver_.cuMemRelease(block.handle);
  return result;
}

CUresult DriverBlocks::adopt(const Kept& kept, Block& block) {
  if (driver_.cuMemImportFromShareableHandle == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  block = {};
  block.device = kept.device;
  block.address = kept.id;
  block.bytes = kept.bytes;
  block.slab = kept.kind == KeptKind::kSlab;
  const bool inside = block.address >= window_.base && block.bytes <= window_.bytes &&
                      block.address - window_.base <= window_.bytes - block.bytes;
  if (!inside) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = driver_.cuMemImportFromShareableHandle(
      &block.handle, pointer_at(static_cast<std::uint64_t>(kept.file.get())),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result == CUDA_SUCCESS) result = open_at_address(block);
  // Whatever the lease has: it had this before.
  if (result == CUDA_SUCCESS) own_usage().took(block.device, block.bytes);
  return result;
}

bool DriverBlocks::allow(CUdevice owner, CUdevice accessor, bool allowed) {
  if (!fixed_addresses()) return false;
  const Lock lock(mutex_);
  int& count = allowed_[{owner, accessor}];
  if (!allowed && count == 0) return false;
  count += allowed ? 1 : -1;
  return allowed ? count == 1 : count == 0;
}

CUresult DriverBlocks::grant(const Block& block, CUdevice accessor, bool allowed) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = accessor;
  access.flags = allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return driver_.cuMemSetAccess(block.address, block.bytes, &access, 1);
}

void DriverBlocks::unmap(const Block& block) {
  if (recovery_ != nullptr) recovery_->drop_block(block);
  // After a device error the driver refuses; the memory then goes with the process.
  if (!fixed_addresses()) {
    driver_.cuMemFree_v2(block.address);
  } else {
    driver_.cuMemUnmap(block.address, block.bytes);
    driver_.cuMemRelease(block.handle);
  }
  own_usage().gave(block.device, block.bytes);
}

}  // namespace flyt::server
