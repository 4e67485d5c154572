// Watches: events and streams whose end the client wants to be told.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "server/streams/lookout.h"
#include "wire/limits.h"

namespace flyt::server {

class Session;

// Each one ends with one completed frame; one for the program comes behind everything that must
// reach that before it may know. Safe from any thread unless said otherwise.
class Watches final : public Lookout::Subject {
 public:
  Watches(Session& session, Lookout& lookout) : session_(session), lookout_(lookout) {}
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  // Who learns of the end: the program, to which all that was before it has to be told first, or
  // the client alone.
  enum class For : std::uint8_t { kProgram, kClient };

  // `poll` answers CUDA_ERROR_NOT_READY until it is done; it is called under Session::use(). False:
  // there are wire::kWatchesMax already. Main thread.
  bool add(std::uint64_t token, For whom, std::function<CUresult()> poll) EXCLUDES(mutex_);
  bool full() const { return pending() >= wire::kWatchesMax; }

  std::uint64_t pending() const override { return pending_.load(std::memory_order_acquire); }
  // Not under Session::use().
  void look(Look look) override EXCLUDES(mutex_);

 private:
  struct Watch {
    std::uint64_t token = 0;
    For whom = For::kProgram;
    std::function<CUresult()> poll;
  };
  struct Ended {
    std::uint64_t token = 0;
    For whom = For::kProgram;
    CUresult result = CUDA_SUCCESS;
  };
  std::vector<Ended> take_ended(std::size_t looks) EXCLUDES(mutex_);

  Session& session_;
  Lookout& lookout_;
  Mutex mutex_;
  std::deque<Watch> watches_ GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> pending_{0};
};

}  // namespace flyt::server
