// What an address is: answered from the client's own map, without a round trip.
#include "client/hooks_pointer.h"

#include <array>
#include <cstring>

#include "base/pages.h"
#include "client/call.h"
#include "client/memory_state.h"

namespace flyt::client::hooks {
namespace {

template <class T>
CUresult tell(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

struct Mapping {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

// The physical block behind a range; of host memory its pages.
Mapping mapping_of(const Memory& memory) {
  if (memory.mapping_bytes != 0) return {memory.mapping_base, memory.mapping_bytes};
  const std::uint64_t base = memory.base / Pages::kPageBytes * Pages::kPageBytes;
  const std::uint64_t end = Pages::whole(memory.end());
  return {base, end - base};
}

std::uint64_t handle_types(const Memory& memory) {
  if (memory.kind == MemoryKind::kPool) {
    const PoolState* pool = session().memory().pools.find(memory.pool);
    const bool shared = pool != nullptr && (pool->shareable || pool->imported);
    return shared ? std::uint64_t{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR} : 0;
  }
  const AllocationState* allocation = session().memory().allocations.find(memory.allocation);
  if (memory.kind != MemoryKind::kMapped || allocation == nullptr) return 0;
  return static_cast<std::uint64_t>(allocation->properties.requestedHandleTypes);
}

// What the device of the current context may do with it.
std::uint32_t access_here(const Memory& memory) {
  const ContextState* const current = thread_state().current_state;
  const bool mapped = memory.kind == MemoryKind::kMapped && current != nullptr;
  return mapped ? memory.access_of(current->device) : memory.access;
}

// Unless the program says otherwise.
bool is_synchronous(const Memory& memory) {
  return memory.is_managed() || memory.kind == MemoryKind::kGlobal;
}

bool set_sync_memops(std::uint64_t address, bool wanted) {
  return session().memory().map().update(address,
                                         [wanted](Memory& memory) { memory.sync_memops = wanted; });
}

// Attributes of a range that CUDA knows. `address` is the one that was asked for.
CUresult attribute_of(const Memory& memory, std::uint64_t address, CUpointer_attribute attribute,
                      void* data) {
  const bool device = memory.on_device();
  const bool reserved = memory.kind == MemoryKind::kMapped && memory.reserved_bytes != 0;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      const bool owned = memory.kind != MemoryKind::kPool && memory.kind != MemoryKind::kMapped &&
                         memory.kind != MemoryKind::kManagedVariable;
      return tell(data, owned ? memory.context : 0);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return tell<unsigned int>(data, device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (memory.kind == MemoryKind::kMapped && access_here(memory) == 0) {
        tell<std::uint64_t>(data, 0);
        return CUDA_ERROR_INVALID_VALUE;
      }
      return tell(data, memory.device_address(address));
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (device && !memory.is_managed()) {
        tell<std::uint64_t>(data, 0);
        return CUDA_ERROR_INVALID_VALUE;
      }
      return tell(data, address);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      // Both mean nothing to the devices of this machine.
      tell(data, std::array<std::uint64_t, 2>{});
      if (!device) return CUDA_ERROR_INVALID_VALUE;
      set_sync_memops(address, true);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return tell<unsigned int>(data, memory.sync_memops.value_or(is_synchronous(memory)) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return tell(data, memory.buffer_id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return tell<int>(data, memory.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return tell(data, reserved ? memory.reserved_base : memory.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return tell(data, reserved ? memory.reserved_bytes : memory.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return tell<unsigned int>(data, 1);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return tell<std::uint64_t>(data, handle_types(memory));
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return tell<unsigned int>(data, access_here(memory));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return tell(data, memory.pool);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return tell(data, mapping_of(memory).bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return tell(data, mapping_of(memory).base);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return tell(data, memory.block_id != 0 ? memory.block_id : memory.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return tell<unsigned int>(data, memory.is_managed() ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return tell<unsigned int>(data, memory.kind == MemoryKind::kDevice ? 1 : 0);
    // Other devices of this machine do not reach the memory.
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return tell<unsigned int>(data, 0);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// What cuPointerGetAttributes tells of an address that CUDA does not know. Some attributes are left
// as they were.
void attribute_of_unknown(std::uint64_t address, CUpointer_attribute attribute, void* data) {
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      tell(data, address);
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      tell<int>(data, -2);
      return;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      tell<std::uint64_t>(data, 0);
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      tell<unsigned int>(data, 0);
      return;
    default:
      return;
  }
}

bool known(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = session().memory().map().find(ptr);
  return memory ? attribute_of(*memory, ptr, attribute, data) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  unsigned int wanted = 0;
  std::memcpy(&wanted, value, sizeof(wanted));
  const auto memory = session().memory().map().find(ptr);
  if (memory && memory->kind == MemoryKind::kMapped) return CUDA_ERROR_NOT_SUPPORTED;
  return set_sync_memops(ptr, wanted != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto memory = session().memory().map().find(ptr);
  for (unsigned int i = 0; i < numAttributes; ++i) {
    const bool answered = known(attributes[i]) && attributes[i] != CU_POINTER_ATTRIBUTE_P2P_TOKENS;
    if (!answered || data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // What does not apply to this kind of memory is told as zero here, and is no error.
    if (memory) {
      attribute_of(*memory, ptr, attributes[i], data[i]);
    } else {
      attribute_of_unknown(ptr, attributes[i], data[i]);
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
