// What keeps servers of leases, and MPS, running.
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "control/node/manager.h"
#include "control/node/restart_pause.h"
#include "control/node/server_files.h"

namespace flyt::node {
namespace {

constexpr Duration kShrinkLooks = std::chrono::milliseconds(200);
constexpr Duration kStartTime = std::chrono::seconds(60);
// One that ran so long has not failed at its start.
constexpr Duration kGoodRun = std::chrono::seconds(60);
constexpr Duration kReconnect = std::chrono::seconds(5);
constexpr std::size_t kTailBytes = 500;
// What Process::collect() says of a server that ended as it was told to, and of one that was no
// child.
constexpr std::string_view kEndedWell = "exit status 0";
constexpr std::string_view kEndedSomehow = "it is gone";
// A server tells by ending that it is to be replaced; so long beyond its own patience.
constexpr Duration kUpgradeGrace = std::chrono::seconds(2);

}  // namespace

Status Manager::run_server(const std::string& id) {
  Lease lease;
  {
    const Lock lock(mutex_);
    lease = held_.at(id).lease;
  }
  const ServerFiles files(config_, id);
  if (Status status = files.prepare(); !status) return status;
  auto process = Process::start(server_command(config_, lease, *planner_->find(lease.grant.gpu)),
                                system_clock().now() + kStartTime);
  if (!process) {
    Error error = std::move(process).error();
    error.code = ErrorCode::kSystem;
    error.message = "the lease's server did not start: " + error.message;
    if (const std::string said = tail_of(files.log(), kTailBytes); !said.empty()) {
      error.message += "; it said: " + said;
    }
    return error;
  }
  auto link = ControlLink::connect(watchdog_, files.control_url());
  const Result<Applied> confined = link ? apply(**link, lease.grant) : link.error();
  if (!confined) {
    process->end(SIGKILL, Duration(0));
    return confined.error();
  }
  shrink_again(**link, lease);
  const bool takes_rest = (*link)->takes_rest();
  const Lock lock(mutex_);
  Held& held = held_.at(id);
  held.lease.server = process->id();
  held.process.emplace(std::move(*process));
  held.link = std::move(*link);
  held.lease.state = LeaseState::kRunning;
  held.lease.confined = confined->confined;
  held.lease.takes_rest = takes_rest;
  held.lease.state_reason.clear();
  held.started = system_clock().now();
  find_keeper(held);
  return {};
}

Instant Manager::next_deadline(Instant now, Duration patience) {
  Instant next = now + patience;
  const std::int64_t now_ms = unix_milliseconds();
  for (const auto& [id, held] : held_) {
    if (held.busy) continue;
    const LeaseState state = held.lease.state;
    if (state == LeaseState::kRestarting || state == LeaseState::kEnding) {
      next = std::min(next, held.restart_at);
    }
    if (held.upgrade_until && held.process) next = std::min(next, *held.upgrade_until);
    if (held.keeper_verdict) next = std::min(next, *held.keeper_verdict);
    if (held.lease.memory_pending != 0) next = std::min(next, now + kShrinkLooks);
    if (held.lease.expires_at != 0) {
      const std::int64_t left = std::max<std::int64_t>(held.lease.expires_at * 1000 - now_ms, 0);
      next = std::min(next, now + std::chrono::milliseconds(std::min<std::int64_t>(left, 60'000)));
    }
  }
  for (const auto& [gpu, mps] : mps_) {
    if (!mps.daemon.running() && !failed_.contains(gpu)) next = std::min(next, mps.restart_at);
  }
  return next_fault_look(next);
}

void Manager::wait_for_something(Duration patience) {
  std::vector<pollfd> wanted = {{wakeup_.fd(), POLLIN, 0}};
  const Instant now = system_clock().now();
  Instant deadline;
  {
    const Lock lock(mutex_);
    for (const auto& [id, held] : held_) {
      if (held.busy) continue;
      if (held.process) wanted.push_back({held.process->fd(), POLLIN, 0});
      if (held.keeper) wanted.push_back({held.keeper->fd(), POLLIN, 0});
    }
    for (const auto& [gpu, mps] : mps_) {
      if (mps.daemon.running()) wanted.push_back({mps.daemon.fd(), POLLIN, 0});
    }
    deadline = next_deadline(now, patience);
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
  static_cast<void>(::poll(wanted.data(), wanted.size(),
                           static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 60'000))));
  static_cast<void>(wakeup_.clear());
}

void Manager::tick(Duration patience) {
  wait_for_something(patience);
  note_xids();
  note_failed_gpus();
  take_deaths();
  watch_keepers();
  note_kept();
  release_due();
  shrink_due();
  restart_due();
  connect_again();
  watch_mps();
  look_for_refusals();
  look_for_faults();
  look_for_unkept();
  lines_.tell_left_out(own_log_);
}

void Manager::take_deaths() {
  const Lock lock(mutex_);
  if (stopping_) return;
  const Instant now = system_clock().now();
  for (auto& [id, held] : held_) {
    if (held.busy || !held.process || !held.process->ended()) continue;
    const std::string how = held.process->collect();
    const std::string said = tail_of(ServerFiles(config_, id).log(), kTailBytes);
    held.process.reset();
    held.link.reset();
    if (held.upgrade_until && (how == kEndedWell || how == kEndedSomehow)) {
      held.restart_at = now;
      held.lease.state = LeaseState::kRestarting;
      held.lease.state_reason = "its server is replaced";
      held.lease.server = {};
      continue;
    }
    held.upgrade_until.reset();
    held.ends = now - held.started > kGoodRun ? 0 : held.ends + 1;
    held.restart_at =
        now + pause_after_ends(held.ends, std::chrono::seconds(config_.recover_seconds));
    held.lease.state = LeaseState::kRestarting;
    held.lease.state_reason = "its server ended: " + how;
    held.lease.server = {};
    ++counters_.server_deaths;
    note("server-died", &held.lease, how + (said.empty() ? "" : "; it said: " + said));
  }
}

void Manager::upgrade() {
  const Lock lock(mutex_);
  const Instant until =
      system_clock().now() + std::chrono::seconds(config_.handover_seconds) + kUpgradeGrace;
  for (auto& [id, held] : held_) {
    if (!held.process || held.lease.state != LeaseState::kRunning) continue;
    held.upgrade_until = until;
    held.process->signal(SIGUSR1);
  }
  note("upgrade", nullptr, "to " + config_.server);
}

void Manager::note_kept() {
  const Lock lock(mutex_);
  const Instant now = system_clock().now();
  for (auto& [id, held] : held_) {
    if (!held.upgrade_until || !held.process || now < *held.upgrade_until) continue;
    held.upgrade_until.reset();
    note("server-kept", &held.lease,
         "not replaced: its programs have work under way, or cannot go on elsewhere");
  }
}

void Manager::restart_due() {
  std::vector<std::string> due;
  {
    const Lock lock(mutex_);
    if (stopping_) return;
    const Instant now = system_clock().now();
    for (auto& [id, held] : held_) {
      if (held.busy || held.lease.state != LeaseState::kRestarting || held.restart_at > now) {
        continue;
      }
      held.busy = true;
      due.push_back(id);
    }
  }
  for (const std::string& id : due) {
    restart(id);
    drop(id);
  }
}

void Manager::restart(const std::string& id) {
  const Status status = run_server(id);
  const Lock lock(mutex_);
  Held& held = held_.at(id);
  const bool upgraded = std::exchange(held.upgrade_until, std::nullopt).has_value();
  if (status) {
    held.failures = 0;
    if (!upgraded) ++held.lease.restarts;
    const Event restarted = event(
        upgraded ? "server-upgraded" : "server-restarted", &held.lease,
        "pid " + std::to_string(held.lease.server.pid) + ", " + program_of(held.lease.server.pid));
    // Without it on disk the server is still found by its command.
    static_cast<void>(checked(state_->update(held.lease, restarted)).ok());
    publish(restarted);
    return;
  }
  ++held.failures;
  held.restart_at = system_clock().now() + pause_after_failures(held.failures);
  held.lease.state_reason = status.error().message;
  note("server-failed", &held.lease, status.error().message);
}

// A server that did not answer in time may do so later.
void Manager::connect_again() {
  std::vector<std::string> lost;
  {
    const Lock lock(mutex_);
    const Instant now = system_clock().now();
    for (auto& [id, held] : held_) {
      if (held.busy || held.lease.state != LeaseState::kRunning || !held.process) continue;
      if (held.link != nullptr && !held.link->lost()) continue;
      if (held.process->ended() || held.restart_at > now) continue;
      held.restart_at = now + kReconnect;
      held.busy = true;
      lost.push_back(id);
    }
  }
  for (const std::string& id : lost) {
    auto link = ControlLink::connect(watchdog_, ServerFiles(config_, id).control_url());
    {
      const Lock lock(mutex_);
      if (link) held_.at(id).link = std::move(*link);
    }
    drop(id);
  }
}

void Manager::release_due() {
  std::vector<std::string> due;
  {
    const Lock lock(mutex_);
    const Instant now = system_clock().now();
    const std::int64_t seconds = unix_seconds();
    for (auto& [id, held] : held_) {
      const bool expired = held.lease.expires_at != 0 && held.lease.expires_at <= seconds;
      const bool ending = held.lease.state == LeaseState::kEnding;
      if (held.busy || !(expired || ending) || (ending && held.restart_at > now)) continue;
      held.busy = true;
      due.push_back(id);
    }
  }
  for (const std::string& id : due) {
    if (!end_lease(id, "lease-expired", "expired, or released when the disk was full")) continue;
    const Lock lock(mutex_);
    ++counters_.expired;
  }
}

void Manager::watch_mps() {
  const Lock lock(mutex_);
  if (stopping_) return;
  for (auto& [gpu, mps] : mps_) {
    if (mps.daemon.running() || failed_.contains(gpu)) continue;
    const Instant now = system_clock().now();
    if (mps.restart_at > now) continue;
    const std::string name = "GPU " + std::to_string(gpu);
    mps.daemon.stop();
    const Status status = mps.daemon.start();
    mps.failures = status ? 0 : mps.failures + 1;
    mps.restart_at = system_clock().now() + pause_after_failures(mps.failures);
    static_cast<void>(
        checked(state_->remember("mps-" + std::to_string(gpu), mps.daemon.id())).ok());
    note(status ? "mps-restarted" : "mps-failed", nullptr,
         name + (status ? ": its MPS had ended" : ": " + status.error().message));
  }
}

}  // namespace flyt::node
