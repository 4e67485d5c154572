// A library with the least that load() takes for a driver, and with kClientMarker or kSoftMarker if
// it is to be taken for Flyt's client or for the software GPU.
#include "cuda/functions.h"

extern "C" {

CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = 4711;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int*) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice*, int) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice) { return CUDA_SUCCESS; }
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t) { return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule*, const void*) { return CUDA_SUCCESS; }
CUresult cuLaunchKernel(CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, unsigned int, CUstream, void**, void**) {
  return CUDA_SUCCESS;
}
CUresult cuGetProcAddress(const char*, void**, int, cuuint64_t) { return CUDA_SUCCESS; }

#ifdef FLYT_TEST_CLIENT
__attribute__((visibility("default"))) extern const char flyt_client_library;
const char flyt_client_library = 1;
#endif
#ifdef FLYT_TEST_SOFT
__attribute__((visibility("default"))) extern const char flyt_softgpu_library;
const char flyt_softgpu_library = 1;
#endif

}  // extern "C"
