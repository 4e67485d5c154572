#include "server/workers.h"

namespace flyt::server {

void Workers::run(std::function<void()> work) {
  const Lock lock(mutex_);
  if (stopping_) return;
  queue_.push_back(std::move(work));
  if (idle_ >= queue_.size() || threads_.size() >= threads_max_) {
    wake_.notify_one();
    return;
  }
  threads_.emplace_back([this] { loop(); });
}

void Workers::when_idle(std::function<bool()> work, Duration pause) {
  const Lock lock(mutex_);
  idle_work_ = std::move(work);
  idle_pause_ = pause;
}

// `idled`: the idle work had nothing to do since this thread ran anything else.
void Workers::wait_for_work(bool& idled) {
  while (queue_.empty() && !stopping_) {
    ++idle_;
    bool due = false;
    if (idled || !idle_work_) {
      wake_.wait(mutex_);
    } else {
      due = wake_.wait_for(mutex_, idle_pause_) == std::cv_status::timeout;
    }
    --idle_;
    while (due && queue_.empty() && !stopping_) {
      mutex_.unlock();
      due = idle_work_();
      mutex_.lock();
      idled = !due;
    }
  }
}

void Workers::loop() {
  mutex_.lock();
  bool idled = true;
  while (true) {
    wait_for_work(idled);
    if (stopping_) break;
    {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      mutex_.unlock();
      work();
      idled = false;
    }
    mutex_.lock();
  }
  mutex_.unlock();
}

void Workers::stop() {
  std::vector<std::thread> threads;
  // Its end may have something to tell, which is not for the lock.
  std::deque<std::function<void()>> dropped;
  {
    const Lock lock(mutex_);
    stopping_ = true;
    dropped.swap(queue_);
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace flyt::server
