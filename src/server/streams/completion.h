// Completions: waits on the GPU that hold up no thread of the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/spare_cores.h"
#include "cuda/types.h"
#include "server/workers.h"

namespace flyt::server {

class Session;

// Something that will be done on the GPU later.
struct Completion {
  std::uint32_t context = 0;  // Handle index; made current around poll, block and finish. 0: none.
  // CUDA_ERROR_NOT_READY while it is not done; never blocks. Empty: block() at once.
  std::function<CUresult()> poll;
  // Waits until it is done; runs on a worker, where the context may end at any time.
  std::function<CUresult()> block;
  // Called once with the outcome, on the thread that saw it: main or worker.
  std::function<void(CUresult)> finish;
};

// Polled by the main thread between commands for a while, then blocked upon by a worker. Belongs to
// the main thread.
class Completions {
 public:
  // How long each is polled. To be woken takes 100 us and more, so a client that waits 10 ms for
  // its GPU would notice; natively its own thread spins meanwhile. On a machine with no core to
  // spare the short time.
  static constexpr Duration kPollTime = std::chrono::milliseconds(20);
  static constexpr Duration kPollTimeBusy = std::chrono::microseconds(100);
  // Workers that block at the same time; more waits than that are polled on. The rest of the
  // workers are for what may have to run before any of the waits ends.
  static constexpr std::size_t kBlockedMax = Workers::kThreadsMax / 2;

  explicit Completions(Session& session) : session_(session) {}

  void add(Completion completion);
  // Polls each once. True while any is polled, so that the caller must not sleep.
  bool poll();
  bool any() const { return !waiting_.empty(); }
  // The session is over: none of them is waited for any more.
  void drop() { waiting_.clear(); }

 private:
  struct Waiting {
    Completion completion;
    Instant since;
  };
  // True when it is done or handed to a worker.
  bool advance(Waiting& waiting);
  void block_on_worker(Completion completion);

  Session& session_;
  std::vector<Waiting> waiting_;
  SpareCores spare_cores_;
  std::atomic<std::size_t> blocked_{0};
};

}  // namespace flyt::server
