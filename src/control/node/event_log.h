// EventLog: the events that a node still remembers, and waiting for more.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/annotations.h"
#include "control/node/event.h"

namespace flyt::node {

// Safe from any thread.
class EventLog {
 public:
  // Keeps the last `events_max`.
  explicit EventLog(std::uint64_t events_max) : events_max_(events_max) {}

  void load(std::vector<Event> events);
  // The number that the next event has.
  std::uint64_t next_number() const;
  // Events come with ascending numbers.
  void add(Event event);

  // Those after number `after`, at most kBatchMax. Without any it waits, up to `patience_ms`, for
  // one or for close().
  std::vector<Event> after(std::uint64_t after, int patience_ms);
  // Nobody waits from now on.
  void close();
  bool closed() const;

  static constexpr std::size_t kBatchMax = 256;

 private:
  const std::uint64_t events_max_;
  mutable Mutex mutex_;
  Condition added_;
  std::deque<Event> events_ GUARDED_BY(mutex_);
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace flyt::node
