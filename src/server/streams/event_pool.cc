// EventPool: events of our own, by context, so that none is created for every use.
#include "server/streams/event_pool.h"

namespace flyt::server {

Fence::~Fence() { pool_.give(*home_, event_); }

CUresult Fence::poll() const {
  const std::shared_lock lock(home_->use);
  return home_->dead ? CUDA_SUCCESS : pool_.driver_.cuEventQuery(event_);
}

CUresult Fence::wait() const {
  const std::shared_lock lock(home_->use);
  return home_->dead ? CUDA_SUCCESS : pool_.driver_.cuEventSynchronize(event_);
}

std::shared_ptr<Fence> EventPool::record(std::uint32_t context, CUstream stream, CUresult& result) {
  std::shared_ptr<ContextEvents> home;
  CUevent event = nullptr;
  {
    const Lock lock(mutex_);
    std::shared_ptr<ContextEvents>& entry = contexts_[context];
    if (entry == nullptr) entry = std::make_shared<ContextEvents>();
    home = entry;
    if (!home->free.empty()) {
      event = home->free.back();
      home->free.pop_back();
    }
  }
  result = CUDA_SUCCESS;
  if (event == nullptr) result = driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return nullptr;
  auto fence = std::make_shared<Fence>(*this, context, std::move(home), event);
  result = driver_.cuEventRecord(event, stream);
  return result == CUDA_SUCCESS ? fence : nullptr;
}

void EventPool::drop_context(std::uint32_t context, Events events) {
  std::shared_ptr<ContextEvents> home;
  {
    const Lock lock(mutex_);
    const auto found = contexts_.find(context);
    if (found == contexts_.end()) return;
    home = std::move(found->second);
    contexts_.erase(found);
    if (events == Events::kStay) {
      for (const CUevent event : home->free) driver_.cuEventDestroy_v2(event);
      home->free.clear();
    }
  }
  // Whoever waits for one of them has the rest of the context's work to wait for.
  const std::unique_lock lock(home->use);
  home->dead = true;
}

void EventPool::give(ContextEvents& home, CUevent event) {
  const Lock lock(mutex_);
  home.free.push_back(event);
}

}  // namespace flyt::server
