// Workers: threads that run jobs of any length, as many as there are jobs at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>

#include "base/annotations.h"

namespace flyt::softgpu {

// Every job begins at once: jobs may block on each other. Threads that wait for jobs sleep, and
// end after a while. Never destroyed before the process ends. Safe from any thread.
class Workers {
 public:
  using Job = std::function<void()>;
  void run(Job job);

 private:
  void serve();

  Mutex mutex_;
  Condition wanted_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::size_t idle_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::softgpu
