// What a manager does about GPUs that have failed: their leases are lost, and nothing is started
// there.
#include <signal.h>

#include <utility>

#include "control/node/manager.h"

namespace flyt::node {
namespace {

constexpr Duration kEndTime = std::chrono::seconds(2);

}  // namespace

void Manager::fail(std::uint32_t gpu, const std::string& why) {
  if (!failed_.emplace(gpu, why).second) return;
  note("gpu-failed", nullptr, "GPU " + std::to_string(gpu) + ": " + why);
}

// Servers end as for good, so that programs are told at once that nobody goes on with their
// sessions.
void Manager::note_failed_gpus() {
  std::vector<std::pair<std::string, std::optional<Process>>> lost;
  {
    const Lock lock(mutex_);
    if (stopping_ || gpu_watch_ == nullptr) return;
    for (const auto& [gpu, why] : gpu_watch_->failures()) fail(gpu, why);
    for (auto& [id, held] : held_) {
      const auto failed = failed_.find(held.lease.grant.gpu);
      const LeaseState state = held.lease.state;
      if (failed == failed_.end() || held.busy || state == LeaseState::kLost ||
          state == LeaseState::kEnding) {
        continue;
      }
      held.busy = true;
      held.link.reset();
      held.lease.state = LeaseState::kLost;
      held.lease.state_reason = "its GPU has failed: " + failed->second;
      held.lease.server = {};
      held.upgrade_until.reset();
      note("gpu-failed", &held.lease, held.lease.state_reason);
      lost.emplace_back(id, std::exchange(held.process, std::nullopt));
    }
  }
  for (const auto& [id, process] : lost) {
    if (process) process->signal(SIGINT);
  }
  for (auto& [id, process] : lost) {
    if (process) process->end(SIGINT, kEndTime);
    end_keepers(id);
    drop(id);
  }
}

}  // namespace flyt::node
