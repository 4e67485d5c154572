// Completions: waits on the GPU that hold up no thread of the session.
#pragma once

#include <functional>

#include "base/annotations.h"
#include "base/clock.h"
#include "cuda/types.h"

namespace flyt::server {

class Session;

// Something that will be done later on the GPU.
struct Completion {
  std::uint32_t context = 0;  // Handle index made current around poll and block; 0: none.
  // CUDA_ERROR_NOT_READY while it is not done; never blocks.
  std::function<CUresult()> poll;
  // Waits until it is done; runs on a worker.
  std::function<CUresult()> block;
  // Called once with the outcome, on the thread that saw it: main or worker.
  std::function<void(CUresult)> finish;
};

// Polled by the main thread between commands for about 100 us each, then blocked upon by a worker.
// add() and poll() belong to the main thread.
class Completions {
 public:
  explicit Completions(Session& session) : session_(session) {}

  void add(Completion completion);
  // Polls each once; returns whether any is still polled, so that the caller must not block.
  bool poll();

 private:
  struct Waiting {
    Completion completion;
    Instant since;
  };
  Session& session_;
  std::vector<Waiting> waiting_;
};

}  // namespace flyt::server
