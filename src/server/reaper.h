// Reaper: gives freed memory back once the GPU has passed everything issued before the free.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/annotations.h"
#include "server/arena.h"

namespace flyt::server {

class Session;

// A native cuMemFree waits for the GPU; ours returns at once and a worker waits in its place. Safe
// from any thread.
class Reaper {
 public:
  Reaper(Session& session, Arena& arena) : session_(session), arena_(arena) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // `retired` may still be used by work that was issued in `context` up to now.
  void add(std::uint32_t context, const Arena::Allocation& retired) EXCLUDES(mutex_);
  // Waits until all that was added before has been given back. Returns whether there was any. Not
  // on the main thread: it may take as long as the GPU does.
  bool drain() EXCLUDES(mutex_);

 private:
  void work() EXCLUDES(mutex_);

  Session& session_;
  Arena& arena_;
  Mutex mutex_;
  Condition idle_;
  std::map<std::uint32_t, std::vector<Arena::Allocation>> waiting_ GUARDED_BY(mutex_);
  bool working_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::server
