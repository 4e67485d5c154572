// Where memory and pools may be, and how they may be shared.
#pragma once

#include <cstdint>

#include "cuda/types.h"

namespace flyt::cuda {

// Whether memory can be there, but it is the host's.
inline bool is_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

// Whether CUDA has such pools but they are not ones of a device's own memory.
inline bool is_pool_elsewhere(const CUmemLocation& location, CUmemAllocationType type) {
  if (type == CU_MEM_ALLOCATION_TYPE_PINNED) return is_host(location);
  return type == CU_MEM_ALLOCATION_TYPE_MANAGED &&
         (is_host(location) || location.type == CU_MEM_LOCATION_TYPE_DEVICE ||
          location.type == CU_MEM_LOCATION_TYPE_NONE);
}

// Whether devices, the host or nothing in particular is named: other kinds have no pools.
inline bool has_pools(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_NONE ||
         location.type == CU_MEM_LOCATION_TYPE_DEVICE || is_host(location);
}

// Whether no memory can be so large: with its last piece it has more bytes than a number can tell.
inline bool is_endless(std::uint64_t bytes) { return bytes + (std::uint64_t{1} << 21) < bytes; }

// Whether all of these are handles that Linux has.
inline bool are_shareable(unsigned handle_types) {
  return (handle_types &
          ~unsigned{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC}) == 0;
}

}  // namespace flyt::cuda
