// Library: the calls of one libcuda that the benchmark makes, our own client's included (which
// driver::load refuses, rightly, for servers).
#pragma once

#include <dlfcn.h>

#include <string>

#include "base/result.h"
#include "driver/table.h"

namespace flyt::bench {

struct Library {
#define FLYT_CALLS(X)             \
  X(cuInit)                       \
  X(cuDevicePrimaryCtxRetain)     \
  X(cuDevicePrimaryCtxRelease_v2) \
  X(cuCtxSetCurrent)              \
  X(cuCtxSynchronize)             \
  X(cuModuleLoadData)             \
  X(cuModuleGetFunction)          \
  X(cuModuleUnload)               \
  X(cuStreamCreate)               \
  X(cuStreamDestroy_v2)           \
  X(cuStreamSynchronize)          \
  X(cuLaunchKernel)               \
  X(cuMemGetInfo_v2)              \
  X(cuMemAlloc_v2)                \
  X(cuMemFree_v2)                 \
  X(cuMemHostAlloc)               \
  X(cuMemFreeHost)                \
  X(cuMemcpyHtoD_v2)              \
  X(cuMemcpyDtoH_v2)
#define FLYT_MEMBER(name) decltype(driver::Table::name) name = nullptr;
  FLYT_CALLS(FLYT_MEMBER)
#undef FLYT_MEMBER
};

inline Result<Library> load_library(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Error{ErrorCode::kNotFound, ::dlerror()};
  Library library;
#define FLYT_BIND(name)                                                            \
  library.name = reinterpret_cast<decltype(library.name)>(::dlsym(handle, #name)); \
  if (library.name == nullptr) return Error{ErrorCode::kUnsupported, path + " lacks " #name};
  FLYT_CALLS(FLYT_BIND)
#undef FLYT_BIND
#undef FLYT_CALLS
  return library;
}

}  // namespace flyt::bench
