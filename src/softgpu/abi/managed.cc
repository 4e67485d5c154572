// Managed memory: the program's own, which every device reaches.

#include "softgpu/abi/enter.h"
#include "softgpu/memory/managed_memory.h"

namespace flyt::softgpu {
namespace {

// Prefetches and discards move nothing here; what is asked for is kept, and answered.
template <class Each>
CUresult batch(CUdeviceptr* dptrs, size_t* sizes, size_t count, unsigned long long flags,
               CUstream stream, Each each) {
  return with_work(stream, [&](Driver& driver, Context&, const StreamOfCall&) -> CUresult {
    const bool legacy = cuda::resolve_default(stream) == CU_STREAM_LEGACY;
    if (dptrs == nullptr || sizes == nullptr || count == 0 || flags != 0 || legacy) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
      if (const CUresult bad = each(driver, i, false); bad != CUDA_SUCCESS) return bad;
    }
    for (size_t i = 0; i < count; ++i) each(driver, i, true);
    return CUDA_SUCCESS;
  });
}

CUresult prefetch_batch(CUdeviceptr* dptrs, size_t* sizes, size_t count, CUmemLocation* locations,
                        size_t* indices, size_t location_count, unsigned long long flags,
                        CUstream stream) {
  const cuda::BatchLocations where(locations, indices, location_count, count);
  if (!where.valid()) return CUDA_ERROR_INVALID_VALUE;
  return batch(dptrs, sizes, count, flags, stream, [&](Driver& driver, size_t i, bool now) {
    return now ? driver.managed().prefetch(dptrs[i], sizes[i], where.of(i))
               : driver.managed().check_prefetch_of_batch(dptrs[i], sizes[i], where.of(i));
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    if (dptr == nullptr || bytesize == 0 ||
        (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::uint64_t address = map_managed(bytesize);
    if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    Region region;
    region.kind = RegionKind::kManaged;
    region.base = address;
    region.size = bytesize;
    region.device = context.device().number();
    region.context = context.handle();
    region.managed = region.sync_memops = true;
    region.readers = region.writers = kAllDevices;
    driver.regions().add(region);
    driver.managed().add(address, bytesize);
    *dptr = address;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall&) -> CUresult {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return driver.managed().prefetch(devPtr, count, location);
  });
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  return cuMemPrefetchAsync_v2(devPtr, count, cuda::location_of(dstDevice), 0, hStream);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  return with_unsafe([&](Driver& driver, Context&) {
    return driver.managed().advise(devPtr, count, advice, location);
  });
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  return with_unsafe([&](Driver& driver, Context&) {
    return driver.managed().advise_for(device, devPtr, count, advice);
  });
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                        hStream);
}

CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  return batch(dptrs, sizes, count, flags, hStream, [&](Driver& driver, size_t i, bool) {
    return driver.managed().check(dptrs[i], sizes[i]);
  });
}

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                        hStream);
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  return with_context([&](Driver& driver, Context&) {
    return driver.managed().attribute(data, dataSize, attribute, devPtr, count);
  });
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < numAttributes; ++i) {
      const CUresult bad =
          driver.managed().attribute(data[i], dataSizes[i], attributes[i], devPtr, count);
      if (bad != CUDA_SUCCESS) return bad;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall&) -> CUresult {
    if (const CUresult no = check_unsafe(driver); no != CUDA_SUCCESS) return no;
    const auto region = driver.regions().find(dptr);
    if (!region || !region->managed) return CUDA_ERROR_INVALID_VALUE;
    return cuda::check_attach(hStream, dptr, length, flags, region->base, region->size);
  });
}

}  // extern "C"
