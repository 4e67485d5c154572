// Stream-ordered allocation and its pools.
#include "cuda/memory_place.h"
#include "softgpu/abi/enter.h"
#include "softgpu/capture.h"

namespace flyt::softgpu {
namespace {

template <class Body>
CUresult with_pool(CUmemoryPool handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto pool = driver.pools().find(from_handle(handle));
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(driver, pool);
  });
}

// An allocation that a capture takes becomes a node, at an address that is known at once.
CUresult capture_alloc(Driver& driver, Stream& stream, const CUmemPoolProps& props,
                       std::size_t bytes, CUdeviceptr* out) {
  AllocWork work;
  work.params.poolProps = props;
  work.params.bytesize = bytes;
  work.allocation = driver.graph_memory(props.location.id).make(bytes, 0);
  if (work.allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUdeviceptr address = work.allocation->address();
  work.params.dptr = address;
  const CUresult bad = capture_work(driver, stream, std::move(work));
  if (bad == CUDA_SUCCESS) *out = address;
  return bad;
}

CUresult allocate(CUdeviceptr* dptr, std::size_t bytes, const CUmemoryPool* pool_handle,
                  CUstream stream_handle) {
  return with_work(
      stream_handle, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
        if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto pool =
            driver.pools().find(pool_handle != nullptr ? from_handle(*pool_handle)
                                                       : stream.context->device().current_pool());
        if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (bytes == 0) {
          *dptr = 0;
          return CUDA_SUCCESS;
        }
        if (stream.stream->capturing()) {
          return capture_alloc(driver, *stream.stream, pool->props(), bytes, dptr);
        }
        if (const CUresult no = check_unsafe(driver); no != CUDA_SUCCESS) return no;
        *dptr = pool->reuse(bytes, stream.stream.get());
        if (*dptr != 0) return CUDA_SUCCESS;
        const CUresult result = pool->allocate(bytes, stream.context->handle(), dptr);
        if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
        // Memory that streams are about to give back may suffice.
        if (const CUresult bad = stream.context->synchronize(); bad != CUDA_SUCCESS) return bad;
        return pool->allocate(bytes, stream.context->handle(), dptr);
      });
}

// Gives memory back when the stream comes to it.
void free_in_order(Driver& driver, const StreamOfCall& stream, const Region& region) {
  const auto pool = driver.pools().find(region.pool);
  const std::uint64_t token = pool == nullptr ? 0 : pool->pending_free(region, stream.stream.get());
  stream.submit(
      Operation{[&driver, pool, region, token](CUresult) {
                  if (pool != nullptr) return pool->finish_free(region, token);
                  if (!driver.regions().remove(region.base, region.kind)) return;
                  if (region.kind == RegionKind::kDevice) {
                    driver.device(region.device)->memory().release(region.base, region.size);
                  } else {
                    // Its pool went before it, and its part of the budget with the pool.
                    driver.device(region.device)
                        ->memory()
                        .unplace(region.base, allocation_bytes(region.size));
                  }
                },
                {},
                true});
}

CUresult get_pool(CUmemoryPool* pool, CUdevice dev, bool standard) {
  return with_driver([&](Driver& driver) -> CUresult {
    const Device* device = driver.device(dev);
    if (device == nullptr) return standard ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pool = to_handle<CUmemoryPool>(standard ? device->default_pool() : device->current_pool());
    return CUDA_SUCCESS;
  });
}

CUresult device_of(const CUmemLocation* location, CUmemAllocationType type, CUdevice* device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (cuda::is_pool_elsewhere(*location, type)) return CUDA_ERROR_NOT_SUPPORTED;
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *device = location->id;
  // Other calls tell it from other errors.
  return with_driver([&](Driver& driver) {
    return driver.device(*device) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

// The same for calls that ask about pools instead of making one.
CUresult device_asked(const CUmemLocation* location, CUmemAllocationType type, CUdevice* device) {
  if (location != nullptr && !cuda::has_pools(*location)) return CUDA_ERROR_NOT_SUPPORTED;
  return device_of(location, type, device);
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  return get_pool(pool_out, dev, true);
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) { return get_pool(pool, dev, false); }

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  return with_pool(pool, [&](Driver& driver, const std::shared_ptr<Pool>& found) -> CUresult {
    Device* device = driver.device(dev);
    if (&found->device() != device) return CUDA_ERROR_INVALID_VALUE;
    device->set_current_pool(from_handle(pool));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult bad = device_asked(location, type, &device);
  return bad != CUDA_SUCCESS ? bad : cuDeviceGetDefaultMemPool(pool_out, device);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult bad = device_asked(location, type, &device);
  return bad != CUDA_SUCCESS ? bad : cuDeviceGetMemPool(pool, device);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUdevice device = 0;
  const CUresult bad = device_asked(location, type, &device);
  return bad != CUDA_SUCCESS ? bad : cuDeviceSetMemPool(device, pool);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return allocate(dptr, bytesize, nullptr, hStream);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  return allocate(dptr, bytesize, &pool, hStream);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
    if (dptr == 0) return CUDA_SUCCESS;
    const auto region = driver.regions().find(dptr);
    const bool of_graph = region && region->kind == RegionKind::kGraph;
    if (stream.stream->capturing()) {
      return of_graph && region->base == dptr ? capture_work(driver, *stream.stream, FreeWork{dptr})
                                              : CUDA_ERROR_INVALID_VALUE;
    }
    if (of_graph) {
      if (!driver.unclaim_graph_memory(dptr)) return CUDA_ERROR_INVALID_VALUE;
      stream.submit(
          Operation{[&driver, dptr](CUresult) { driver.release_graph_memory(dptr); }, {}, true});
      return CUDA_SUCCESS;
    }
    const bool ours = region && region->base == dptr &&
                      (region->kind == RegionKind::kDevice || region->kind == RegionKind::kPool);
    if (!ours || !driver.regions().mark_freed(dptr)) return CUDA_ERROR_INVALID_VALUE;
    free_in_order(driver, stream, *region);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (const CUresult no = check_unsafe(driver); no != CUDA_SUCCESS) return no;
    if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUdevice number = 0;
    const CUresult bad = device_of(&poolProps->location, poolProps->allocType, &number);
    if (bad != CUDA_SUCCESS) return bad;
    if (!cuda::are_shareable(poolProps->handleTypes)) return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    if (cuda::is_endless(poolProps->maxSize)) return CUDA_ERROR_OUT_OF_MEMORY;
    Device* device = driver.device(number);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    auto made = std::make_shared<Pool>(*device, driver.regions(), *poolProps);
    const std::uint64_t handle = driver.pools().add(made);
    made->set_handle(handle);
    *pool = to_handle<CUmemoryPool>(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  return with_pool(pool, [&](Driver& driver, const std::shared_ptr<Pool>& found) -> CUresult {
    Device& device = found->device();
    const std::uint64_t handle = from_handle(pool);
    if (device.default_pool() == handle) return CUDA_ERROR_INVALID_VALUE;
    if (device.current_pool() == handle) device.set_current_pool(device.default_pool());
    driver.pools().take(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  return with_pool(pool, [&](Driver& driver, const std::shared_ptr<Pool>& found) {
    if (const CUresult no = check_unsafe(driver); no != CUDA_SUCCESS) return no;
    found->trim(minBytesToKeep);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return with_pool(pool, [&](Driver&, const std::shared_ptr<Pool>& found) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : found->set_attribute(attr, value);
  });
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return with_pool(pool, [&](Driver&, const std::shared_ptr<Pool>& found) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : found->attribute(attr, value);
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return with_pool(pool, [&](Driver& driver, const std::shared_ptr<Pool>& found) -> CUresult {
    if (map == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
      if (driver.device(map[i].location.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
      if (map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) return CUDA_ERROR_NOT_SUPPORTED;
      const bool open = map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      if (!open && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_VALUE;
      // The device that owns the memory keeps its access.
      if (!open && map[i].location.id == found->device().number()) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
    }
    for (size_t i = 0; i < count; ++i) found->set_access(map[i].location.id, map[i].flags);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  return with_pool(memPool, [&](Driver& driver, const std::shared_ptr<Pool>& found) -> CUresult {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool host = cuda::is_host(*location);
    const bool of_device =
        location->type == CU_MEM_LOCATION_TYPE_DEVICE && driver.device(location->id) != nullptr;
    if (!host && !of_device) return CUDA_ERROR_INVALID_VALUE;
    // The host has none to the memory of a device.
    *flags = host ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->access(location->id);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
