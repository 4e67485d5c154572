// EventSets: the sets of events that a program has made. Nothing ever comes to them.
#include "client/nvml/event_sets.h"

#include "base/bytes.h"

namespace flyt::client::nvml {
namespace {

// Not canonical on x86-64, so that following it faults at once; no GPU's handle.
constexpr std::uint64_t kHandleBase = 0x4e56'4d4d'0000'0000;

}  // namespace

nvmlEventSet_t EventSets::make() {
  const Lock lock(mutex_);
  const auto set = static_cast<nvmlEventSet_t>(pointer_at(kHandleBase + ++last_));
  live_.insert(set);
  return set;
}

bool EventSets::drop(nvmlEventSet_t set) {
  const Lock lock(mutex_);
  return live_.erase(set) != 0;
}

bool EventSets::has(nvmlEventSet_t set) const {
  const Lock lock(mutex_);
  return live_.contains(set);
}

}  // namespace flyt::client::nvml
