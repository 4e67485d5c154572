// QuickWaits: calls of a program that wait, and change nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// Answers are CUresults in words.
class QuickWaits {
 public:
  explicit QuickWaits(const driver::Table& cu) : cu_(cu) {}
  QuickWaits(const QuickWaits&) = delete;
  QuickWaits& operator=(const QuickWaits&) = delete;

  std::string answer(const std::string& what) {
    if (what == "write") return text(write());
    if (what == "peek") return peek();
    return what == "tick" ? text(tick()) : text(cu_.cuCtxSynchronize());
  }

 private:
  static std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

  // Other numbers each time: those of before are none of its memory.
  CUresult write() {
    CUresult result = CUDA_SUCCESS;
    if (memory_ == 0) {
      result = cu_.cuMemAlloc_v2(&memory_, sizeof written_);
      if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
      if (result == CUDA_SUCCESS) result = cu_.cuEventCreate(&event_, 0);
    }
    written_.fill(++last_);
    if (result == CUDA_SUCCESS) {
      result = cu_.cuMemcpyHtoD_v2(memory_, written_.data(), sizeof written_);
    }
    return result == CUDA_SUCCESS ? cu_.cuCtxSynchronize() : result;
  }
  std::string peek() {
    std::array<std::uint32_t, 100> found{};
    const CUresult result = cu_.cuMemcpyDtoH_v2(found.data(), memory_, sizeof found);
    return result == CUDA_SUCCESS && found != written_ ? "other numbers" : text(result);
  }
  CUresult tick() {
    const CUresult result = cu_.cuEventRecord(event_, stream_);
    return result == CUDA_SUCCESS ? cu_.cuEventSynchronize(event_) : result;
  }

  const driver::Table& cu_;
  CUdeviceptr memory_ = 0;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  std::uint32_t last_ = 0;
  std::array<std::uint32_t, 100> written_{};
};

}  // namespace flyt::tests
