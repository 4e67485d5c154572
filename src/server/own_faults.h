// OwnFaults: faults of a session's kernels where they are the session's alone, each counted once.
#pragma once

#include <atomic>

#include "cuda/types.h"
#include "server/fault_board.h"
#include "server/usage_board.h"

namespace flyt::server {

// Safe from any thread.
class OwnFaults {
 public:
  // What the driver answers from now on for ever is one fault, until forget().
  void see(CUresult result) {
    if (!is_gpu_fault(result) || seen_.exchange(true)) return;
    own_usage().note_suspect(
        {.error = static_cast<std::uint32_t>(result), .suspects = 1, .goes_on = true});
  }
  // A context has ended, and what it kept of its fault with it.
  void forget() { seen_.store(false); }

 private:
  std::atomic<bool> seen_{false};
};

}  // namespace flyt::server
