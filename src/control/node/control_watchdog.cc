#include "control/node/control_watchdog.h"

#include <algorithm>

namespace flyt::node {

ControlWatchdog::ControlWatchdog() : thread_([this] { run(); }) {}

ControlWatchdog::~ControlWatchdog() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ControlWatchdog::run() {
  std::unique_lock<Mutex> lock(mutex_);
  while (!stopping_) {
    const Instant now = system_clock().now();
    Instant next = now + std::chrono::hours(1);
    for (auto& [number, watched] : watched_) {
      if (watched.deadline <= now) {
        watched.client->give_up("no answer in time");
      } else {
        next = std::min(next, watched.deadline);
      }
    }
    // A call that was given up ends by itself; until then it need not be looked at again.
    std::erase_if(watched_, [now](const auto& entry) { return entry.second.deadline <= now; });
    changed_.wait_for(lock, next - now);
  }
}

ControlWatchdog::Guard::Guard(ControlWatchdog& watchdog, control::ControlClient& client,
                              Duration patience)
    : watchdog_(watchdog) {
  {
    const Lock lock(watchdog_.mutex_);
    number_ = watchdog_.next_++;
    watchdog_.watched_.emplace(number_, Watched{&client, system_clock().now() + patience});
  }
  watchdog_.changed_.notify_all();
}

ControlWatchdog::Guard::~Guard() {
  const Lock lock(watchdog_.mutex_);
  watchdog_.watched_.erase(number_);
}

Result<std::shared_ptr<ControlLink>> ControlLink::connect(ControlWatchdog& watchdog,
                                                          const std::string& url) {
  auto client = control::ControlClient::connect(url, kPatience);
  if (!client) return std::move(client).error();
  return std::make_shared<ControlLink>(watchdog, std::move(*client));
}

Result<control::LeaseState> ControlLink::describe() {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->describe();
}

Result<control::ChipState> ControlLink::chip() {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->chip();
}

bool ControlLink::takes_rest() {
  const auto told = chip();
  return told || told.error().code != ErrorCode::kUnsupported;
}

Result<control::UseState> ControlLink::use() {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->use();
}

Result<control::TotalsState> ControlLink::totals() {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->totals();
}

Result<control::FaultsState> ControlLink::faults(std::uint64_t after) {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->faults(after);
}

Result<std::vector<control::SessionState>> ControlLink::sessions() {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->sessions();
}

Result<control::MemoryState> ControlLink::set_memory(std::uint64_t bytes, control::Shrink shrink) {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kChangePatience);
  return client_->set_memory(bytes, shrink);
}

Result<control::SmState> ControlLink::set_sms(std::uint32_t sms) {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kChangePatience);
  return client_->set_sms(sms, kMovePatience);
}

Result<control::SmState> ControlLink::set_groups(const std::vector<std::uint32_t>& groups) {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kChangePatience);
  return client_->set_groups(groups, kMovePatience);
}

Result<std::string> ControlLink::new_token(std::uint32_t seconds, std::uint32_t sessions) {
  const ControlWatchdog::Guard guard(watchdog_, *client_, kPatience);
  return client_->new_token(seconds, sessions);
}

}  // namespace flyt::node
