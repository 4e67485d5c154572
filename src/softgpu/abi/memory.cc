// Device memory.
#include "softgpu/abi/enter.h"

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::size_t kPitchAlign = 512;

CUresult allocate(Driver& driver, Context& context, std::size_t bytes, CUdeviceptr* out) {
  Device& device = context.device();
  if (bytes > device.memory().limit()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto address = driver.allocate(device, bytes);
  if (!address) {
    // Memory that is freed in the order of a stream may come back.
    if (const CUresult bad = context.synchronize(); bad != CUDA_SUCCESS) return bad;
    address = driver.allocate(device, bytes);
  }
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  driver.add_region(RegionKind::kDevice, context, *address, bytes);
  *out = *address;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](Driver&, Context& context) {
    const DeviceMemory& memory = context.device().memory();
    if (free != nullptr) *free = memory.limit() - memory.used();
    if (total != nullptr) *total = memory.limit();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
    return allocate(driver, context, bytesize, dptr);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    const bool good_element =
        ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0 || !good_element) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    constexpr std::size_t kPitchMax = 2147483647;
    if (WidthInBytes > kPitchMax - kPitchAlign) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t pitch = (WidthInBytes + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = allocate(driver, context, bytes, dptr);
    if (result == CUDA_SUCCESS) *pPitch = pitch;
    return result;
  });
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  return with_driver([&](Driver& driver) -> CUresult {
    // Freeing works from any context of the process, and of none.
    auto region = driver.regions().find(dptr);
    // What a pool has belongs to the device.
    const bool at_home = region && region->kind != RegionKind::kPool;
    CUresult bad = check_home(driver, at_home ? region->context : 0);
    if (bad == CUDA_SUCCESS) bad = check_unsafe(driver);
    if (bad != CUDA_SUCCESS) return bad;
    if (dptr == 0) return CUDA_SUCCESS;
    std::shared_ptr<Context> current;
    static_cast<void>(living_context(driver, current));
    if (region && region->kind == RegionKind::kGraph) {
      if (!driver.unclaim_graph_memory(dptr)) return CUDA_ERROR_INVALID_VALUE;
      if (current != nullptr) current->synchronize();
      return driver.release_graph_memory(dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    const bool ours = region && region->base == dptr &&
                      (region->kind == RegionKind::kDevice || region->kind == RegionKind::kPool ||
                       region->kind == RegionKind::kManaged);
    if (!ours || region->freed) return CUDA_ERROR_INVALID_VALUE;
    if (const auto context = driver.contexts().find(region->context)) context->synchronize();
    if (current != nullptr) current->synchronize();
    region = driver.regions().remove(dptr, region->kind);
    if (!region) return CUDA_ERROR_INVALID_VALUE;
    if (region->kind == RegionKind::kDevice) {
      driver.device(region->device)->memory().release(region->base, region->size);
    } else if (region->kind == RegionKind::kManaged) {
      driver.end_managed(*region);
    } else if (const auto pool = driver.pools().find(region->pool)) {
      pool->release(*region);
    }
    driver.synchronised();
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    if (pbase == nullptr && psize == nullptr) return CUDA_SUCCESS;
    const auto region = driver.regions().find(dptr);
    if (!region || region->freed) return CUDA_ERROR_NOT_FOUND;
    if (pbase != nullptr) *pbase = region->base;
    if (psize != nullptr) *psize = region->size;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
