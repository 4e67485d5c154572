// DriverBlocks: physical memory from the CUDA driver, at fixed addresses where it can map.
#include "server/driver_blocks.h"

#include "server/usage_board.h"

namespace flyt::server {

CUmemAllocationProp device_memory(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

CUresult DriverBlocks::map(Block& block) {
  CUresult result = CUDA_SUCCESS;
  if (fixed_addresses()) {
    result = map_at_address(block);
  } else {
    CUdeviceptr address = 0;
    result = driver_.cuMemAlloc_v2(&address, block.bytes);
    block.address = address;
  }
  if (result == CUDA_SUCCESS) own_usage().took(block.device, block.bytes);
  return result;
}

CUresult DriverBlocks::map_at_address(Block& block) {
  const CUmemAllocationProp properties = device_memory(block.device);
  CUresult result = driver_.cuMemCreate(&block.handle, block.bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuMemMap(block.address, block.bytes, 0, block.handle, 0);
  if (result == CUDA_SUCCESS) {
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver_.cuMemSetAccess(block.address, block.bytes, &access, 1);
    if (result != CUDA_SUCCESS) driver_.cuMemUnmap(block.address, block.bytes);
  }
  if (result != CUDA_SUCCESS) driver_.cuMemRelease(block.handle);
  return result;
}

void DriverBlocks::unmap(const Block& block) {
  own_usage().gave(block.device, block.bytes);
  // After a device error the driver refuses; the memory then goes with the process.
  if (!fixed_addresses()) {
    driver_.cuMemFree_v2(block.address);
    return;
  }
  driver_.cuMemUnmap(block.address, block.bytes);
  driver_.cuMemRelease(block.handle);
}

}  // namespace flyt::server
