#include "control/node/event_log.h"

#include <algorithm>
#include <chrono>

namespace flyt::node {

void EventLog::load(std::vector<Event> events) {
  const Lock lock(mutex_);
  events_.assign(events.begin(), events.end());
  if (!events_.empty()) last_ = events_.back().number;
  while (events_.size() > events_max_) events_.pop_front();
}

std::uint64_t EventLog::next_number() const {
  const Lock lock(mutex_);
  return last_ + 1;
}

void EventLog::add(Event event) {
  {
    const Lock lock(mutex_);
    last_ = event.number;
    events_.push_back(std::move(event));
    if (events_.size() > events_max_) events_.pop_front();
  }
  added_.notify_all();
}

std::vector<Event> EventLog::after(std::uint64_t after, int patience_ms) {
  std::unique_lock<Mutex> lock(mutex_);
  static_cast<void>(added_.wait_for(lock, std::chrono::milliseconds(patience_ms),
                                    [&] { return closed_ || last_ > after; }));
  const auto first = std::upper_bound(
      events_.begin(), events_.end(), after,
      [](std::uint64_t number, const Event& event) { return number < event.number; });
  const auto count = std::min<std::ptrdiff_t>(events_.end() - first, kBatchMax);
  return {first, first + count};
}

void EventLog::close() {
  {
    const Lock lock(mutex_);
    closed_ = true;
  }
  added_.notify_all();
}

bool EventLog::closed() const {
  const Lock lock(mutex_);
  return closed_;
}

}  // namespace flyt::node
