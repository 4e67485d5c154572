// Watches: unfinished work whose end the server tells by itself, so that nobody has to ask again.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "base/annotations.h"

namespace flyt::client {

// A query that the server answered with "not ready" leaves a watch behind. Until the server has
// told its end, and as long as the program has heard nothing from which it could know better, the
// same query needs no answer of the server's. Safe from any thread.
class Watches {
 public:
  enum class Known : std::uint8_t {
    kNothing,    // The server is to be asked, and may be told to watch.
    kNotReady,   // As a query would answer now.
    kMayBeDone,  // It was not ready, but the program may know of its end by other ways.
    kDone,
  };

  // Counts what could tell the program that work is done: answers, host functions and the like.
  std::uint64_t revelations() const { return revelations_.load(std::memory_order_acquire); }
  // Before the program can know of it.
  void note_revelation() { revelations_.fetch_add(1, std::memory_order_acq_rel); }

  // Before the server is asked to watch: a token for `position` of `subject`. 0: there are
  // wire::kWatchesMax watches.
  std::uint64_t begin(std::uint64_t subject, std::uint64_t position) EXCLUDES(mutex_);
  void drop(std::uint64_t token) EXCLUDES(mutex_);
  // After the server has said "not ready" again to a query that was begun at `revelations`.
  void renew(std::uint64_t token, std::uint64_t revelations) EXCLUDES(mutex_);

  // What the frames that were read so far mean. A watch that is not of this position says nothing.
  Known look(std::uint64_t token, std::uint64_t subject, std::uint64_t position) EXCLUDES(mutex_);

  // The session goes on in another process, which watches nothing yet.
  void forget_all() EXCLUDES(mutex_);

  // From the thread that reads. A token that no watch has means nothing.
  void on_completed(std::uint64_t token, std::uint64_t result) EXCLUDES(mutex_);

 private:
  struct Watch {
    std::uint64_t subject = 0;
    std::uint64_t position = 0;
    std::uint64_t revelations = 0;  // So many when it was not ready.
    bool over = false;
    bool done = false;  // Over, with nothing else to tell.
  };

  std::atomic<std::uint64_t> revelations_{0};
  Mutex mutex_;
  std::map<std::uint64_t, Watch> watches_ GUARDED_BY(mutex_);
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::client
