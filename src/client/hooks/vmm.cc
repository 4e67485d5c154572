// Virtual memory management: reserve, create, map.
#include "client/hooks_vmm.h"

#include <cstring>
#include <vector>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/vmm.h"
#include "cuda/memory_place.h"

namespace flyt::client::hooks {
namespace {

// Of physical memory, mappings and reservations, on every device that has virtual memory.
constexpr std::uint64_t kGranularity = 2 * kMiB;

CUresult check_properties(const CUmemAllocationProp* properties) {
  if (properties == nullptr || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return check_device(properties->location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

AllocationState* find(CUmemGenericAllocationHandle handle) {
  return session().memory().allocations.find(handle);
}

// Ends the server's allocation with the last reference to it.
CUresult drop_reference(CUmemGenericAllocationHandle handle, AllocationState& state) {
  if (state.references.fetch_sub(1) != 1) return CUDA_SUCCESS;
  // Known until it is gone: another process of the server that is asked again has made it again.
  const CUresult result =
      ask_and_note(commands::VmmRelease{.allocation = handle}, [&](const auto&) {
        session().memory().allocations.drop(handle);
        return CUDA_SUCCESS;
      });
  if (result == CUDA_SUCCESS) return result;
  const bool gone = state.gone.load();
  session().memory().allocations.drop(handle);
  return gone ? CUDA_SUCCESS : result;
}

CUresult unmap(const Memory& mapping) {
  MemoryMap& map = session().memory().map();
  map.update(mapping.base, [](Memory& memory) { memory.unmapping = Unmapping::kAsked; });
  // As of drop_reference().
  const CUresult result = ask_and_note(
      commands::VmmUnmap{.address = mapping.base, .bytes = mapping.bytes}, [&](const auto&) {
        map.remove(mapping.base, MemoryKind::kMapped);
        return CUDA_SUCCESS;
      });
  if (result == CUDA_SUCCESS) return result;
  const auto ended = map.remove(mapping.base, MemoryKind::kMapped);
  return ended && ended->unmapping == Unmapping::kDone ? CUDA_SUCCESS : result;
}

// Mappings that together are exactly [base, base + bytes); empty if there are none.
std::vector<Memory> mappings(std::uint64_t base, std::uint64_t bytes) {
  std::vector<Memory> found = session().memory().map().within(base, bytes);
  std::uint64_t covered = 0;
  for (const Memory& memory : found) {
    if (memory.kind != MemoryKind::kMapped || memory.base != base + covered) return {};
    covered += memory.bytes;
  }
  if (covered != bytes) return {};
  return found;
}

CUresult set_access(const std::vector<Memory>& mapped, const CUmemAccessDesc& access) {
  // The host reaches no memory of a device.
  if (cuda::is_host(access.location)) return CUDA_ERROR_NOT_SUPPORTED;
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      check_device(access.location.id) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool open = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
                    access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
  if (!open && access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
  if (access.location.id >= kAccessorsMax) return CUDA_ERROR_INVALID_DEVICE;
  for (const Memory& memory : mapped) {
    const auto flags = static_cast<std::uint32_t>(access.flags);
    const commands::VmmSetAccess command{.address = memory.base,
                                         .bytes = memory.bytes,
                                         .device = access.location.id,
                                         .access = flags};
    const CUresult result = ask_and_note(command, [&](const auto&) {
      session().memory().map().update(
          memory.base, [&](Memory& mapping) { mapping.set_access(access.location.id, flags); });
      return CUDA_SUCCESS;
    });
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  const bool power_of_two = (alignment & (alignment - 1)) == 0;
  if (ptr == nullptr || size == 0 || size % kGranularity != 0 || !power_of_two ||
      addr % kGranularity != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryState& memory = session().memory();
  if (memory.reservable() == nullptr) {
    return refused("cuMemAddressReserve", "the server's driver has no virtual memory management");
  }
  const std::uint64_t base =
      memory.reservable()->take(size, alignment > kGranularity ? alignment : kGranularity, addr);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  memory.add_reservation(base, size);
  *ptr = base;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  MemoryState& memory = session().memory();
  if (memory.map().overlaps(ptr, size) || !memory.remove_reservation(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory.reservable()->give(ptr, size);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  if (handle == nullptr || size == 0 || size % kGranularity != 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult result = check_properties(prop); result != CUDA_SUCCESS) return result;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return refused("cuMemCreate", "only device memory can be mapped yet");
  }
  if (!cuda::are_shareable(prop->requestedHandleTypes)) return CUDA_ERROR_INVALID_VALUE;
  if ((prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    return refused("cuMemCreate", "memory is shared by file descriptors only");
  }
  MemoryState& memory = session().memory();
  const auto made = memory.allocations.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = ask_and_note(
      commands::VmmCreate{.allocation = made.handle, .bytes = size, .device = prop->location.id},
      [&](const commands::VmmCreate::Reply& reply) {
        made.state->bytes = size;
        made.state->block_id = reply.block_id;
        made.state->properties = *prop;
        made.state->references = 1;
        memory.allocations.publish(made.handle);
        return CUDA_SUCCESS;
      });
  if (result != CUDA_SUCCESS) {
    memory.allocations.discard(made.handle);
    return result;
  }
  *handle = made.handle;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  AllocationState* state = find(handle);
  return state == nullptr ? CUDA_ERROR_INVALID_VALUE : drop_reference(handle, *state);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  AllocationState* state = find(handle);
  if (state == nullptr || flags != 0 || size == 0 || ptr % kGranularity != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (offset != 0 || size != state->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  MemoryState& memory = session().memory();
  const MemoryState::Reservation reservation = memory.reservation_around(ptr, size);
  if (reservation.bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Memory mapping;
  mapping.kind = MemoryKind::kMapped;
  mapping.base = mapping.mapping_base = ptr;
  mapping.bytes = mapping.mapping_bytes = size;
  mapping.device = state->properties.location.id;
  mapping.block_id = state->block_id;
  mapping.allocation = handle;
  mapping.reserved_base = reservation.base;
  mapping.reserved_bytes = reservation.bytes;
  mapping.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  if (!memory.map().add(mapping)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      ask(commands::VmmMap{.address = ptr, .bytes = size, .allocation = handle});
  if (result != CUDA_SUCCESS) memory.map().remove(ptr, MemoryKind::kMapped);
  return result;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const std::vector<Memory> mapped = mappings(ptr, size);
  if (mapped.empty()) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (const Memory& memory : mapped) {
    const CUresult unmapped = unmap(memory);
    if (result == CUDA_SUCCESS) result = unmapped;
  }
  return result;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  const std::vector<Memory> mapped = mappings(ptr, size);
  if (mapped.empty() || desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (const CUresult result = set_access(mapped, desc[i]); result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  if (flags == nullptr || location == nullptr || ptr == 0) return CUDA_ERROR_INVALID_VALUE;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE && !cuda::is_host(*location)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const auto memory = session().memory().map().find(ptr);
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  // As natively: memory that was not mapped has access for nobody, and the host that of a device.
  const bool numa = location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  const bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;
  const CUdevice device = host ? memory->device : location->id;
  const CUresult bad = numa ? CUDA_SUCCESS : check_device(device);
  if (bad != CUDA_SUCCESS) return bad;
  const bool told = memory->kind == MemoryKind::kMapped && !numa;
  *flags = told ? memory->access_of(device) : std::uint64_t{CU_MEM_ACCESS_FLAGS_PROT_NONE};
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  const AllocationState* state = find(handle);
  if (shareableHandle == nullptr || state == nullptr || flags != 0 ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      (state->properties.requestedHandleTypes & handleType) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Fd file;
  const CUresult result = session().memory().shared().export_file(handle, file);
  if (result != CUDA_SUCCESS) return result;
  const int number = file.release();
  std::memcpy(shareableHandle, &number, sizeof number);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return session().memory().shared().import_file(static_cast<int>(address_of(osHandle)), *handle);
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  const bool known =
      option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (granularity == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
  // The same whatever the memory would be and wherever, even where there can be none.
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  const AllocationState* state = find(handle);
  if (prop == nullptr || state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = state->properties;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = session().memory().map().find(address_of(addr));
  if (!memory || memory->kind != MemoryKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  AllocationState* state = find(memory->allocation);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  state->references.fetch_add(1);
  *handle = memory->allocation;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
