#include "control/node/manager.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/listening.h"
#include "base/random.h"
#include "base/text.h"
#include "control/node/server_files.h"
#include "transport/transport.h"

namespace flyt::node {
namespace {

constexpr Duration kEndTime = std::chrono::seconds(2);
constexpr std::uint32_t kSessionsOfToken = 1024;
// How long it is a problem that somebody asked who does not decide any more.
constexpr Duration kDeposedTold = std::chrono::minutes(1);

Error not_found(std::string_view name) {
  return {ErrorCode::kNotFound,
          "there is no lease " + std::string(name) + "; flytctl leases lists them"};
}

std::string new_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, 8> bytes{};
  random_bytes(bytes.data(), bytes.size());
  std::string id;
  for (const unsigned char byte : bytes) id += {kDigits[byte >> 4], kDigits[byte & 15]};
  return id;
}

std::string grant_text(const Lease& lease) {
  return "GPU " + std::to_string(lease.grant.gpu) + ", " + std::to_string(lease.grant.sms) +
         " multiprocessors for " + std::to_string(lease.sms_asked) + " asked, " +
         size_text(lease.grant.memory_bytes);
}

std::string milliseconds_text(Duration took) {
  return std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(took).count() /
                        1000) +
         " ms";
}

}  // namespace

Manager::Manager(Config config, const Log& log)
    : config_(std::move(config)),
      own_log_(log),
      expiry_({config_.cert, config_.ca, config_.cluster_cert, config_.cluster_ca}),
      events_(config_.events_max) {}

Manager::~Manager() { lines_.finish(own_log_); }

Event Manager::event(std::string_view kind, const Lease* lease, std::string text) {
  Event event{.number = events_.next_number(), .at_ms = unix_milliseconds()};
  event.kind = kind;
  if (lease != nullptr) {
    event.lease_id = lease->id;
    event.lease_name = lease->name;
  }
  event.text = std::move(text);
  return event;
}

void Manager::publish(const Event& event) {
  log_.info(event.kind,
            {{"lease", event.lease_id}, {"name", event.lease_name}, {"text", event.text}});
  events_.add(event);
}

void Manager::note(std::string_view kind, const Lease* lease, std::string text) {
  const Event noted = event(kind, lease, std::move(text));
  static_cast<void>(checked(state_->append(noted)).ok());
  publish(noted);
}

Status Manager::checked(Status status) {
  if (!status && state_problem_.empty()) {
    log_.error("state not written", {{"why", status.error().message}});
  }
  state_problem_ = status ? "" : status.error().message;
  return status;
}

std::vector<Lease> Manager::snapshot() const {
  std::vector<Lease> leases;
  for (const auto& [id, held] : held_) leases.push_back(held.lease);
  return leases;
}

Manager::Leases::iterator Manager::find(std::string_view name) {
  return std::find_if(held_.begin(), held_.end(), [name](const auto& entry) {
    return entry.first == name || entry.second.lease.name == name;
  });
}

std::set<std::uint16_t> Manager::ports() const {
  std::set<std::uint16_t> taken;
  for (const auto& [id, held] : held_) taken.insert(held.lease.port);
  return taken;
}

// Of those that no lease has the first one at which nobody else of this machine listens. 0: none.
std::uint16_t Manager::free_port() {
  if (config_.tcp_port_first == 0) return 0;
  std::set<std::uint16_t> taken;
  {
    const Lock lock(mutex_);
    taken = ports();
  }
  transport::Url url{.kind = transport::Kind::kTcp, .host = config_.tcp_host};
  for (std::uint32_t port = config_.tcp_port_first; port <= config_.tcp_port_last; ++port) {
    url.port = static_cast<std::uint16_t>(port);
    if (taken.contains(url.port)) continue;
    // What else is wrong with it the lease's server tells.
    const auto listener = transport::listen(url);
    if (listener || !is_taken(listener.error())) return url.port;
  }
  return 0;
}

Result<std::string> Manager::take(std::string_view name) {
  const Lock lock(mutex_);
  while (true) {
    const auto found = find(name);
    if (found == held_.end()) return not_found(name);
    if (stopping_) return Error{ErrorCode::kLost, "the node manager is stopping"};
    if (!found->second.busy) {
      found->second.busy = true;
      return found->first;
    }
    freed_.wait(mutex_);
  }
}

void Manager::drop(const std::string& id) {
  {
    const Lock lock(mutex_);
    held_.at(id).busy = false;
  }
  freed_.notify_all();
  wake();
}

// Grants, in memory alone: what is on disk always has a server.
Result<Lease> Manager::begin(const LeaseRequest& request) {
  while (true) {
    const std::uint16_t port = free_port();
    const Lock lock(mutex_);
    // Another lease may have been quicker.
    if (port == 0 || !ports().contains(port)) return begin_at(port, request);
  }
}

Result<Lease> Manager::begin_at(std::uint16_t port, const LeaseRequest& request) {
  if (stopping_) return Error{ErrorCode::kLost, "the node manager is stopping"};
  if (draining_) {
    return Error{ErrorCode::kUnsupported, "the node drains; flytctl undrain ends that"};
  }
  auto grant = planner_->place(request, snapshot(), unix_seconds(), failed_);
  if (!grant) {
    ++counters_.refused;
    return std::move(grant).error();
  }
  Lease lease{.id = new_id(), .name = request.name, .grant = std::move(*grant)};
  lease.gpu_uuid = planner_->find(lease.grant.gpu)->uuid;
  lease.sms_asked = request.sms;
  lease.priority = request.priority;
  lease.created_at = unix_seconds();
  lease.expires_at = request.expires_at;
  lease.labels = request.labels;
  lease.port = port;
  if (config_.tcp_port_first != 0 && lease.port == 0) {
    ++counters_.refused;
    return Error{ErrorCode::kLimit, "all ports of leases.tcp_ports are taken"};
  }
  held_[lease.id] = {.lease = lease, .busy = true};
  return lease;
}

Status Manager::commit_new(const std::string& id) {
  const Lock lock(mutex_);
  Held& held = held_.at(id);
  const Event created = event("lease-created", &held.lease, grant_text(held.lease));
  if (Status status = checked(state_->add(held.lease, created)); !status) return status;
  publish(created);
  ++counters_.created;
  return {};
}

Result<LeaseView> Manager::create(const LeaseRequest& request) {
  const auto lease = begin(request);
  if (!lease) return lease.error();
  const std::string& id = lease->id;
  Status status = run_server(id);
  if (status) status = commit_new(id);
  if (status) {
    drop(id);
    return this->lease(id);
  }
  std::optional<Process> process;
  {
    const Lock lock(mutex_);
    process = std::move(held_.at(id).process);
  }
  if (process) process->end(SIGKILL, Duration(0));
  ServerFiles(config_, id).remove();
  const Lock lock(mutex_);
  note("lease-failed", &*lease, status.error().message);
  held_.erase(id);
  freed_.notify_all();
  return status.error();
}

Status Manager::end_lease(const std::string& id, std::string_view kind, std::string text) {
  std::optional<Process> process;
  {
    const Lock lock(mutex_);
    Held& held = held_.at(id);
    if (held.lease.state != LeaseState::kEnding) held.lease.state_reason.clear();
    held.lease.state = LeaseState::kEnding;
    process = std::exchange(held.process, std::nullopt);
    held.link.reset();
  }
  if (process) process->end(SIGINT, kEndTime);
  end_keepers(id);
  ServerFiles(config_, id).remove();
  const Lock lock(mutex_);
  Held& held = held_.at(id);
  const Event ended = event(kind, &held.lease, std::move(text));
  Status status = checked(state_->remove(id, ended));
  if (status) {
    publish(ended);
    held_.erase(id);
  } else {
    held.lease.state_reason = status.error().message;
    held.restart_at = system_clock().now() + std::chrono::seconds(5);
    held.busy = false;
  }
  freed_.notify_all();
  return status;
}

Result<LeaseView> Manager::release(std::string_view name) {
  const auto id = take(name);
  if (!id) return id.error();
  LeaseView last;
  std::shared_ptr<ControlLink> link;
  {
    const Lock lock(mutex_);
    last = {held_.at(*id).lease, {}, std::nullopt};
    link = held_.at(*id).link;
  }
  // So that its GPU's counters have all that it did.
  const LeaseView counted = view(last.lease, link);
  {
    const Lock lock(mutex_);
    count(counted, link);
  }
  if (Status status = end_lease(*id, "lease-released", "released"); !status) {
    return Error{status.error().code,
                 "its server has ended, and the lease goes as soon as the state can be written: " +
                     status.error().message};
  }
  const Lock lock(mutex_);
  ++counters_.released;
  last.lease.state = LeaseState::kEnding;
  return last;
}

// Whatever covers the whole GPU is unconfined; anything else is exactly these groups. Not confined:
// its driver or its server cannot do that, so that multiprocessors are counted and no more.
Result<Manager::Applied> Manager::apply(ControlLink& link, const Grant& grant) const {
  const auto memory = link.set_memory(grant.memory_bytes);
  if (!memory) return memory.error();
  const Gpu* gpu = planner_->find(grant.gpu);
  const bool whole = gpu == nullptr || grant.groups.size() == gpu->groups.size();
  const auto set = whole ? link.set_sms(0) : link.set_groups(grant.groups);
  if (set) return Applied{true, set->behind, set->took};
  if (set.error().code == ErrorCode::kUnsupported) return Applied{};
  return set.error();
}

// Programs move to the new groups. What does not move keeps groups that cannot be given to others.
Result<Manager::Applied> Manager::move(ControlLink& link, const Grant& from,
                                       const Grant& to) const {
  const auto applied = apply(link, to);
  if (!applied) return applied.error();
  const bool keeps_all =
      std::includes(to.groups.begin(), to.groups.end(), from.groups.begin(), from.groups.end());
  if (!applied->confined || keeps_all) return applied;
  const auto state = link.describe();
  if (!state) return state.error();
  if (state->behind == 0 && state->fixed == 0) return applied;
  const std::string why =
      state->behind != 0
          ? std::to_string(state->behind) + " programs have not moved: they capture, or wait"
          : std::to_string(state->fixed) + " contexts or graphs of programs cannot move";
  return Error{ErrorCode::kLimit, why + "; the multiprocessors that would be given up are in use"};
}

// While it changes, a lease holds what it had and what it shall have.
Status Manager::change(const std::string& id, std::string_view kind, const Wanted& want,
                       const ResizeRequest& asked) {
  Lease before;
  Grant wanted;
  std::shared_ptr<ControlLink> link;
  {
    const Lock lock(mutex_);
    Held& held = held_.at(id);
    before = held.lease;
    auto grant = want(before, snapshot());
    if (!grant) {
      if (kind == "lease-resized") ++counters_.refused;
      return std::move(grant).error();
    }
    wanted = std::move(*grant);
    std::set<std::uint32_t> groups(wanted.groups.begin(), wanted.groups.end());
    groups.insert(before.grant.groups.begin(), before.grant.groups.end());
    held.lease.grant.groups.assign(groups.begin(), groups.end());
    held.lease.grant.memory_bytes = std::max(before.grant.memory_bytes, wanted.memory_bytes);
    link = held.link;
  }
  const Result<Applied> moved = link ? move(*link, before.grant, wanted) : Result(Applied{});
  Status status = moved ? Status() : Status(moved.error());
  {
    const Lock lock(mutex_);
    Held& held = held_.at(id);
    held.lease.grant = before.grant;
    if (status) {
      Lease after = held.lease;
      after.grant = wanted;
      std::string text = grant_text(after) + ", in " + milliseconds_text(moved->took);
      // Who asks for the quota that the lease has asks for no smaller one any more.
      if (asked.memory_bytes && after.memory_pending != 0) {
        text += "; shrinks no more to " + size_text(std::exchange(after.memory_pending, 0));
      }
      after.sms_asked = asked.sms.value_or(before.sms_asked);
      const Event changed = event(kind, &after, std::move(text));
      status = checked(state_->update(after, changed));
      if (status) {
        held.lease = after;
        publish(changed);
        ++(kind == "lease-moved" ? counters_.moved : counters_.resized);
      }
    }
  }
  if (!status && link) static_cast<void>(apply(*link, before.grant).ok());
  if (link && (!status || !asked.memory_bytes)) shrink_again(*link, before);
  return status;
}

// The server refuses what is beyond the smaller quota from now on; the node gives what the lease
// gives up to nobody before it is free.
Status Manager::shrink_later(const std::string& id, std::uint64_t bytes) {
  std::shared_ptr<ControlLink> link;
  {
    const Lock lock(mutex_);
    link = held_.at(id).link;
  }
  if (link == nullptr) return Error{ErrorCode::kLost, "its server does not answer"};
  const auto set = link->set_memory(bytes, control::Shrink::kWhenFree);
  if (!set) return set.error();
  const Lock lock(mutex_);
  Held& held = held_.at(id);
  Lease after = held.lease;
  after.memory_pending = bytes;
  const Event shrinking =
      event("lease-shrinking", &after,
            "to " + size_text(bytes) + " once it is free; used: " + size_text(set->used));
  if (Status status = checked(state_->update(after, shrinking)); !status) {
    static_cast<void>(link->set_memory(held.lease.grant.memory_bytes).ok());
    shrink_again(*link, held.lease);
    return status;
  }
  held.lease = after;
  publish(shrinking);
  return {};
}

void Manager::shrink_again(ControlLink& link, const Lease& lease) {
  if (lease.memory_pending == 0) return;
  static_cast<void>(link.set_memory(lease.memory_pending, control::Shrink::kWhenFree).ok());
}

// Leases that use no more than the quota that waits for that.
void Manager::shrink_due() {
  std::vector<std::pair<std::string, std::shared_ptr<ControlLink>>> waiting;
  {
    const Lock lock(mutex_);
    for (const auto& [id, held] : held_) {
      if (held.lease.memory_pending != 0 && !held.busy && held.link != nullptr) {
        waiting.emplace_back(id, held.link);
      }
    }
  }
  for (const auto& [id, link] : waiting) {
    const Lock lock(mutex_);
    const auto found = held_.find(id);
    if (found == held_.end() || found->second.busy) continue;
    Lease after = found->second.lease;
    // Refused while more is used.
    if (after.memory_pending == 0 || !link->set_memory(after.memory_pending)) continue;
    after.grant.memory_bytes = std::exchange(after.memory_pending, 0);
    const Event resized = event("lease-resized", &after, grant_text(after));
    if (!checked(state_->update(after, resized))) continue;
    found->second.lease = after;
    publish(resized);
    ++counters_.resized;
  }
}

Result<LeaseView> Manager::resize(std::string_view name, const ResizeRequest& request) {
  const auto id = take(name);
  if (!id) return id.error();
  const auto wanted = [&](const Lease& lease, std::span<const Lease> leases) {
    return planner_->resize(lease, request, leases);
  };
  Status status = change(*id, "lease-resized", wanted, request);
  if (!status && status.error().code == ErrorCode::kLimit && request.when_free &&
      request.memory_bytes && !request.sms) {
    status = shrink_later(*id, *request.memory_bytes);
  }
  drop(*id);
  if (!status) return status.error();
  return lease(*id);
}

std::vector<LeaseView> Manager::defragment() {
  constexpr int kPassesMax = 4;
  std::set<std::string> moved;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    const std::size_t before = moved.size();
    for (const LeaseView& view : leases()) {
      const auto id = take(view.lease.id);
      if (!id) continue;
      const auto together = [&](const Lease& lease, std::span<const Lease> leases) {
        return planner_->gather(lease, leases);
      };
      if (change(*id, "lease-moved", together, {})) moved.insert(*id);
      drop(*id);
    }
    if (moved.size() == before) break;
  }
  std::vector<LeaseView> views;
  for (const std::string& id : moved) {
    if (auto view = lease(id)) views.push_back(std::move(*view));
  }
  return views;
}

LeaseView Manager::view(const Lease& lease, const std::shared_ptr<ControlLink>& link) const {
  LeaseView view{lease, urls_of(config_, lease), std::nullopt};
  if (link == nullptr) return view;
  if (const auto state = link->describe()) {
    view.use = LeaseUse{state->memory_used, state->sessions, state->behind,
                        state->fixed,       state->moves,    state->last_move};
    if (const auto work = link->use()) view.use->work = *work;
    // The counts alone.
    if (auto faults = link->faults(~std::uint64_t{0})) view.use->faults = std::move(*faults);
    if (const auto totals = link->totals()) view.use->totals = *totals;
  }
  return view;
}

GpuTotals GpuTotals::of(const LeaseUse& use) {
  return {.launches = use.work.launches,
          .posted = use.totals.posted,
          .waited = use.totals.waited,
          .received_bytes = use.totals.received_bytes,
          .moves = use.moves,
          .returns = use.totals.returns,
          .caused = use.faults.caused,
          .suspected = use.faults.suspected};
}

void GpuTotals::add(const GpuTotals& now, GpuTotals& before, bool anew) {
  constexpr std::array kAll = {
      &GpuTotals::launches, &GpuTotals::posted,  &GpuTotals::waited, &GpuTotals::received_bytes,
      &GpuTotals::moves,    &GpuTotals::returns, &GpuTotals::caused, &GpuTotals::suspected};
  for (const auto one : kAll) {
    std::uint64_t& seen = before.*one;
    if (anew && now.*one < seen) seen = 0;
    if (now.*one <= seen) continue;
    this->*one += now.*one - std::exchange(seen, now.*one);
  }
}

// Of two that look at the same time the later one may come with the older figures.
void Manager::count(const LeaseView& view, const std::shared_ptr<ControlLink>& link) {
  const auto found = held_.find(view.lease.id);
  if (found == held_.end() || !view.use || found->second.link != link) return;
  Held& held = found->second;
  const bool anew = held.counted_by.lock() != link;
  held.counted_by = link;
  totals_[view.lease.grant.gpu].add(GpuTotals::of(*view.use), held.counted, anew);
}

std::vector<LeaseView> Manager::leases() {
  std::vector<std::pair<Lease, std::shared_ptr<ControlLink>>> all;
  {
    const Lock lock(mutex_);
    for (const auto& [id, held] : held_) all.emplace_back(held.lease, held.link);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.created_at, a.first.name) < std::tie(b.first.created_at, b.first.name);
  });
  std::vector<LeaseView> views;
  for (const auto& [lease, link] : all) views.push_back(view(lease, link));
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < views.size(); ++i) count(views[i], all[i].second);
  return views;
}

Result<LeaseView> Manager::lease(std::string_view name) {
  Lease lease;
  std::shared_ptr<ControlLink> link;
  {
    const Lock lock(mutex_);
    const auto found = find(name);
    if (found == held_.end()) return not_found(name);
    lease = found->second.lease;
    link = found->second.link;
  }
  return view(lease, link);
}

Result<std::vector<SessionView>> Manager::sessions(std::string_view name) {
  std::vector<std::pair<Lease, std::shared_ptr<ControlLink>>> asked;
  {
    const Lock lock(mutex_);
    for (const auto& [id, held] : held_) {
      if (name.empty() || id == name || held.lease.name == name) {
        asked.emplace_back(held.lease, held.link);
      }
    }
  }
  if (asked.empty() && !name.empty()) return not_found(name);
  std::vector<SessionView> views;
  for (const auto& [lease, link] : asked) {
    if (link == nullptr) continue;
    auto sessions = link->sessions();
    if (!sessions && !name.empty()) return std::move(sessions).error();
    if (!sessions) continue;
    for (control::SessionState& session : *sessions) {
      if (!session.monitor) views.push_back({lease.id, lease.name, std::move(session)});
    }
  }
  return views;
}

Result<TokenView> Manager::new_token(std::string_view name, std::uint32_t seconds) {
  if (seconds == 0) seconds = config_.token_seconds;
  if (seconds > config_.token_seconds_max) {
    return Error{ErrorCode::kInvalid, "a token lasts at most " +
                                          seconds_text(config_.token_seconds_max) +
                                          " (leases.token_seconds_max)"};
  }
  Lease lease;
  std::shared_ptr<ControlLink> link;
  {
    const Lock lock(mutex_);
    const auto found = find(name);
    if (found == held_.end()) return not_found(name);
    lease = found->second.lease;
    link = found->second.link;
  }
  const std::int64_t now = unix_seconds();
  if (lease.expires_at != 0) {
    const std::int64_t left = std::max<std::int64_t>(lease.expires_at - now, 1);
    seconds = static_cast<std::uint32_t>(std::min<std::int64_t>(seconds, left));
  }
  if (link == nullptr) {
    return Error{ErrorCode::kLost, "the lease is " + std::string(to_string(lease.state)) +
                                       "; try again when it runs"};
  }
  auto token = link->new_token(seconds, kSessionsOfToken);
  if (!token) return std::move(token).error();
  const Lock lock(mutex_);
  ++counters_.tokens;
  return TokenView{std::move(*token), now + seconds, urls_of(config_, lease), lease.id};
}

NodeView Manager::describe() {
  const Lock lock(mutex_);
  NodeView view{.name = config_.name,
                .server = config_.soft != 0 ? "soft" : "nvidia",
                .draining = draining_,
                .overhead_per_lease = planner_->limits().overhead_per_lease,
                .sessions_per_lease = config_.sessions_max,
                .leases_max = config_.leases_max,
                .leases = held_.size()};
  const std::vector<Lease> leases = snapshot();
  for (const Gpu& gpu : planner_->gpus()) {
    GpuView one{.gpu = gpu,
                .holders = std::vector<std::string>(gpu.groups.size()),
                .holder_counts = std::vector<std::uint32_t>(gpu.groups.size()),
                .sms_free = Planner::map_of(gpu, leases, nullptr).sms_free()};
    for (const Lease& lease : leases) {
      if (lease.grant.gpu != gpu.index) continue;
      ++one.leases;
      for (const std::uint32_t group : lease.grant.groups) {
        if (group >= one.holders.size()) continue;
        one.holders[group] = lease.id;
        ++one.holder_counts[group];
      }
    }
    one.totals = totals_[gpu.index];
    for (const auto& [key, xids] : xids_) {
      if (key.first == gpu.index) one.xids[key.second] = xids.seen;
    }
    if (const auto failed = failed_.find(gpu.index); failed != failed_.end()) {
      one.failed = failed->second;
      one.sms_free = 0;
    }
    const Planner::Held held = Planner::held(gpu.index, leases);
    one.quota_bytes = held.quota_bytes;
    one.overhead_bytes = held.overhead_bytes + gpu.reserve_bytes;
    const std::uint64_t used = one.quota_bytes + one.overhead_bytes;
    one.free_bytes = gpu.memory_bytes > used && one.failed.empty() ? gpu.memory_bytes - used : 0;
    if (const auto mps = mps_.find(gpu.index); mps != mps_.end()) {
      one.mps = mps->second.daemon.running() ? "running" : "restarting";
    }
    if (const auto room = rooms_.find(gpu.index); room != rooms_.end()) {
      one.sessions_max = config_.gpu_sessions;
      one.sessions = room->second->count();
      one.refused =
          room->second->refusals(Room::Why::kLimit) + room->second->refusals(Room::Why::kDriver);
    }
    view.gpus.push_back(std::move(one));
  }
  return view;
}

Result<std::size_t> Manager::drain(bool on) {
  const Lock lock(mutex_);
  if (on == draining_) return held_.size();
  const Event drained =
      event(on ? "drain" : "undrain", nullptr, on ? "no new leases" : "new leases again");
  if (Status status = checked(state_->set_draining(on, drained)); !status) return status.error();
  draining_ = on;
  publish(drained);
  return held_.size();
}

std::vector<std::string> Manager::problems() {
  const Lock lock(mutex_);
  std::vector<std::string> problems;
  if (!state_problem_.empty()) problems.push_back(state_problem_);
  if (!deposed_.empty() && system_clock().now() - deposed_at_ < kDeposedTold) {
    problems.push_back(deposed_);
  }
  for (const auto& [gpu, why] : failed_) {
    problems.push_back("GPU " + std::to_string(gpu) + " has failed: " + why);
  }
  for (const auto& [id, held] : held_) {
    const Lease& lease = held.lease;
    const bool answers = held.link != nullptr && !held.link->lost();
    const bool serves = lease.state == LeaseState::kRunning && answers;
    if (serves && lease.state_reason.empty()) continue;
    if (lease.state == LeaseState::kStarting) continue;
    // With a reason it has not ended when it should have.
    if (lease.state == LeaseState::kEnding && lease.state_reason.empty()) continue;
    problems.push_back("lease " + lease.name + ": " +
                       (lease.state == LeaseState::kRunning && !answers
                            ? std::string("its server does not answer")
                            : std::string(to_string(lease.state)) + ", " + lease.state_reason));
  }
  for (const auto& [gpu, mps] : mps_) {
    if (!mps.daemon.running() && !failed_.contains(gpu)) {
      problems.push_back("GPU " + std::to_string(gpu) + ": its MPS does not run");
    }
  }
  return problems;
}

std::vector<std::string> Manager::concerns() {
  std::vector<std::string> all = problems();
  for (std::string& end : expiry_.problems(unix_seconds())) all.push_back(std::move(end));
  return all;
}

Counters Manager::counters() {
  const Lock lock(mutex_);
  return counters_;
}

}  // namespace flyt::node
