// Managed memory: the program's own, shared with the server or mirrored there for kernels. Where it
// should be is kept here and moves nothing.
#include "client/hooks_managed.h"

#include "client/call.h"
#include "client/memory_state.h"
#include "cuda/default_stream.h"
#include "cuda/managed_ranges.h"

namespace flyt::client::hooks {
namespace {

cuda::ManagedRanges& ranges() { return session().memory().managed(); }

// The stream, and that no capture is in its way.
CUresult check_for_work(CUstream stream) {
  const CUresult result = check(stream);
  std::uint64_t graph = 0;
  return result != CUDA_SUCCESS ? result : session().captures().work_call(stream, graph);
}

// All or nothing: `each` is asked first whether it may, and then told to.
template <class Each>
CUresult batch(const CUdeviceptr* dptrs, const size_t* sizes, size_t count,
               unsigned long long flags, CUstream stream, Each each) {
  if (const CUresult result = check_for_work(stream); result != CUDA_SUCCESS) return result;
  const bool legacy = cuda::resolve_default(stream) == CU_STREAM_LEGACY;
  if (dptrs == nullptr || sizes == nullptr || count == 0 || flags != 0 || legacy) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    if (const CUresult bad = each(i, false); bad != CUDA_SUCCESS) return bad;
  }
  for (size_t i = 0; i < count; ++i) static_cast<void>(each(i, true));
  return CUDA_SUCCESS;
}

CUresult prefetch_batch(const CUdeviceptr* dptrs, const size_t* sizes, size_t count,
                        const CUmemLocation* locations, const size_t* indices,
                        size_t location_count, unsigned long long flags, CUstream stream) {
  const cuda::BatchLocations where(locations, indices, location_count, count);
  if (!where.valid()) return CUDA_ERROR_INVALID_VALUE;
  return batch(dptrs, sizes, count, flags, stream, [&](size_t i, bool now) {
    return now ? ranges().prefetch(dptrs[i], sizes[i], where.of(i))
               : ranges().check_prefetch_of_batch(dptrs[i], sizes[i], where.of(i));
  });
}

CUresult add_mirrored(const Memory& memory) {
  MemoryState& state = session().memory();
  if (!state.map().add(memory)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = state.mirror().begin(memory.base);
  if (result != CUDA_SUCCESS) static_cast<void>(state.map().remove(memory.base, memory.kind));
  return result;
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  if (dptr == nullptr || bytesize == 0 ||
      (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  MemoryState& state = session().memory();
  void* allocated = state.pinned().allocate(bytesize);
  if (allocated == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  Memory memory;
  memory.kind = MemoryKind::kManaged;
  memory.base = address_of(allocated);
  memory.bytes = bytesize;
  memory.context = owner().handle;
  memory.device = context().device;
  const CUresult result = state.pinned().shared() ? state.add_shared(memory) : add_mirrored(memory);
  if (result != CUDA_SUCCESS) {
    state.pinned().free(allocated, bytesize);
    return result;
  }
  ranges().add(memory.base, bytesize);
  *dptr = memory.base;
  return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  if (const CUresult result = check_for_work(hStream); result != CUDA_SUCCESS) return result;
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : ranges().prefetch(devPtr, count, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  return cuMemPrefetchAsync_v2(devPtr, count, cuda::location_of(dstDevice), 0, hStream);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  return ranges().advise(devPtr, count, advice, location);
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  return ranges().advise_for(device, devPtr, count, advice);
}

CUresult cuMemPrefetchBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
  return prefetch_batch(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                        hStream);
}

// Discarded contents are anything, and so may be what they were.
CUresult cuMemDiscardBatchAsync(CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  return batch(dptrs, sizes, count, flags, hStream,
               [&](size_t i, bool) { return ranges().check(dptrs[i], sizes[i]); });
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
  return ranges().attribute(data, dataSize, attribute, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr || numAttributes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < numAttributes; ++i) {
    const CUresult bad = ranges().attribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    if (bad != CUDA_SUCCESS) return bad;
  }
  return CUDA_SUCCESS;
}

// Which stream may use the memory is the program's promise; all may here.
CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  if (const CUresult result = check_for_work(hStream); result != CUDA_SUCCESS) return result;
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const auto memory = session().memory().map().find(dptr);
  if (!memory || !memory->is_managed()) return CUDA_ERROR_INVALID_VALUE;
  return cuda::check_attach(hStream, dptr, length, flags, memory->base, memory->bytes);
}

}  // namespace flyt::client::hooks
