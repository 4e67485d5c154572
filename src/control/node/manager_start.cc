// What a manager does when it starts and stops: finds GPUs, takes over what an earlier run left.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/text.h"
#include "control/node/inventory.h"
#include "control/node/manager.h"
#include "control/node/server_files.h"

namespace flyt::node {
namespace {

namespace fs = std::filesystem;

constexpr Duration kEndTime = std::chrono::seconds(2);

std::string mps_name(std::uint32_t gpu) { return "mps-" + std::to_string(gpu); }

}  // namespace

Status Manager::start() {
  for (const std::string& folder : {config_.state_folder, state_folder_of_leases(config_)}) {
    if (Status status = make_private_folder(folder); !status) return status;
  }
  for (const std::string& folder : {config_.run_folder, run_folder_of_leases(config_)}) {
    if (Status status = make_reachable_folder(folder); !status) return status;
  }
  if (Status status = lock_folders(); !status) return status;
  if (Status status = open_state(); !status) return status;
  {
    const Lock lock(mutex_);
    failed_ = failed_gpus(config_);
    recall_failed();
    for (const auto& [gpu, why] : failed_) {
      note("gpu-failed", nullptr, "GPU " + std::to_string(gpu) + ": " + why);
    }
  }
  xid_watch_ = std::make_unique<XidWatch>(config_, log_, [this] { wake(); });
  if (Status status = start_mps(); !status) return status;
  if (Status status = find_all_gpus(); !status) return status;
  open_rooms();
  if (Status status = recover(); !status) return status;
  const Lock lock(mutex_);
  gpu_watch_ = std::make_unique<GpuWatch>(config_, failed_, [this] { wake(); });
  note("node-started", nullptr,
       counted(planner_->gpus().size(), "GPU") + ", " + counted(held_.size(), "lease"));
  return {};
}

// Another manager's servers, which are not in this one's state, would be taken for left over ones.
Status Manager::lock_folders() {
  Status status = lock_folder(config_.state_folder, "node.state");
  return status ? lock_folder(config_.run_folder, "node.run") : status;
}

Status Manager::lock_folder(const std::string& folder, const std::string& setting) {
  const std::string path = folder + "/node.lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) return system_error("cannot open " + path, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kDenied, "another node manager runs with the folder " + folder +
                                         "; stop it, or set " + setting};
  }
  folder_locks_.push_back(std::move(lock));
  return {};
}

Status Manager::open_state() {
  auto state = State::open(config_.state_folder + "/node.db", config_.events_max,
                           {state_folder_of_leases(config_), run_folder_of_leases(config_)});
  if (!state) return std::move(state).error();
  // Before anything is started or ended.
  if (const auto leases = state->leases(); !leases) return leases.error();
  if (Status status = state->share_groups(config_.sm_percent > 100); !status) return status;
  auto kept = state->events();
  if (!kept) return std::move(kept).error();
  const auto draining = state->draining();
  if (!draining) return draining.error();
  auto leaders = state->leaders();
  if (!leaders) return std::move(leaders).error();
  const Lock lock(mutex_);
  recall_faults(*kept);
  events_.load(std::move(*kept));
  leaders_ = std::move(*leaders);
  draining_ = *draining;
  state_.emplace(std::move(*state));
  return {};
}

Status Manager::start_mps() {
  if (config_.soft != 0 || config_.mode != Mode::kShared) return {};
  const auto uuids = find_gpus(config_);
  if (!uuids) return uuids.error();
  for (std::uint32_t gpu = 0; gpu < uuids->size(); ++gpu) {
    if (Status status = start_mps_of(gpu, (*uuids)[gpu]); !status) return status;
  }
  return {};
}

Status Manager::start_mps_of(std::uint32_t gpu, const std::string& uuid) {
  const Lock lock(mutex_);
  if (failed_.contains(gpu)) return {};
  const auto [entry, fresh] = mps_.emplace(
      gpu, Mps{.daemon = MpsDaemon({config_.mps_control, mps_pipe_folder(config_, gpu),
                                    config_.state_folder + "/" + mps_name(gpu), uuid})});
  MpsDaemon& daemon = entry->second.daemon;
  const auto before = state_->recall(mps_name(gpu));
  if (!before) return before.error();
  if (daemon.adopt(*before)) return {};
  if (Status status = daemon.start(); !status) return status;
  return checked(state_->remember(mps_name(gpu), daemon.id()));
}

Status Manager::find_all_gpus() {
  const auto uuids = find_gpus(config_);
  if (!uuids) return uuids.error();
  std::vector<Gpu> gpus;
  for (std::uint32_t i = 0; i < uuids->size(); ++i) {
    auto gpu = find_gpu(i, (*uuids)[i]);
    if (!gpu) return std::move(gpu).error();
    log_.info("gpu", {{"index", i},
                      {"name", gpu->name},
                      {"uuid", gpu->uuid},
                      {"sms", gpu->sms()},
                      {"groups", gpu->groups.size()},
                      {"memory", size_text(gpu->memory_bytes)}});
    gpus.push_back(std::move(*gpu));
  }
  planner_.emplace(std::move(gpus),
                   PlannerLimits{config_.overhead_per_lease(), config_.leases_max});
  return {};
}

// Of one that has failed nothing is known but that.
Result<Gpu> Manager::find_gpu(std::uint32_t index, const std::string& uuid) {
  {
    const Lock lock(mutex_);
    if (failed_.contains(index)) {
      return Gpu{.index = index, .uuid = uuid, .mode = config_.mode};
    }
  }
  auto gpu = probe_gpu(config_, index, uuid, watchdog_);
  if (gpu) gpu->sm_percent = config_.sm_percent;
  return gpu;
}

// Leases outlive a change of the machine; they say what they miss.
bool Manager::fits_machine(Lease& lease) const {
  const Gpu* gpu = planner_->find(lease.grant.gpu);
  // An odd last one that is no group like others is there for whoever has all.
  const auto there = [gpu, &lease](std::uint32_t group) {
    const SmCut cut = cut_of(gpu->groups, gpu->rest_is_group);
    const bool usable = cut.rest_is_group || lease.grant.groups.size() >= gpu->groups.size();
    return group < (usable ? gpu->groups.size() : cut.groups);
  };
  const auto failed = failed_.find(lease.grant.gpu);
  if (gpu != nullptr && failed != failed_.end() &&
      (gpu->uuid.empty() || gpu->uuid == lease.gpu_uuid)) {
    lease.state_reason = "its GPU has failed: " + failed->second;
  } else if (gpu == nullptr || gpu->uuid != lease.gpu_uuid) {
    lease.state_reason = "its GPU " + lease.gpu_uuid + " is not here";
  } else if (!std::all_of(lease.grant.groups.begin(), lease.grant.groups.end(), there)) {
    lease.state_reason = "its GPU has fewer groups of multiprocessors than before";
  } else {
    return true;
  }
  lease.state = LeaseState::kLost;
  return false;
}

// Before anything answers requests; nobody else takes the lock.
Status Manager::recover() {
  std::vector<ProcessFacts> ours;
  for (ProcessFacts& facts : list_processes()) {
    if (!lease_of(config_, facts).empty()) ours.push_back(std::move(facts));
  }
  const Lock lock(mutex_);
  auto leases = state_->leases();
  if (!leases) return std::move(leases).error();
  for (Lease& lease : *leases) {
    Held held{.lease = std::move(lease)};
    held.faults_told_ms = faults_told_ms_[held.lease.id];
    if (fits_machine(held.lease)) {
      recover_lease(held, ours);
    } else {
      // Its server, if there still is one, is ended below.
      held.lease.server = {};
      note("gpu-missing", &held.lease, held.lease.state_reason);
    }
    const std::string id = held.lease.id;
    held_.emplace(id, std::move(held));
  }
  end_orphans(ours);
  remove_strays();
  return {};
}

void Manager::recover_lease(Held& held, const std::vector<ProcessFacts>& ours) {
  std::vector<ProcessId> candidates;
  for (const ProcessFacts& facts : ours) {
    // Only the parent leads its group, and a keeper, which outlives it.
    if (is_keeper(facts)) continue;
    if (facts.group != facts.id.pid || lease_of(config_, facts) != held.lease.id) continue;
    const bool recorded = facts.id == held.lease.server;
    candidates.insert(recorded ? candidates.begin() : candidates.end(), facts.id);
  }
  for (const ProcessId& id : candidates) {
    if (adopt(held, id)) return;
  }
  held.lease.server = {};
  held.lease.state = LeaseState::kRestarting;
  held.lease.state_reason = "its server had ended";
  held.restart_at = system_clock().now();
}

bool Manager::adopt(Held& held, ProcessId id) {
  auto process = Process::adopt(id);
  if (!process) return false;
  auto link = ControlLink::connect(watchdog_, ServerFiles(config_, held.lease.id).control_url());
  Status status = link ? Status() : Status(link.error());
  if (status) {
    const auto state = (*link)->describe();
    if (!state) {
      status = state.error();
    } else if (state->lease != held.lease.id) {
      status = Error{ErrorCode::kInvalid, "it serves lease " + state->lease};
    } else if (const auto confined = apply(**link, held.lease.grant)) {
      held.lease.confined = confined->confined;
      held.lease.takes_rest = (*link)->takes_rest();
      shrink_again(**link, held.lease);
    } else {
      status = confined.error();
    }
  }
  if (!status) {
    note("server-unusable", &held.lease, status.error().message);
    return false;
  }
  held.lease.server = id;
  held.lease.state = LeaseState::kRunning;
  held.process.emplace(std::move(*process));
  held.link = std::move(*link);
  held.started = system_clock().now();
  find_keeper(held);
  const Event adopted = event("lease-adopted", &held.lease, "pid " + std::to_string(id.pid));
  static_cast<void>(checked(state_->update(held.lease, adopted)).ok());
  publish(adopted);
  return true;
}

void Manager::end_orphans(const std::vector<ProcessFacts>& ours) {
  std::set<std::int32_t> kept;
  for (const auto& [id, held] : held_) kept.insert(held.lease.server.pid);
  for (const ProcessFacts& facts : ours) {
    if (kept.contains(facts.group)) continue;
    // The lease's next server takes over what it has.
    if (is_keeper(facts) && held_.contains(lease_of(config_, facts))) continue;
    auto process = Process::adopt(facts.id);
    if (!process) continue;
    if (facts.group == facts.id.pid && !is_keeper(facts)) {
      note("orphan-ended", nullptr,
           "server of lease " + lease_of(config_, facts) + ", pid " + std::to_string(facts.id.pid));
      process->end(SIGINT, kEndTime);
    } else {
      process->signal(SIGKILL);
    }
  }
}

void Manager::end_keepers(const std::string& id) const {
  if (config_.recover_seconds == 0) return;
  for (const ProcessFacts& facts : list_processes()) {
    if (!is_keeper(facts) || lease_of(config_, facts) != id) continue;
    if (const auto keeper = Process::adopt(facts.id)) keeper->signal(SIGKILL);
  }
}

// Files of leases that are no more.
void Manager::remove_strays() {
  for (const std::string& folder :
       {run_folder_of_leases(config_), state_folder_of_leases(config_)}) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string id = entry.path().filename().string();
      if (!held_.contains(id)) ServerFiles(config_, id).remove();
    }
  }
}

void Manager::stop(bool end_leases) {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    // Who stops a manager may repair its GPUs before the next one starts.
    static_cast<void>(checked(state_->forget_failed()).ok());
    note("node-stopped", nullptr, end_leases ? "servers of leases end" : "leases go on");
  }
  freed_.notify_all();
  events_.close();
  if (!end_leases) return;
  const Lock lock(mutex_);
  for (auto& [id, held] : held_) {
    if (held.process) held.process->end(SIGINT, kEndTime);
    held.process.reset();
    held.link.reset();
  }
  for (auto& [gpu, mps] : mps_) mps.daemon.stop();
}

}  // namespace flyt::node
