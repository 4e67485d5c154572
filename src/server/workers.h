// Workers: threads for what would hold up the session's main thread.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/annotations.h"
#include "base/clock.h"

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
  // When a thread has run something and there was nothing more for `pause`, it runs `work`, again
  // and again while that returns true and there is nothing else. Before the first run(), which
  // makes threads.
  void when_idle(std::function<bool()> work, Duration pause) EXCLUDES(mutex_);
  // Work that has not begun is dropped.
  void stop() EXCLUDES(mutex_);

 private:
  void loop();
  void wait_for_work(bool& idled) REQUIRES(mutex_);

  const std::size_t threads_max_;
  Mutex mutex_;
  Condition wake_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  std::function<bool()> idle_work_ GUARDED_BY(mutex_);  // Not changed while there are threads.
  Duration idle_pause_ GUARDED_BY(mutex_){0};
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::server
