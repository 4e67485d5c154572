// Reaper: gives freed memory back once the GPU has passed everything issued before the free.
#include "server/memory/reaper.h"

#include <utility>

#include "server/graphs/graphs.h"
#include "server/session.h"

namespace flyt::server {

void Reaper::add(std::uint32_t context, std::function<void()> recycle) {
  {
    const Lock lock(mutex_);
    waiting_[context].push_back(std::move(recycle));
    if (std::exchange(working_, true)) return;
  }
  session_.workers().run([this] { work(); });
}

void Reaper::work() {
  for (;;) {
    std::uint32_t context = 0;
    std::vector<std::function<void()>> batch;
    {
      const Lock lock(mutex_);
      if (waiting_.empty()) {
        working_ = false;
        idle_.notify_all();
        return;
      }
      const auto first = waiting_.begin();
      context = first->first;
      batch = std::move(first->second);
      waiting_.erase(first);
    }
    // An error means that the context is gone or broken: nothing uses the memory any more.
    if (context != 0) {
      const auto using_context = session_.use();
      if (session_.enter(context) == CUDA_SUCCESS) {
        static_cast<void>(session_.graphs().wait_for_context(context));
      }
    }
    for (const auto& recycle : batch) recycle();
  }
}

bool Reaper::drain() {
  const Lock lock(mutex_);
  const bool any = working_;
  while (working_) idle_.wait(mutex_);
  return any;
}

}  // namespace flyt::server
