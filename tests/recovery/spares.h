// Spares: one of each kind of thing whose end a program waits for.
#pragma once

#include <string>

#include "cuda/types.h"
#include "driver/table.h"
#include "tests/recovery/survivor_code.h"

namespace flyt::tests {

// Answers are CUresults in words.
class Spares {
 public:
  explicit Spares(const driver::Table& cu) : cu_(cu) {}
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;

  std::string make() {
    CUcontext current = nullptr;
    CUresult result = cu_.cuCtxGetCurrent(&current);
    if (result == CUDA_SUCCESS) result = cu_.cuMemHostAlloc(&pinned_, 4096, 0);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleLoadData(&module_, kPtx);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuLibraryLoadData(&library_, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0);
    }
    if (result == CUDA_SUCCESS) result = cu_.cuCtxCreate_v2(&context_, 0, 0);
    cu_.cuCtxSetCurrent(current);
    return text(result);
  }
  // Memory that other processes may open.
  std::string share() {
    CUdeviceptr address = 0;
    CUipcMemHandle handle{};
    CUresult result = cu_.cuMemAlloc_v2(&address, 2 << 20);
    if (result == CUDA_SUCCESS) result = cu_.cuIpcGetMemHandle(&handle, address);
    return text(result);
  }
  std::string end(const std::string& which) {
    if (which == "pinned") return text(cu_.cuMemFreeHost(pinned_));
    if (which == "module") return text(cu_.cuModuleUnload(module_));
    if (which == "library") return text(cu_.cuLibraryUnload(library_));
    return text(cu_.cuCtxDestroy_v2(context_));
  }

 private:
  static std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

  const driver::Table& cu_;
  void* pinned_ = nullptr;
  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;
  CUcontext context_ = nullptr;
};

}  // namespace flyt::tests
