// Workers: threads for what would hold up the session's main thread.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/annotations.h"

namespace flyt::server {

// Threads are made as needed, up to a limit; more work than that waits its turn, in order. Safe
// from any thread. stop() and the destructor wait for running work.
class Workers {
 public:
  static constexpr std::size_t kThreadsMax = 256;

  explicit Workers(std::size_t threads_max = kThreadsMax) : threads_max_(threads_max) {}
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void run(std::function<void()> work) EXCLUDES(mutex_);
  // Work that has not begun is dropped.
  void stop() EXCLUDES(mutex_);

 private:
  void loop();

  const std::size_t threads_max_;
  Mutex mutex_;
  Condition wake_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::server
