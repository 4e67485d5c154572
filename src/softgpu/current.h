// Current: the process's one Driver, and what a thread is doing. The CUDA API has no argument for
// either.
#pragma once

#include <cstdint>

#include "cuda/types.h"

namespace flyt::softgpu {

class Driver;

// Null before cuInit.
Driver* current_driver();
// Makes the driver; CUDA_ERROR_NO_DEVICE where the settings ask for none.
CUresult start_driver();

// The contexts of the calling thread, the last one current. Handles: a context that is gone stays
// on the stack and is noticed when it is used.
class ContextStack {
 public:
  static constexpr unsigned kDepthMax = 256;
  std::uint64_t top() const { return depth_ == 0 ? 0 : contexts_[depth_ - 1]; }
  // False where the stack is full.
  bool push(std::uint64_t context) {
    if (depth_ == kDepthMax) return false;
    contexts_[depth_++] = context;
    return true;
  }
  void pop() {
    if (depth_ != 0) --depth_;
  }
  // Replaces the top; 0 takes it away.
  bool set(std::uint64_t context) {
    if (depth_ != 0) --depth_;
    return context == 0 || push(context);
  }

 private:
  // Plain memory, so that it is usable until the thread's very end.
  unsigned depth_ = 0;
  std::uint64_t contexts_[kDepthMax] = {};
};

ContextStack& context_stack();
// A number of the calling thread that no other thread has or will have.
std::uint64_t thread_number();

// What cuThreadExchangeStreamCaptureMode exchanges.
CUstreamCaptureMode& thread_capture_mode();

// While one lives, the calling thread runs a host function of a stream: no CUDA calls there, but
// that a callback may ask whether a stream is done.
class InHostFunction {
 public:
  enum class Kind : unsigned char { kNone, kFunction, kCallback };
  explicit InHostFunction(Kind kind);
  ~InHostFunction();
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;
  static bool active();
  static bool may_query();
};

}  // namespace flyt::softgpu
