// OwnFaults: faults of a session's kernels where they are the session's alone.
#pragma once

#include <atomic>

#include "cuda/types.h"

namespace flyt::server {

class Session;

// Safe from any thread.
class OwnFaults {
 public:
  explicit OwnFaults(Session& session) : session_(session) {}

  // What the driver answers from now on for ever, whatever becomes of the contexts, is one fault.
  // Only another process has a use of the GPU again: a session that can goes on there, and this
  // does not come back.
  void see(CUresult result);

 private:
  Session& session_;
  std::atomic<bool> seen_{false};
};

}  // namespace flyt::server
