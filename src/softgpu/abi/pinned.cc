// Page-locked host memory.
#include <sys/mman.h>

#include "base/mappings.h"
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned kRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
constexpr std::uint64_t kHostBytesMax = std::uint64_t{1} << 46;

void add(Driver& driver, Context& context, RegionKind kind, std::uint64_t base, std::uint64_t size,
         unsigned flags, bool writable) {
  Region region;
  region.kind = kind;
  region.base = base;
  region.size = size;
  region.device = context.device().number();
  region.context = context.handle();
  region.flags = flags;
  region.readers = kAllDevices;
  region.writers = writable ? kAllDevices : 0;
  driver.regions().add(region);
}

CUresult allocate(void** out, std::size_t bytes, unsigned flags) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    if (out == nullptr || (flags & ~kAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    *out = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;
    if (bytes > kHostBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    add(driver, context, RegionKind::kHost, address_of(at), bytes, flags, true);
    *out = at;
    return CUDA_SUCCESS;
  });
}

// Calls body(driver, region) with what is at `p`, which brings its context along.
template <class Body>
CUresult with_region(const void* p, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto region = driver.regions().find(address_of(p));
    CUresult bad = check_home(driver, region ? region->context : 0);
    if (bad == CUDA_SUCCESS) bad = check_unsafe(driver);
    return bad != CUDA_SUCCESS ? bad : body(driver, region);
  });
}

// Work of its own context and of the current one may still use it.
void wait_for_users(Driver& driver, const Region& region) {
  std::shared_ptr<Context> current;
  static_cast<void>(living_context(driver, current));
  if (current != nullptr) current->synchronize();
  if (const auto home = driver.contexts().find(region.context)) home->synchronize();
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return allocate(pp, bytesize, Flags);
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return allocate(pp, bytesize, CU_MEMHOSTALLOC_DEVICEMAP);
}

CUresult cuMemFreeHost(void* p) {
  return with_region(p, [&](Driver& driver, const std::optional<Region>& region) -> CUresult {
    if (p == nullptr) return CUDA_SUCCESS;
    if (!region || region->base != address_of(p) || region->kind != RegionKind::kHost) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    wait_for_users(driver, *region);
    if (!driver.regions().remove(region->base, RegionKind::kHost)) return CUDA_ERROR_INVALID_VALUE;
    ::munmap(p, region->size);
    driver.synchronised();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto region = driver.regions().find(address_of(p));
    if (!region || !region->is_host()) return CUDA_ERROR_INVALID_VALUE;
    *pdptr = address_of(p);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto region = driver.regions().find(address_of(p));
    if (!region || !(region->is_host() || region->managed)) return CUDA_ERROR_INVALID_VALUE;
    *pFlags = (region->managed ? 0 : region->flags) | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    if (p == nullptr || bytesize == 0 || (Flags & ~kRegisterFlags) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t base = address_of(p);
    const bool writable = (Flags & CU_MEMHOSTREGISTER_READ_ONLY) == 0;
    if (!pages_allow(base, bytesize, writable ? PageUse::kWrite : PageUse::kRead)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (const auto region = driver.regions().find(base)) {
      return region->kind == RegionKind::kRegistered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                     : CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.regions().overlaps(base, bytesize)) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (driver.settings().host_memory_waits) context.synchronize();
    add(driver, context, RegionKind::kRegistered, base, bytesize,
        Flags & (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP), writable);
    return CUDA_SUCCESS;
  });
}

// The first version takes any flag, and heeds those that it knows.
CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags & kRegisterFlags);
}

CUresult cuMemHostUnregister(void* p) {
  return with_region(p, [&](Driver& driver, const std::optional<Region>& region) -> CUresult {
    if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!region) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (region->base != address_of(p) || region->kind != RegionKind::kRegistered) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    wait_for_users(driver, *region);
    return driver.regions().remove(region->base, RegionKind::kRegistered)
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  });
}

}  // extern "C"
