// HostStep: a host function of a program that runs until it may end.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::tests {

// One at a time. Answers are CUresults in words.
class HostStep {
 public:
  explicit HostStep(const driver::Table& cu) : cu_(cu) {}
  HostStep(const HostStep&) = delete;
  HostStep& operator=(const HostStep&) = delete;

  // Returns when it runs.
  std::string begin(CUstream stream) {
    const auto wait = [](void* self) { static_cast<HostStep*>(self)->hold(); };
    const CUresult result = cu_.cuLaunchHostFunc(stream, wait, this);
    while (result == CUDA_SUCCESS && !running_.load()) std::this_thread::yield();
    return std::to_string(static_cast<int>(result));
  }
  // Lets it end, and runs another one behind it.
  std::string end(CUstream stream) {
    may_end_.store(true);
    may_end_.notify_all();
    bool ran = false;
    const auto run = [](void* flag) { *static_cast<bool*>(flag) = true; };
    CUresult result = cu_.cuLaunchHostFunc(stream, run, &ran);
    if (result == CUDA_SUCCESS) result = cu_.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS && !ran) return "it did not run";
    return std::to_string(static_cast<int>(result));
  }

 private:
  void hold() {
    running_.store(true);
    may_end_.wait(false);
  }

  const driver::Table& cu_;
  std::atomic<bool> running_{false};
  std::atomic<bool> may_end_{false};
};

}  // namespace flyt::tests
