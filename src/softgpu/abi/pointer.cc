// What an address is.
#include <array>
#include <cstring>

#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kBlockBytes = 2ull << 20;

template <class T>
CUresult put(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

int access_flags(const Region& region, int device) {
  if ((region.writers & device_set(device)) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if ((region.readers & device_set(device)) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READ;
  return CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

// The device whose access is told: of mapped memory that of the current context.
int asking_device(Driver& driver, const Region& region) {
  if (region.kind != RegionKind::kMapped) return region.device;
  const auto context = driver.contexts().find(context_stack().top());
  return context == nullptr ? region.device : context->device().number();
}

// Where the memory that holds the region begins, as far as anybody may know.
std::uint64_t mapping_base(const Region& region) {
  if (region.kind == RegionKind::kMapped || region.is_host()) return region.base;
  return region.base & ~(kBlockBytes - 1);
}

std::uint64_t mapping_size(const Region& region) {
  if (region.kind == RegionKind::kMapped || region.kind == RegionKind::kRegistered) {
    return region.size;
  }
  const std::uint64_t end = (region.end() + kBlockBytes - 1) & ~(kBlockBytes - 1);
  return end - mapping_base(region);
}

CUresult answer(const Region& region, int device, CUpointer_attribute attribute, CUdeviceptr ptr,
                void* data) {
  const bool mapped = region.kind == RegionKind::kMapped;
  const bool pool = region.kind == RegionKind::kPool;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, to_handle<CUcontext>(mapped || pool ? 0 : region.context));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, region.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (mapped && access_flags(region, device) == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        put(data, std::uint64_t{0});
        return CUDA_ERROR_INVALID_VALUE;
      }
      return put(data, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!region.is_host() && !region.managed) {
        put(data, std::uint64_t{0});
        return CUDA_ERROR_INVALID_VALUE;
      }
      return put(data, ptr);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      // Nobody has a use for them.
      put(data, std::array<std::uint64_t, 2>{});
      return region.is_host() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return put(data, region.sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return put(data, region.id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, region.managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, region.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      // What cuMemAlloc gives is this process's own.
      return put(data, 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, region.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, region.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return put(data, std::uint64_t{0});
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return put(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return put(data, access_flags(region, device));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, to_handle<CUmemoryPool>(pool ? region.pool : 0));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return put(data, mapping_size(region));
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return put(data, mapping_base(region));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return put(data, region.id);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// What cuPointerGetAttributes tells of an address that nobody knows.
void answer_unknown(CUpointer_attribute attribute, CUdeviceptr ptr, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      put(data, ptr);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(data, CU_DEVICE_INVALID);
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put(data, 0);
      return;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      put(data, std::uint64_t{0});
      return;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return;
  }
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto region = driver.regions().find(ptr);
    if (!region || region->freed) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = answer(*region, asking_device(driver, *region), attribute, ptr, data);
    // Who asks for these means to reach the memory behind CUDA's back.
    const bool tokens = attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    if (tokens && result == CUDA_SUCCESS) driver.regions().set_sync_memops(ptr, true);
    return result;
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult no = check_unsafe(driver); no != CUDA_SUCCESS) return no;
    const auto region = driver.regions().find(ptr);
    if (!region || region->freed) return CUDA_ERROR_INVALID_VALUE;
    if (region->kind == RegionKind::kMapped) return CUDA_ERROR_NOT_SUPPORTED;
    unsigned flag = 0;
    std::memcpy(&flag, value, sizeof flag);
    driver.regions().set_sync_memops(ptr, flag != 0);
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < numAttributes; ++i) {
      if (data[i] == nullptr || attributes[i] == 0 ||
          attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS ||
          attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    const auto region = driver.regions().find(ptr);
    for (unsigned i = 0; i < numAttributes; ++i) {
      if (region && !region->freed) {
        answer(*region, asking_device(driver, *region), attributes[i], ptr, data[i]);
      } else {
        answer_unknown(attributes[i], ptr, data[i]);
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
