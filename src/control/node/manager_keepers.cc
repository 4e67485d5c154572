// What a manager knows of keepers, which have what leases' programs go on with.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/node/manager.h"
#include "control/node/server_files.h"

namespace flyt::node {
namespace {

// A keeper whose server has died may end with it, and a server starts another one.
constexpr Duration kVerdict = std::chrono::milliseconds(500);
constexpr Duration kLooks = std::chrono::seconds(1);

constexpr std::string_view kNoKeeper =
    "degraded: it has no keeper, so that programs do not go on when their processes at the server"
    " are killed; when none runs, kill its server: the next one has a keeper";

// In what ProcessId counts: clock ticks after the machine's start.
std::int64_t ticks(Duration since) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  return ms * ::sysconf(_SC_CLK_TCK) / 1000;
}
std::int64_t ticks_now() {
  timespec now{};
  // lint: allow(time): the system counts processes' starts from the machine's, as no Clock does.
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return ticks(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

std::string unkept_text(std::size_t unkept) {
  return "degraded: its keeper is another one than " + counted(unkept, "program") +
         " began with; they do not go on when their processes at the server are killed: start them"
         " again when that suits";
}

}  // namespace

// The newest one.
void Manager::find_keeper(Held& held) const {
  held.keeper.reset();
  held.keeper_verdict.reset();
  held.keeper_has_all = false;
  if (config_.recover_seconds == 0) return;
  ProcessId newest;
  for (const ProcessFacts& facts : list_processes()) {
    if (!is_keeper(facts) || lease_of(config_, facts) != held.lease.id) continue;
    if (newest.pid == 0 || facts.id.start > newest.start) newest = facts.id;
  }
  if (newest.pid != 0) held.keeper = Process::adopt(newest);
}

void Manager::watch_keepers() {
  const Lock lock(mutex_);
  const Instant now = system_clock().now();
  for (auto& [id, held] : held_) {
    if (stopping_ || held.busy) continue;
    if (held.keeper && held.keeper->ended()) {
      held.keeper_before = held.keeper->id().pid;
      held.keeper.reset();
      held.keeper_verdict = now + kVerdict;
    }
    if (!held.keeper_verdict || now < *held.keeper_verdict) continue;
    held.keeper_verdict.reset();
    const bool serves = held.lease.state == LeaseState::kRunning && held.process;
    if (!serves || held.process->ended()) continue;
    find_keeper(held);
    const std::string pid = "pid " + std::to_string(held.keeper_before);
    note("keeper-died", &held.lease,
         held.keeper ? pid +
                           ": programs that are there do not go on when their processes at the"
                           " server are killed; later ones do"
                     : pid + ", and there is no other one");
  }
}

// Programs that began before their lease's keeper: what another one had of them is gone.
void Manager::look_for_unkept() {
  struct Asked {
    std::string id;
    std::shared_ptr<ControlLink> link;
    std::int64_t kept_since = 0;
  };
  std::vector<Asked> asked;
  {
    const Lock lock(mutex_);
    const Instant now = system_clock().now();
    if (stopping_ || config_.recover_seconds == 0 || now < keeper_look_) return;
    keeper_look_ = now + kLooks;
    for (auto& [id, held] : held_) {
      if (held.busy || held.lease.state != LeaseState::kRunning || held.keeper_verdict) continue;
      if (!held.keeper) {
        held.lease.state_reason = kNoKeeper;
        continue;
      }
      if (held.keeper_has_all || held.link == nullptr || held.link->lost()) continue;
      asked.push_back({id, held.link, static_cast<std::int64_t>(held.keeper->id().start)});
    }
  }
  for (const Asked& one : asked) {
    const auto sessions = one.link->sessions();
    if (!sessions) continue;
    const std::int64_t now = ticks_now();
    const auto unkept = std::count_if(
        sessions->begin(), sessions->end(), [&](const control::SessionState& session) {
          return !session.monitor && now - ticks(session.age) < one.kept_since;
        });
    const Lock lock(mutex_);
    const auto found = held_.find(one.id);
    if (found == held_.end() || found->second.link != one.link) continue;
    Lease& lease = found->second.lease;
    const bool same = found->second.keeper &&
                      static_cast<std::int64_t>(found->second.keeper->id().start) == one.kept_since;
    if (lease.state != LeaseState::kRunning || !same) continue;
    found->second.keeper_has_all = unkept == 0;
    lease.state_reason = unkept == 0 ? "" : unkept_text(static_cast<std::size_t>(unkept));
  }
}

}  // namespace flyt::node
