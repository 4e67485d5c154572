// What nodes that allocate may say of their memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/types.h"

namespace flyt::cuda {

// CUDA_ERROR_INVALID_VALUE for what there is not, of which enums may hold anything;
// CUDA_ERROR_NOT_SUPPORTED for memory that other processes get, as of NVIDIA's driver, and for
// managed memory, which graphs of Flyt do not allocate.
inline CUresult check_graph_allocation(const CUmemPoolProps& properties, int devices) {
  const auto number = [](const auto& value) {
    std::uint32_t bits = 0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  };
  constexpr std::uint32_t kShared =
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  const std::uint32_t handles = number(properties.handleTypes);
  const std::uint32_t type = number(properties.allocType);
  const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if ((handles & ~kShared) != 0 || (type != CU_MEM_ALLOCATION_TYPE_PINNED && !managed)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (number(properties.location.type)) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (properties.location.id < 0 || properties.location.id >= devices) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return handles != 0 || managed ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace flyt::cuda
