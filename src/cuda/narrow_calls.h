// The calls of before CUDA 3.2, by their successors.
//
// The client and the software GPU define the same ones, the one in a namespace and the other as C,
// so each includes this once, where it wants them: after cuda/narrow.h, with the successors and the
// names of cuda/narrow.h in sight.
#pragma once

CUresult cuMemGetInfo(unsigned int* free, unsigned int* total) {
  size_t wide_free = 0;
  size_t wide_total = 0;
  CUresult result = cuMemGetInfo_v2(&wide_free, &wide_total);
  if (result == CUDA_SUCCESS) result = tell_narrow(wide_free, free);
  if (result == CUDA_SUCCESS) result = tell_narrow(wide_total, total);
  return result;
}

// There is hardly ever memory below 4 GiB, but that is what the caller asks for.
CUresult cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int bytesize) {
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  CUresult result = cuMemAlloc_v2(&wide, bytesize);
  if (result != CUDA_SUCCESS) return result;
  result = tell_narrow(wide, dptr, CUDA_ERROR_OUT_OF_MEMORY);
  if (result != CUDA_SUCCESS) cuMemFree_v2(wide);
  return result;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int* pPitch, unsigned int WidthInBytes,
                         unsigned int Height, unsigned int ElementSizeBytes) {
  if (dptr == nullptr || pPitch == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  size_t pitch = 0;
  CUresult result = cuMemAllocPitch_v2(&wide, &pitch, WidthInBytes, Height, ElementSizeBytes);
  if (result != CUDA_SUCCESS) return result;
  result = tell_narrow(wide, dptr, CUDA_ERROR_OUT_OF_MEMORY);
  if (result == CUDA_SUCCESS) result = tell_narrow(pitch, pPitch, CUDA_ERROR_OUT_OF_MEMORY);
  if (result != CUDA_SUCCESS) cuMemFree_v2(wide);
  return result;
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) { return cuMemFree_v2(dptr); }

CUresult cuMemGetAddressRange(CUdeviceptr_v1* pbase, unsigned int* psize, CUdeviceptr_v1 dptr) {
  CUdeviceptr base = 0;
  size_t size = 0;
  CUresult result = cuMemGetAddressRange_v2(&base, &size, dptr);
  if (result == CUDA_SUCCESS) result = tell_narrow(base, pbase);
  if (result == CUDA_SUCCESS) result = tell_narrow(size, psize);
  return result;
}

CUresult cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount) {
  return cuMemcpyHtoD_v2(dstDevice, srcHost, ByteCount);
}

CUresult cuMemcpyDtoH(void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
  return cuMemcpyDtoH_v2(dstHost, srcDevice, ByteCount);
}

CUresult cuMemcpyDtoD(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice, unsigned int ByteCount) {
  return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpy2D(const CUDA_MEMCPY2D_v1* pCopy) {
  return with_wide(pCopy, [](const CUDA_MEMCPY2D* wide) { return cuMemcpy2D_v2(wide); });
}

CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D_v1* pCopy) {
  return with_wide(pCopy, [](const CUDA_MEMCPY2D* wide) { return cuMemcpy2DUnaligned_v2(wide); });
}

CUresult cuMemcpy3D(const CUDA_MEMCPY3D_v1* pCopy) {
  return with_wide(pCopy, [](const CUDA_MEMCPY3D* wide) { return cuMemcpy3D_v2(wide); });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 dstDevice, const void* srcHost, unsigned int ByteCount,
                           CUstream hStream) {
  return cuMemcpyHtoDAsync_v2(dstDevice, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyDtoHAsync(void* dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount,
                           CUstream hStream) {
  return cuMemcpyDtoHAsync_v2(dstHost, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 dstDevice, CUdeviceptr_v1 srcDevice,
                           unsigned int ByteCount, CUstream hStream) {
  return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D_v1* pCopy, CUstream hStream) {
  return with_wide(pCopy,
                   [&](const CUDA_MEMCPY2D* wide) { return cuMemcpy2DAsync_v2(wide, hStream); });
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D_v1* pCopy, CUstream hStream) {
  return with_wide(pCopy,
                   [&](const CUDA_MEMCPY3D* wide) { return cuMemcpy3DAsync_v2(wide, hStream); });
}

CUresult cuMemsetD8(CUdeviceptr_v1 dstDevice, unsigned char uc, unsigned int N) {
  return cuMemsetD8_v2(dstDevice, uc, N);
}

CUresult cuMemsetD16(CUdeviceptr_v1 dstDevice, unsigned short us, unsigned int N) {
  return cuMemsetD16_v2(dstDevice, us, N);
}

CUresult cuMemsetD32(CUdeviceptr_v1 dstDevice, unsigned int ui, unsigned int N) {
  return cuMemsetD32_v2(dstDevice, ui, N);
}

CUresult cuMemsetD2D8(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned char uc,
                      unsigned int Width, unsigned int Height) {
  return cuMemsetD2D8_v2(dstDevice, dstPitch, uc, Width, Height);
}

CUresult cuMemsetD2D16(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned short us,
                       unsigned int Width, unsigned int Height) {
  return cuMemsetD2D16_v2(dstDevice, dstPitch, us, Width, Height);
}

CUresult cuMemsetD2D32(CUdeviceptr_v1 dstDevice, unsigned int dstPitch, unsigned int ui,
                       unsigned int Width, unsigned int Height) {
  return cuMemsetD2D32_v2(dstDevice, dstPitch, ui, Width, Height);
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1* dptr, unsigned int* bytes, CUmodule hmod,
                           const char* name) {
  if (dptr == nullptr && bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr address = 0;
  size_t size = 0;
  CUresult result = cuModuleGetGlobal_v2(&address, &size, hmod, name);
  if (result == CUDA_SUCCESS) result = tell_narrow(address, dptr);
  if (result == CUDA_SUCCESS) result = tell_narrow(size, bytes);
  return result;
}

CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t wide = 0;
  const CUresult result = cuDeviceTotalMem_v2(&wide, dev);
  // Of more than can be told NVIDIA's driver tells the most that can be.
  if (result == CUDA_SUCCESS) *bytes = wide > ~0U ? ~0U : static_cast<unsigned int>(wide);
  return result;
}

CUresult cuMemAllocHost(void** pp, unsigned int bytesize) {
  return cuMemAllocHost_v2(pp, bytesize);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1* pdptr, void* p, unsigned int Flags) {
  if (pdptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  const CUresult result = cuMemHostGetDevicePointer_v2(&wide, p, Flags);
  return result == CUDA_SUCCESS ? tell_narrow(wide, pdptr) : result;
}

CUresult cuArrayCreate(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR_v1* pAllocateArray) {
  return with_wide(pAllocateArray, [&](const CUDA_ARRAY_DESCRIPTOR* wide) {
    return cuArrayCreate_v2(pHandle, wide);
  });
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY_DESCRIPTOR wide{};
  const CUresult result = cuArrayGetDescriptor_v2(&wide, hArray);
  if (result == CUDA_SUCCESS) *pArrayDescriptor = narrowed(wide);
  return result;
}

CUresult cuArray3DCreate(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1* pAllocateArray) {
  return with_wide(pAllocateArray, [&](const CUDA_ARRAY3D_DESCRIPTOR* wide) {
    return cuArray3DCreate_v2(pHandle, wide);
  });
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1* pArrayDescriptor, CUarray hArray) {
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  const CUresult result = cuArray3DGetDescriptor_v2(&wide, hArray);
  if (result == CUDA_SUCCESS) *pArrayDescriptor = narrowed(wide);
  return result;
}

CUresult cuMemcpyDtoA(CUarray dstArray, unsigned int dstOffset, CUdeviceptr_v1 srcDevice,
                      unsigned int ByteCount) {
  return cuMemcpyDtoA_v2(dstArray, dstOffset, srcDevice, ByteCount);
}

CUresult cuMemcpyAtoD(CUdeviceptr_v1 dstDevice, CUarray srcArray, unsigned int srcOffset,
                      unsigned int ByteCount) {
  return cuMemcpyAtoD_v2(dstDevice, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyHtoA(CUarray dstArray, unsigned int dstOffset, const void* srcHost,
                      unsigned int ByteCount) {
  return cuMemcpyHtoA_v2(dstArray, dstOffset, srcHost, ByteCount);
}

CUresult cuMemcpyAtoH(void* dstHost, CUarray srcArray, unsigned int srcOffset,
                      unsigned int ByteCount) {
  return cuMemcpyAtoH_v2(dstHost, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyAtoA(CUarray dstArray, unsigned int dstOffset, CUarray srcArray,
                      unsigned int srcOffset, unsigned int ByteCount) {
  return cuMemcpyAtoA_v2(dstArray, dstOffset, srcArray, srcOffset, ByteCount);
}

CUresult cuMemcpyHtoAAsync(CUarray dstArray, unsigned int dstOffset, const void* srcHost,
                           unsigned int ByteCount, CUstream hStream) {
  return cuMemcpyHtoAAsync_v2(dstArray, dstOffset, srcHost, ByteCount, hStream);
}

CUresult cuMemcpyAtoHAsync(void* dstHost, CUarray srcArray, unsigned int srcOffset,
                           unsigned int ByteCount, CUstream hStream) {
  return cuMemcpyAtoHAsync_v2(dstHost, srcArray, srcOffset, ByteCount, hStream);
}

CUresult cuTexRefSetAddress(unsigned int* ByteOffset, CUtexref hTexRef, CUdeviceptr_v1 dptr,
                            unsigned int bytes) {
  size_t offset = 0;
  const CUresult result =
      cuTexRefSetAddress_v2(ByteOffset == nullptr ? nullptr : &offset, hTexRef, dptr, bytes);
  return result == CUDA_SUCCESS ? tell_narrow(offset, ByteOffset) : result;
}

CUresult cuTexRefSetAddress2D(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR_v1* desc,
                              CUdeviceptr_v1 dptr, unsigned int Pitch) {
  return with_wide(desc, [&](const CUDA_ARRAY_DESCRIPTOR* wide) {
    return cuTexRefSetAddress2D_v3(hTexRef, wide, dptr, Pitch);
  });
}
