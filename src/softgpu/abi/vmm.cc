// Virtual memory management: reserve, create, map.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstring>

#include "cuda/memory_place.h"
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kGranularity = kPhysicalGranularity;
constexpr std::uint64_t kAddressMax = std::uint64_t{1} << 47;
// Where kernels see what has no address of its own.
constexpr std::uint64_t kWindowsBegin = ptx::kSharedWindow;
constexpr std::uint64_t kWindowsEnd = ptx::kFunctionWindow + 0x10'0000'0000;

bool aligned(std::uint64_t value) { return value % kGranularity == 0; }

// The device that an allocation or an access is for; null where there is none.
Device* device_of(const Driver& driver, const CUmemLocation& location) {
  return driver.device(location.id);
}

CUresult check_prop(const Driver& driver, const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (cuda::is_host(prop->location)) return CUDA_ERROR_NOT_SUPPORTED;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (!cuda::are_shareable(prop->requestedHandleTypes)) return CUDA_ERROR_INVALID_VALUE;
  if ((prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return device_of(driver, prop->location) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Address space without memory; 0 where the system has none there.
std::uint64_t reserve_at(std::uint64_t wanted, std::uint64_t bytes, bool exact) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* at = ::mmap(wanted == 0 ? nullptr : pointer_at(wanted), bytes, PROT_NONE,
                    kFlags | (exact ? MAP_FIXED_NOREPLACE : 0), -1, 0);
  return at == MAP_FAILED ? 0 : address_of(at);
}

std::uint64_t reserve(std::uint64_t wanted, std::uint64_t bytes, std::uint64_t align) {
  const bool usable = wanted != 0 && wanted % align == 0 && bytes <= kAddressMax &&
                      wanted <= kAddressMax - bytes &&
                      (wanted >= kWindowsEnd || wanted + bytes <= kWindowsBegin);
  if (usable) {
    if (const std::uint64_t at = reserve_at(wanted, bytes, true); at != 0) return at;
  }
  // The wish is only a hint. Reserve more, and give back what is too much.
  const std::uint64_t all = bytes + align;
  if (all < bytes || all > kAddressMax) return 0;
  const std::uint64_t at = reserve_at(0, all, false);
  if (at == 0) return 0;
  const std::uint64_t base = (at + align - 1) & ~(align - 1);
  if (base != at) ::munmap(pointer_at(at), base - at);
  if (base + bytes != at + all) ::munmap(pointer_at(base + bytes), at + all - base - bytes);
  return base;
}

// Is [base, base + size) within one reservation?
bool reserved(const std::map<std::uint64_t, std::uint64_t>& reservations, std::uint64_t base,
              std::uint64_t size) {
  auto at = reservations.upper_bound(base);
  if (at == reservations.begin()) return false;
  --at;
  return base - at->first <= at->second && size <= at->second - (base - at->first);
}

// Forgets an allocation that nobody holds and that is mapped nowhere.
void drop(Driver& driver, const std::shared_ptr<Allocation>& allocation) {
  if (allocation->references != 0 || allocation->mappings != 0) return;
  driver.allocations().take(allocation->handle);
  driver.device(allocation->device)->memory().uncharge(allocation->size);
}

CUresult adopt(Driver& driver, Fd file, std::uint64_t size, const CUmemAllocationProp& prop,
               CUmemGenericAllocationHandle* out) {
  auto allocation = std::make_shared<Allocation>();
  allocation->memory = std::move(file);
  allocation->size = size;
  allocation->device = prop.location.id;
  allocation->prop = prop;
  allocation->handle = driver.allocations().add(allocation);
  *out = allocation->handle;
  return CUDA_SUCCESS;
}

CUresult map(Driver& driver, std::uint64_t base, std::uint64_t size,
             const std::shared_ptr<Allocation>& allocation) {
  if (driver.regions().overlaps(base, size)) return CUDA_ERROR_INVALID_VALUE;
  void* at = ::mmap(pointer_at(base), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    allocation->memory.get(), 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  Region region;
  region.kind = RegionKind::kMapped;
  region.base = base;
  region.size = size;
  region.device = allocation->device;
  region.allocation = allocation->handle;
  driver.regions().add(region);
  ++allocation->mappings;
  return CUDA_SUCCESS;
}

void unmap(Driver& driver, const Region& region) {
  driver.regions().remove(region.base, RegionKind::kMapped);
  ::mmap(pointer_at(region.base), region.size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const auto allocation = driver.allocations().find(region.allocation);
  if (allocation == nullptr) return;
  --allocation->mappings;
  drop(driver, allocation);
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    const bool power = (alignment & (alignment - 1)) == 0;
    if (ptr == nullptr || size == 0 || !aligned(size) || !aligned(addr) || flags != 0 || !power) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const Lock lock(driver.vmm_mutex());
    const std::uint64_t base =
        reserve(addr, size, std::max<std::uint64_t>(alignment, kGranularity));
    if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    driver.reservations().emplace(base, size);
    *ptr = base;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  return with_driver([&](Driver& driver) -> CUresult {
    const Lock lock(driver.vmm_mutex());
    const auto found = driver.reservations().find(ptr);
    if (found == driver.reservations().end() || found->second != size ||
        driver.regions().overlaps(ptr, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    driver.reservations().erase(found);
    ::munmap(pointer_at(ptr), size);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr || size == 0 || !aligned(size) || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const CUresult bad = check_prop(driver, prop); bad != CUDA_SUCCESS) return bad;
    Device& device = *device_of(driver, prop->location);
    if (!driver.charge(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    auto file = make_memory_file(size, device.number());
    if (!file) {
      device.memory().uncharge(size);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return adopt(driver, std::move(*file), size, *prop, handle);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver) -> CUresult {
    const Lock lock(driver.vmm_mutex());
    const auto allocation = driver.allocations().find(handle);
    if (allocation == nullptr || allocation->references == 0) return CUDA_ERROR_INVALID_VALUE;
    --allocation->references;
    drop(driver, allocation);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (flags != 0 || size == 0 || !aligned(ptr)) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(driver.vmm_mutex());
    const auto allocation = driver.allocations().find(handle);
    if (allocation == nullptr || allocation->references == 0) return CUDA_ERROR_INVALID_VALUE;
    // NVIDIA's driver maps whole allocations only, too.
    if (offset != 0 || size != allocation->size) return CUDA_ERROR_NOT_SUPPORTED;
    if (!reserved(driver.reservations(), ptr, size)) return CUDA_ERROR_INVALID_VALUE;
    return map(driver, ptr, size, allocation);
  });
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto regions = driver.regions().exactly(ptr, size, RegionKind::kMapped);
    if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(driver.vmm_mutex());
    for (const Region& region : regions) unmap(driver, region);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      // The host reaches no memory of a device.
      if (cuda::is_host(desc[i].location)) return CUDA_ERROR_NOT_SUPPORTED;
      if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
          device_of(driver, desc[i].location) == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      const CUmemAccess_flags flags = desc[i].flags;
      if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
          flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    const Lock lock(driver.vmm_mutex());
    const auto regions = driver.regions().exactly(ptr, size, RegionKind::kMapped);
    if (regions.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const Region& region : regions) {
      for (size_t i = 0; i < count; ++i) {
        driver.regions().set_access(region.base, device_set(desc[i].location.id),
                                    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE,
                                    desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      }
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (flags == nullptr || location == nullptr || ptr == 0) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE && !cuda::is_host(*location)) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    const auto region = driver.regions().find(ptr);
    if (!region || region->freed) return CUDA_ERROR_INVALID_VALUE;
    // As NVIDIA's driver has it, the host has the access of a device, and memory that was not
    // mapped has none for anybody.
    const bool host = location->type == CU_MEM_LOCATION_TYPE_HOST;
    const int number = host ? region->device : location->id;
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && driver.device(number) == nullptr) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    if (region->kind != RegionKind::kMapped || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      return CUDA_SUCCESS;
    }
    const DeviceSet device = device_set(number);
    *flags = (region->writers & device) != 0   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
             : (region->readers & device) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType,
                                      unsigned long long flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    const Lock lock(driver.vmm_mutex());
    const auto allocation = driver.allocations().find(handle);
    if (shareableHandle == nullptr || flags != 0 || allocation == nullptr ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (allocation->prop.requestedHandleTypes & handleType) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int fd = ::fcntl(allocation->memory.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    std::memcpy(shareableHandle, &fd, sizeof fd);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto fd = static_cast<int>(address_of(osHandle));
    const auto found = inspect_memory_file(fd);
    if (!found || !aligned(found->first)) return CUDA_ERROR_UNKNOWN;
    Device* device = driver.device(found->second);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    Fd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
    if (!driver.charge(*device, found->first)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device->number()};
    return adopt(driver, std::move(own), found->first, prop, handle);
  });
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  return with_driver([&](Driver&) -> CUresult {
    if (granularity == nullptr || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // The same whatever the memory would be and wherever, even where there can be none.
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto allocation = driver.allocations().find(handle);
    if (prop == nullptr || allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *prop = allocation->prop;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  return with_driver([&](Driver& driver) -> CUresult {
    const Lock lock(driver.vmm_mutex());
    const auto region = driver.regions().find(address_of(addr));
    if (handle == nullptr || !region || region->kind != RegionKind::kMapped) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const auto allocation = driver.allocations().find(region->allocation);
    if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ++allocation->references;
    *handle = allocation->handle;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
