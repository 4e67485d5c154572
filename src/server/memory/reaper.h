// Reaper: gives freed memory back once the GPU has passed everything issued before the free.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "base/annotations.h"

namespace flyt::server {

class Session;

// A native cuMemFree waits for the GPU; ours returns at once and a worker waits in its place. Safe
// from any thread.
class Reaper {
 public:
  explicit Reaper(Session& session) : session_(session) {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Calls `recycle` on a worker once all work issued in `context` up to now is done.
  void add(std::uint32_t context, std::function<void()> recycle) EXCLUDES(mutex_);
  // Waits until all that was added before has been given back. Returns whether there was any. Not
  // on the main thread: it may take as long as the GPU does.
  bool drain() EXCLUDES(mutex_);

 private:
  void work() EXCLUDES(mutex_);

  Session& session_;
  Mutex mutex_;
  Condition idle_;
  std::map<std::uint32_t, std::vector<std::function<void()>>> waiting_ GUARDED_BY(mutex_);
  bool working_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::server
