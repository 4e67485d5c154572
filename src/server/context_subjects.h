// ContextSubjects: a session's contexts and each client thread's default stream in them.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::server {

class Session;

// Safe from any thread.
class ContextSubjects {
 public:
  explicit ContextSubjects(Session& session) : session_(session) {}

  // See Session::thread_stream().
  CUstream thread_stream(std::uint32_t context, std::uint32_t thread) EXCLUDES(mutex_);

  // Before the driver destroys or resets a context: lets go of all that dies with it, and makes
  // its handle unknown. The context must be current on the calling thread.
  void let_go(CUcontext handle);

  // How many times a device's primary context was retained for this client.
  void count_retained(CUdevice device) EXCLUDES(mutex_);
  // Gives the count back and starts again from 0.
  int take_retained(CUdevice device) EXCLUDES(mutex_);

 private:
  Session& session_;
  Mutex mutex_;
  // By context index and thread number.
  std::map<std::pair<std::uint32_t, std::uint32_t>, CUstream> thread_streams_ GUARDED_BY(mutex_);
  std::map<CUdevice, int> retained_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
