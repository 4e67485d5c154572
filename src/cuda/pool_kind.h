// What memory pools may be of.
#pragma once

#include "cuda/types.h"

namespace flyt::cuda {

// Whether CUDA has such pools but they are not ones of a device's own memory.
inline bool is_pool_elsewhere(const CUmemLocation& location, CUmemAllocationType type) {
  const bool host = location.type >= CU_MEM_LOCATION_TYPE_HOST &&
                    location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  if (type == CU_MEM_ALLOCATION_TYPE_PINNED) return host;
  return type == CU_MEM_ALLOCATION_TYPE_MANAGED &&
         (host || location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
          location.type == CU_MEM_LOCATION_TYPE_NONE);
}

}  // namespace flyt::cuda
