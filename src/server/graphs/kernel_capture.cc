#include "server/graphs/kernel_capture.h"

namespace flyt::server {

CUresult KernelCapture::add(CUgraph to, const CUDA_KERNEL_NODE_PARAMS_v2& kernel,
                            CUgraphNode& made) {
  if (driver_.cuStreamBeginCaptureToGraph == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUresult result = CUDA_SUCCESS;
  if (stream_ == nullptr) result = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS) {
    result = driver_.cuStreamBeginCaptureToGraph(stream_, to, nullptr, nullptr, 0,
                                                 CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  if (result != CUDA_SUCCESS) return result;
  result = driver_.cuLaunchKernel(kernel.func, kernel.gridDimX, kernel.gridDimY, kernel.gridDimZ,
                                  kernel.blockDimX, kernel.blockDimY, kernel.blockDimZ,
                                  kernel.sharedMemBytes, stream_, kernel.kernelParams,
                                  kernel.kernelParams == nullptr ? kernel.extra : nullptr);
  CUstreamCaptureStatus status{};
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  if (result == CUDA_SUCCESS) {
    result = driver_.cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, nullptr, &last, &count);
  }
  if (result == CUDA_SUCCESS) {
    if (count == 1) made = *last;
    if (count != 1) result = CUDA_ERROR_UNKNOWN;
  }
  CUgraph into = nullptr;
  const CUresult ended = driver_.cuStreamEndCapture(stream_, &into);
  return result == CUDA_SUCCESS ? ended : result;
}

}  // namespace flyt::server
