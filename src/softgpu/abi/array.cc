// Arrays, mipmapped ones, and flat copies from and to them.
#include "softgpu/array.h"

#include "cuda/array_facts.h"
#include "softgpu/abi/enter.h"
#include "softgpu/copy.h"

namespace flyt::softgpu {
namespace {

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    if (out == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult bad = check_descriptor(context.device(), *descriptor, false);
    std::shared_ptr<Array> array;
    if (bad == CUDA_SUCCESS) bad = make_array(driver, context, *descriptor, array);
    if (bad != CUDA_SUCCESS) return bad;
    *out = to_handle<CUarray>(driver.arrays().add(std::move(array)));
    return CUDA_SUCCESS;
  });
}

// Calls body(driver, array).
template <class Body>
CUresult with_array(CUarray handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto array = driver.arrays().find(from_handle(handle));
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, array->context());
    return bad != CUDA_SUCCESS ? bad : body(driver, array);
  });
}

template <class Body>
CUresult with_mipmapped(CUmipmappedArray handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto array = driver.mipmapped_arrays().find(from_handle(handle));
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, array->context());
    return bad != CUDA_SUCCESS ? bad : body(driver, array);
  });
}

// There are no sparse arrays, and none whose memory is mapped later.
CUresult has_no_such_thing(CUarray array) {
  if (array == nullptr) return with_driver([](Driver&) { return CUDA_ERROR_INVALID_VALUE; });
  return with_array(array, [](auto&&...) { return CUDA_ERROR_INVALID_VALUE; });
}
CUresult has_no_such_thing(CUmipmappedArray array) {
  if (array == nullptr) return with_driver([](Driver&) { return CUDA_ERROR_INVALID_VALUE; });
  return with_mipmapped(array, [](auto&&...) { return CUDA_ERROR_INVALID_VALUE; });
}

// Work that uses it may still be on its way.
void wait_for(Driver& driver, std::uint64_t context) {
  if (const auto owner = driver.contexts().find(context)) owner->synchronize();
}

// One side of a copy of one row.
struct End {
  CUarray array = nullptr;
  std::size_t offset = 0;  // In the array.
  std::uint64_t address = 0;
  Side side = Side::kHost;
};

CUresult place(Driver& driver, const End& end, const Extent& extent, Box& box, Side& side,
               ArraySide& array) {
  if (end.array == nullptr && end.address == 0) return CUDA_ERROR_INVALID_VALUE;
  if (end.array == nullptr) {
    box = {end.address, extent.width, extent.width};
    side = end.side;
    return CUDA_SUCCESS;
  }
  array = {nullptr, end.array, end.offset, 0, 0};
  return place_in_row(driver, extent.width, array, box);
}

CUresult flat_copy(const End& to, const End& from, std::size_t bytes, CUstream stream,
                   bool blocking) {
  const auto body = [&](Driver& driver, Context&, const StreamOfCall& call) -> CUresult {
    if (bytes == 0) return CUDA_SUCCESS;
    CopyRequest request;
    request.extent = {bytes, 1, 1};
    CUresult bad = place(driver, to, request.extent, request.to, request.to_side, request.to_array);
    if (bad == CUDA_SUCCESS) {
      bad =
          place(driver, from, request.extent, request.from, request.from_side, request.from_array);
    }
    if (bad != CUDA_SUCCESS) return bad;
    return copy(driver, call.context, call.stream, request, blocking);
  };
  return blocking ? with_waiting_work(stream, body) : with_work(stream, body);
}

End in_array(CUarray array, std::size_t offset) {
  // Null is no array, and no address either.
  return {array, offset, 0, Side::kDevice};
}
End on_host(const void* host) { return {nullptr, 0, address_of(host), Side::kHost}; }
End on_device(CUdeviceptr device) { return {nullptr, 0, device, Side::kDevice}; }

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pAllocateArray == nullptr) return create(pHandle, nullptr);
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = cuda::solid(*pAllocateArray);
  return create(pHandle, &descriptor);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return create(pHandle, pAllocateArray);
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return with_array(hArray, [&](Driver&, const std::shared_ptr<Array>& array) -> CUresult {
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_ARRAY3D_DESCRIPTOR& d = array->descriptor();
    *pArrayDescriptor = {d.Width, d.Height, d.Format, d.NumChannels};
    return CUDA_SUCCESS;
  });
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  return with_array(hArray, [&](Driver&, const std::shared_ptr<Array>& array) -> CUresult {
    if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pArrayDescriptor = array->descriptor();
    return CUDA_SUCCESS;
  });
}

CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray array) {
  return has_no_such_thing(array);
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*,
                                             CUmipmappedArray mipmap) {
  return has_no_such_thing(mipmap);
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray array, CUdevice) {
  return has_no_such_thing(array);
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*,
                                               CUmipmappedArray mipmap, CUdevice) {
  return has_no_such_thing(mipmap);
}

// Nor of planes.
CUresult cuArrayGetPlane(CUarray*, CUarray hArray, unsigned int) {
  return with_array(hArray, [](auto&&...) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuArrayDestroy(CUarray hArray) {
  return with_array(hArray, [&](Driver& driver, const std::shared_ptr<Array>& array) -> CUresult {
    if (const CUresult bad = check_unsafe(driver); bad != CUDA_SUCCESS) return bad;
    if (array->of_mipmap()) return CUDA_ERROR_INVALID_HANDLE;
    wait_for(driver, array->context());
    return driver.arrays().take(from_handle(hArray)) != nullptr ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  return with_unsafe([&](Driver& driver, Context& context) -> CUresult {
    if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUresult bad = check_descriptor(context.device(), *pMipmappedArrayDesc, true);
    std::shared_ptr<MipmappedArray> array;
    if (bad == CUDA_SUCCESS) {
      bad = make_mipmapped_array(driver, context, *pMipmappedArrayDesc, numMipmapLevels, array);
    }
    if (bad != CUDA_SUCCESS) return bad;
    for (const auto& level : array->levels()) array->handles.push_back(driver.arrays().add(level));
    *pHandle = to_handle<CUmipmappedArray>(driver.mipmapped_arrays().add(std::move(array)));
    return CUDA_SUCCESS;
  });
}

CUresult cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  return with_mipmapped(hMipmappedArray,
                        [&](Driver&, const std::shared_ptr<MipmappedArray>& array) -> CUresult {
                          if (pLevelArray == nullptr || level >= array->handles.size()) {
                            return CUDA_ERROR_INVALID_VALUE;
                          }
                          *pLevelArray = to_handle<CUarray>(array->handles[level]);
                          return CUDA_SUCCESS;
                        });
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  const auto body = [&](Driver& driver, const std::shared_ptr<MipmappedArray>& array) -> CUresult {
    if (const CUresult bad = check_unsafe(driver); bad != CUDA_SUCCESS) return bad;
    wait_for(driver, array->context());
    const auto taken = driver.mipmapped_arrays().take(from_handle(hMipmappedArray));
    if (taken == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (const std::uint64_t level : array->handles) driver.arrays().take(level);
    return CUDA_SUCCESS;
  };
  return with_mipmapped(hMipmappedArray, body);
}

CUresult cuMemcpyHtoA_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                         size_t ByteCount) {
  return flat_copy(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, nullptr, true);
}

CUresult cuMemcpyAtoH_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount) {
  return flat_copy(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, nullptr, true);
}

CUresult cuMemcpyDtoA_v2(CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice,
                         size_t ByteCount) {
  return flat_copy(in_array(dstArray, dstOffset), on_device(srcDevice), ByteCount, nullptr, true);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return flat_copy(on_device(dstDevice), in_array(srcArray, srcOffset), ByteCount, nullptr, true);
}

CUresult cuMemcpyAtoA_v2(CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset,
                         size_t ByteCount) {
  return flat_copy(in_array(dstArray, dstOffset), in_array(srcArray, srcOffset), ByteCount, nullptr,
                   true);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray dstArray, size_t dstOffset, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  return flat_copy(in_array(dstArray, dstOffset), on_host(srcHost), ByteCount, hStream, false);
}

CUresult cuMemcpyAtoHAsync_v2(void* dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount,
                              CUstream hStream) {
  return flat_copy(on_host(dstHost), in_array(srcArray, srcOffset), ByteCount, hStream, false);
}

}  // extern "C"
