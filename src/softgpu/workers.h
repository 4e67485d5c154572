// Workers: threads that run jobs of any length, as many as there are jobs, within a bound.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>

#include "base/annotations.h"

namespace flyt::softgpu {

// Jobs may block on each other, so every one begins at once, unless so many are at work that more
// threads would be missed elsewhere: then it waits for one of them to end. Threads that wait for
// jobs sleep, and end after a while. Never destroyed before the process ends. Safe from any thread.
class Workers {
 public:
  // A program has a stream or two for each of its threads, and a graph's branches are few.
  static constexpr std::size_t kThreadsMax = 4096;

  explicit Workers(std::size_t threads_max = kThreadsMax) : threads_max_(threads_max) {}

  using Job = std::function<void()>;
  void run(Job job);

 private:
  void serve();

  const std::size_t threads_max_;
  Mutex mutex_;
  Condition wanted_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::size_t threads_ GUARDED_BY(mutex_) = 0;
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::softgpu
