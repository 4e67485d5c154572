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

void Workers::loop() {
  mutex_.lock();
  while (true) {
    ++idle_;
    while (queue_.empty() && !stopping_) wake_.wait(mutex_);
    --idle_;
    if (stopping_) break;
    {
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      mutex_.unlock();
      work();
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
