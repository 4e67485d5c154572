// Watches: unfinished work whose end the server tells by itself, so that nobody has to ask again.
#include "client/streams/watches.h"

#include <algorithm>

#include "wire/limits.h"

namespace flyt::client {

std::uint64_t Watches::begin(std::uint64_t subject, std::uint64_t position) {
  const Lock lock(mutex_);
  if (watches_.size() >= wire::kWatchesMax) {
    // One that is over has told all that it had to tell: who asks again asks the server.
    const auto over = std::find_if(watches_.begin(), watches_.end(),
                                   [](const auto& item) { return item.second.over; });
    if (over == watches_.end()) return 0;
    watches_.erase(over);
  }
  watches_.emplace(++last_,
                   Watch{.subject = subject, .position = position, .revelations = revelations()});
  return last_;
}

void Watches::drop(std::uint64_t token) {
  const Lock lock(mutex_);
  watches_.erase(token);
}

void Watches::renew(std::uint64_t token, std::uint64_t revelations) {
  const Lock lock(mutex_);
  const auto found = watches_.find(token);
  if (found != watches_.end()) found->second.revelations = revelations;
}

Watches::Known Watches::look(std::uint64_t token, std::uint64_t subject, std::uint64_t position) {
  if (token == 0) return Known::kNothing;
  const Lock lock(mutex_);
  const auto found = watches_.find(token);
  if (found == watches_.end()) return Known::kNothing;
  const Watch watch = found->second;
  const bool same = watch.subject == subject && watch.position == position;
  if (same && !watch.over) {
    return watch.revelations == revelations() ? Known::kNotReady : Known::kMayBeDone;
  }
  watches_.erase(found);
  return same && watch.done ? Known::kDone : Known::kNothing;
}

void Watches::forget_all() {
  note_revelation();
  const Lock lock(mutex_);
  watches_.clear();
}

void Watches::on_completed(std::uint64_t token, std::uint64_t result) {
  // First: who learns this must not be told that what came before it is unfinished.
  note_revelation();
  const Lock lock(mutex_);
  const auto found = watches_.find(token);
  if (found == watches_.end() || found->second.over) return;
  found->second.over = true;
  found->second.done = result == 0;
}

}  // namespace flyt::client
