// Captures: the stream captures that this process has begun, and what they forbid its threads.
//
// The server's driver captures; it is told of no mode, because modes speak of threads, which are
// here. What a mode forbids is refused here, and the driver then ends the captures concerned.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::client {

class Session;
struct ContextState;

// Safe from any thread.
class Captures {
 public:
  explicit Captures(Session& session) : session_(session) {}
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  // One load. While it is true, what is posted into streams is heard at once, and nothing about
  // streams and events is answered from here.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }

  // The calling thread has begun one. `graph`: the program's graph that it adds to, or 0.
  void begun(CUstream stream, CUstreamCaptureMode mode, std::uint64_t graph) EXCLUDES(mutex_);
  // Before a stream is asked about its capture or given work: makes that invalid if another thread
  // has done what it forbids.
  void settle(CUstream stream) EXCLUDES(mutex_);
  // Before one is ended: CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD where another thread has begun it.
  // It ends all the same, and gives no graph.
  CUresult before_end(CUstream stream) EXCLUDES(mutex_);
  // It has ended. The graph of begun().
  std::uint64_t ended(CUstream stream) EXCLUDES(mutex_);
  void on_stream_destroyed(CUstream stream) EXCLUDES(mutex_);
  void on_context_destroyed(const ContextState& context) EXCLUDES(mutex_);
  // The calling thread ends, and its own default streams with it.
  void on_thread_ends() EXCLUDES(mutex_);

  // Before a call that may wait for all work: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the
  // captures are invalid, where one and the calling thread's mode forbid that.
  CUresult unsafe_call() { return any() ? judge() : CUDA_SUCCESS; }
  // Before a stream is waited for or asked.
  CUresult wait_call(CUstream stream);
  // Before an event is.
  CUresult event_call(CUevent event);
  // What becomes of work for a stream: `graph` is the one that it is added to, 0: it is done.
  CUresult work_call(CUstream stream, std::uint64_t& graph);

 private:
  struct Capture {
    std::uint64_t stream = 0;
    const void* thread = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::uint64_t graph = 0;
    const ContextState* context = nullptr;
    bool doomed = false;  // To be made invalid by its own thread.
  };

  CUresult judge() EXCLUDES(mutex_);
  std::vector<Capture>::iterator find(CUstream stream) REQUIRES(mutex_);
  void count() REQUIRES(mutex_) { count_.store(captures_.size(), std::memory_order_relaxed); }

  Session& session_;
  std::atomic<std::size_t> count_{0};
  Mutex mutex_;
  std::vector<Capture> captures_ GUARDED_BY(mutex_);
};

// Of those that tell what a capture forbids.
bool is_capture_error(CUresult result);

}  // namespace flyt::client
