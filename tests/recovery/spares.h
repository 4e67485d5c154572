// Spares: one of each kind of thing whose end a program waits for, and a thread with a stream of
// its own.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "cuda/types.h"
#include "driver/table.h"
#include "tests/recovery/survivor_code.h"

namespace flyt::tests {

// Answers are CUresults in words.
class Spares {
 public:
  explicit Spares(const driver::Table& cu) : cu_(cu) {}
  ~Spares() { end_thread(); }
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
    if (result == CUDA_SUCCESS) result = begin_thread(current);
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
    if (which == "thread") return text(end_thread());
    return text(cu_.cuCtxDestroy_v2(context_));
  }

 private:
  static std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }
  CUresult begin_thread(CUcontext context) {
    thread_ = std::thread([this, context] {
      const CUresult entered = cu_.cuCtxSetCurrent(context);
      used_ = entered == CUDA_SUCCESS ? cu_.cuStreamSynchronize(CU_STREAM_PER_THREAD) : entered;
      used_.notify_one();
      may_end_.wait(false);
    });
    used_.wait(CUDA_ERROR_NOT_READY);
    return used_;
  }
  CUresult end_thread() {
    if (!thread_.joinable()) return CUDA_SUCCESS;
    may_end_ = true;
    may_end_.notify_one();
    thread_.join();
    return CUDA_SUCCESS;
  }

  const driver::Table& cu_;
  void* pinned_ = nullptr;
  CUmodule module_ = nullptr;
  CUlibrary library_ = nullptr;
  CUcontext context_ = nullptr;
  std::atomic<CUresult> used_{CUDA_ERROR_NOT_READY};
  std::atomic<bool> may_end_{false};
  std::thread thread_;
};

}  // namespace flyt::tests
