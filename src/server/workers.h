// Workers: threads for what would hold up the session's main thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/annotations.h"

namespace flyt::server {

// Threads are made as needed up to a limit; more work than that waits its turn. Safe from any
// thread. The destructor waits for running work.
class Workers {
 public:
  static constexpr std::size_t kThreadsMax = 64;

  Workers() = default;
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void run(std::function<void()> work) EXCLUDES(mutex_);

 private:
  void loop();

  Mutex mutex_;
  Condition wake_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::server
