// Beginnings: where streams that have moved begin, behind the ends of those they took the place of.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"
#include "cuda/types.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

// A stream that has moved waits for its old one's end. Whoever has learned that the work is done
// may ask before the GPU has come to that end, or to the wait for it: all that the stream had to do
// is done, and yet it is busy. What is to be told is what a stream that never moved would tell.
class Beginnings {
 public:
  struct Beginning {
    CUstream old = nullptr;
    CUstream fresh = nullptr;
    std::shared_ptr<Fence> end;    // Of what the old stream has to do.
    std::shared_ptr<Fence> begun;  // The new stream, behind its wait for that.
  };

  explicit Beginnings(const Clock& clock) : clock_(clock) {}
  Beginnings(const Beginnings&) = delete;
  Beginnings& operator=(const Beginnings&) = delete;

  void add(std::vector<Beginning> beginnings) EXCLUDES(mutex_);
  void clear() EXCLUDES(mutex_);

  // The client learns that something is done, so that it may ask about what that was the end of.
  // Any thread.
  void note_done();
  // The stream says that it is busy: waits if it is about to begin. True: it has begun since, so
  // that it is worth asking again. Under Session::use().
  bool settle(CUstream stream) EXCLUDES(mutex_);

 private:
  std::vector<bool> behind_which(CUstream stream) const REQUIRES(mutex_);
  bool ends(const Fence& end, Instant deadline);
  bool passes(const Fence& fence, Instant deadline) const;

  const Clock& clock_;
  std::atomic<bool> any_{false};
  // How long ends are still waited for, behind which there may be work.
  std::atomic<Duration> patience_{};
  Mutex mutex_;
  std::vector<Beginning> beginnings_ GUARDED_BY(mutex_);  // In the order of the moves.
};

}  // namespace flyt::server
