// CudaLibrary: the calls of one libcuda that benchmarks and kill tests make; our own client's too,
// which driver::load refuses, rightly, for servers.
#pragma once

#include <dlfcn.h>

#include <string>

#include "base/result.h"
#include "driver/table.h"

namespace flyt::tests {

struct CudaLibrary {
#define FLYT_CALLS(X)             \
  X(cuInit)                       \
  X(cuDeviceGetCount)             \
  X(cuDevicePrimaryCtxRetain)     \
  X(cuDevicePrimaryCtxRelease_v2) \
  X(cuCtxSetCurrent)              \
  X(cuCtxSynchronize)             \
  X(cuModuleLoadData)             \
  X(cuModuleGetFunction)          \
  X(cuModuleUnload)               \
  X(cuStreamCreate)               \
  X(cuStreamDestroy_v2)           \
  X(cuStreamQuery)                \
  X(cuStreamSynchronize)          \
  X(cuStreamWaitValue32_v2)       \
  X(cuEventCreate)                \
  X(cuEventRecord)                \
  X(cuEventQuery)                 \
  X(cuEventSynchronize)           \
  X(cuEventDestroy_v2)            \
  X(cuLaunchKernel)               \
  X(cuLaunchHostFunc)             \
  X(cuMemGetInfo_v2)              \
  X(cuMemAlloc_v2)                \
  X(cuMemFree_v2)                 \
  X(cuMemAllocManaged)            \
  X(cuMemHostAlloc)               \
  X(cuMemFreeHost)                \
  X(cuMemcpyHtoD_v2)              \
  X(cuMemcpyDtoH_v2)              \
  X(cuMemcpyHtoDAsync_v2)         \
  X(cuMemcpyDtoHAsync_v2)         \
  X(cuMemsetD8Async)
#define FLYT_MEMBER(name) decltype(driver::Table::name) name = nullptr;
  FLYT_CALLS(FLYT_MEMBER)
#undef FLYT_MEMBER
};

inline Result<CudaLibrary> load_cuda(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Error{ErrorCode::kNotFound, ::dlerror()};
  CudaLibrary library;
#define FLYT_BIND(name)                                                            \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(handle, #name)); \
  if (library.name == nullptr) return Error{ErrorCode::kUnsupported, path + " lacks " #name};
  FLYT_CALLS(FLYT_BIND)
#undef FLYT_BIND
#undef FLYT_CALLS
  return library;
}

}  // namespace flyt::tests
