// Lookout: what the GPU finishes reaches the client when nobody asks for it, too.
#include "server/streams/lookout.h"

#include <algorithm>

namespace flyt::server {
namespace {

// How often a worker looks: in proportion to how long nothing has been finished.
constexpr Duration kPauseMin = std::chrono::microseconds(20);
constexpr Duration kPauseMax = std::chrono::microseconds(500);
constexpr int kPausesInTime = 32;
// The guard stays for a while after the last thing that was expected: starting it anew for each
// would wake a thread each time.
constexpr int kIdleGuardTurns = 40;

}  // namespace

std::uint64_t Lookout::pending() const {
  std::uint64_t all = 0;
  for (const Subject* subject : subjects_) all += subject->pending();
  return all;
}

void Lookout::look(Subject::Look look) {
  for (Subject* subject : subjects_) subject->look(look);
}

void Lookout::expect() {
  polled_until_ = clock_.now() + kPollTime;
  if (!guarding_.exchange(true)) workers_.run([this] { guard(); });
}

bool Lookout::poll() {
  turns_.fetch_add(1, std::memory_order_relaxed);
  if (pending() == 0) return false;
  if (clock_.now() < polled_until_) {
    look(Subject::Look::kSome);
    return pending() != 0;
  }
  if (!watching_.exchange(true)) workers_.run([this] { watch(); });
  return false;
}

// Who found `working` set since has left its work to this thread, and has announced it before.
bool Lookout::done(std::atomic<bool>& working) {
  working.exchange(false);
  return pending() == 0 || working.exchange(true);
}

void Lookout::guard() {
  int idle_turns = 0;
  while (!over_()) {
    const std::uint64_t turns = turns_.load(std::memory_order_relaxed);
    clock_.sleep_for(kPauseMax);
    if (pending() == 0) {
      if (++idle_turns >= kIdleGuardTurns && done(guarding_)) return;
      continue;
    }
    idle_turns = 0;
    const bool held_up = turns_.load(std::memory_order_relaxed) == turns;
    if (held_up && !watching_.load(std::memory_order_relaxed)) look(Subject::Look::kAll);
  }
}

void Lookout::watch() {
  Instant since = clock_.now();
  while (!over_()) {
    const std::uint64_t before = pending();
    look(Subject::Look::kAll);
    const std::uint64_t left = pending();
    if (left == 0 && done(watching_)) return;
    const Instant now = clock_.now();
    if (left < before) since = now;
    clock_.sleep_for(std::clamp<Duration>((now - since) / kPausesInTime, kPauseMin, kPauseMax));
  }
}

}  // namespace flyt::server
