#include "softgpu/workers.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <thread>
#include <utility>

namespace flyt::softgpu {
namespace {

constexpr std::chrono::seconds kIdleMax{5};

}  // namespace

void Workers::run(Job job) {
  bool start = false;
  {
    const Lock lock(mutex_);
    jobs_.push_back(std::move(job));
    start = jobs_.size() > idle_ && threads_ < threads_max_;
    if (start) ++threads_;
  }
  if (!start) {
    wanted_.notify_one();
    return;
  }
  // The program's signals are for its own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([this] { serve(); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Workers::serve() {
  mutex_.lock();
  for (;;) {
    if (jobs_.empty()) {
      ++idle_;
      const bool more = wanted_.wait_for(
          mutex_, kIdleMax, [this]() NO_THREAD_SAFETY_ANALYSIS { return !jobs_.empty(); });
      --idle_;
      if (!more) break;
    }
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    mutex_.unlock();
    job();
    job = nullptr;
    mutex_.lock();
  }
  --threads_;
  mutex_.unlock();
}

}  // namespace flyt::softgpu
