// EventSets: the sets of events that a program has made. Nothing ever comes to them.
#pragma once

#include <cstdint>
#include <set>

#include "base/annotations.h"
#include "nvml/types.h"

namespace flyt::client::nvml {

// Safe from any thread.
class EventSets {
 public:
  nvmlEventSet_t make() EXCLUDES(mutex_);
  // False unless it is one of ours.
  bool drop(nvmlEventSet_t set) EXCLUDES(mutex_);
  bool has(nvmlEventSet_t set) const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::uint64_t last_ GUARDED_BY(mutex_) = 0;
  std::set<nvmlEventSet_t> live_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client::nvml
