// Filling device memory.
#include "softgpu/abi/enter.h"
#include "softgpu/copy.h"

namespace flyt::softgpu {
namespace {

CUresult run(CUdeviceptr to, std::size_t pitch, std::uint32_t value, std::uint32_t element,
             std::size_t width, std::size_t height, CUstream handle, bool blocking) {
  return with_work(handle, [&](Driver& driver, Context&, const StreamOfCall& stream) {
    if (width == 0 || height == 0) return CUDA_SUCCESS;
    FillRequest request;
    request.value = value;
    request.element_bytes = element;
    // As NVIDIA does it, a width that overflows is the one that is left.
    request.extent = {width * element, height, 1};
    if (height > 1 && (pitch % element != 0 || pitch < request.extent.width)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    request.to = {to, pitch, 0};
    return fill(driver, stream.context, stream.stream, request, blocking);
  });
}

}  // namespace
}  // namespace flyt::softgpu

using flyt::softgpu::run;

extern "C" {

CUresult cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return run(dstDevice, 0, uc, 1, N, 1, nullptr, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return run(dstDevice, 0, us, 2, N, 1, nullptr, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return run(dstDevice, 0, ui, 4, N, 1, nullptr, true);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                         size_t Height) {
  return run(dstDevice, dstPitch, uc, 1, Width, Height, nullptr, true);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                          size_t Height) {
  return run(dstDevice, dstPitch, us, 2, Width, Height, nullptr, true);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                          size_t Height) {
  return run(dstDevice, dstPitch, ui, 4, Width, Height, nullptr, true);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return run(dstDevice, 0, uc, 1, N, 1, hStream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return run(dstDevice, 0, us, 2, N, 1, hStream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return run(dstDevice, 0, ui, 4, N, 1, hStream, false);
}

CUresult cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                           size_t Height, CUstream hStream) {
  return run(dstDevice, dstPitch, uc, 1, Width, Height, hStream, false);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                            size_t Height, CUstream hStream) {
  return run(dstDevice, dstPitch, us, 2, Width, Height, hStream, false);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                            size_t Height, CUstream hStream) {
  return run(dstDevice, dstPitch, ui, 4, Width, Height, hStream, false);
}

}  // extern "C"
