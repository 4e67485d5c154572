// How VMs come to their virtual GPUs and lose them again.
#include <algorithm>

#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cluster/manager.h"
#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

constexpr Duration kAvoid = std::chrono::seconds(30);
constexpr Duration kAskAgain = std::chrono::seconds(5);
constexpr Duration kForget = std::chrono::seconds(60);
constexpr unsigned kFailuresCounted = 5;
// A node that hangs must not take all workers.
constexpr unsigned kCallsOfNodeMax = 8;
constexpr std::size_t kCreatedAtOnceMax = 512;
// Grant, ending of an older one, generation, wish, event and the oldest event.
constexpr std::size_t kChangesOfGrantMax = 6;
constexpr std::size_t kChangesOfLeaseMax = 3;

// Errors after which the node has certainly no lease.
bool is_refusal(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kLimit:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
    case ErrorCode::kDenied:
      return true;
    case ErrorCode::kLost:
    case ErrorCode::kTimeout:
    case ErrorCode::kSystem:
      return false;
  }
  return false;
}

}  // namespace

void Manager::push(Job job) {
  jobs_.push_back(std::move(job));
  work_.notify_one();
}

std::optional<Job> Manager::next_job(Duration patience) {
  std::unique_lock<Mutex> lock(mutex_);
  static_cast<void>(work_.wait_for(lock, patience, [this] { return stopping_ || !jobs_.empty(); }));
  if (stopping_ || jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  return job;
}

std::string Manager::begin_call(const std::string& name, const Job& job) {
  NodeEntry* node = find_node(name);
  if (node == nullptr || node->lost || !node->heard || busy_.contains(job.id)) return {};
  if (!ledger_.mine()) return {};
  if (node->calls >= kCallsOfNodeMax) {
    node->later.push_back(job);
    return {};
  }
  ++node->calls;
  busy_.insert(job.id);
  return node->record.address();
}

void Manager::end_call(const std::string& name, const std::string& id) {
  busy_.erase(id);
  idle_.notify_all();
  NodeEntry* node = find_node(name);
  if (node == nullptr) return;
  --node->calls;
  if (node->later.empty()) return;
  push(std::move(node->later.front()));
  node->later.pop_front();
}

Manager::Vm* Manager::end_vms_call(const std::string& node, const std::string& id) {
  end_call(node, id);
  Vm* vm = vm_of_grant(id);
  if (vm == nullptr && endings_.contains(id)) push({Job::Kind::kEnd, id});
  return vm;
}

void Manager::run(const Job& job) {
  switch (job.kind) {
    case Job::Kind::kCreate:
      create(job.id);
      return;
    case Job::Kind::kEnd:
      end(job.id);
      return;
    case Job::Kind::kCheck:
      check(job.id, false);
      return;
    case Job::Kind::kRetire:
      check(job.id, true);
      return;
    case Job::Kind::kScale:
      scale(job.id);
      return;
  }
}

// Whoever has found a GPU gets a grant, on disk, before its node is asked.
void Manager::place() {
  const std::vector<placement::Placement> placed = scheduler_.pump();
  place_again_ = false;
  if (placed.empty()) return;
  const std::size_t most = std::max<std::size_t>(1, ledger_.changes_at_once() / kChangesOfGrantMax);
  for (std::span<const placement::Placement> rest = placed; !rest.empty();) {
    const auto part = rest.first(std::min(rest.size(), most));
    if (!commit_placed(part)) {
      undo(rest);
      break;
    }
    rest = rest.subspan(part.size());
  }
  changed();
}

Status Manager::commit_placed(std::span<const placement::Placement> placed) {
  Batch batch;
  std::vector<Planned> plans;
  for (const placement::Placement& one : placed) plans.push_back(plan(one, batch));
  if (Status status = ledger_.commit(std::move(batch)); !status) return status;
  for (Planned& planned : plans) {
    Vm& vm = *planned.vm;
    if (planned.old) begin_ending(*planned.old);
    vm.wish.reset();
    vm.wish_id.clear();
    vm.absent = false;
    vm.generation = planned.grant.generation();
    vm.made = vm.used = vm.tried = clock_.now();
    vm.scaler.settle(clock_.now());
    vm.scaled.clear();
    const std::string id = planned.grant.id();
    vm.grant = std::move(planned.grant);
    ++counters_.placed;
    push({Job::Kind::kCreate, id});
  }
  return {};
}

Manager::Planned Manager::plan(const placement::Placement& placed, Batch& batch) {
  Vm& vm = *find_vm(vm_of_id_.at(placed.lease.id));
  const std::string& name = vm.spec.name();
  Planned planned{.vm = &vm};
  state::Grant& grant = planned.grant;
  grant.set_id(placed.lease.id);
  grant.set_vm(name);
  grant.set_generation(vm.generation + 1);
  grant.set_node(placed.lease.node);
  grant.set_gpu(placed.lease.gpu);
  grant.set_sms(placed.request.sms);
  grant.set_rest(placed.lease.rest.value_or(false));
  grant.set_memory_bytes(placed.request.memory_bytes);
  grant.set_at_ms(unix_milliseconds());
  grant.set_why(placed.lease.why);
  if (vm.grant) {
    planned.old = ending_of(*vm.grant, "placed anew");
    batch.put("endings/" + planned.old->id(), *planned.old);
  }
  state::Generation generation;
  generation.set_number(grant.generation());
  batch.put("generations/" + name, generation);
  batch.put("grants/" + name, grant);
  batch.remove("wishes/" + name);
  batch.event("gpu-placed", grant.node(), name,
              "GPU " + std::to_string(grant.gpu()) + ": " + grant.why());
  return planned;
}

// What could not be written has not happened; tick() tries again.
void Manager::undo(std::span<const placement::Placement> placed) {
  for (const placement::Placement& one : placed) {
    scheduler_.map().release(one.lease.id);
    if (Vm* vm = find_vm(vm_of_id_.at(one.lease.id))) static_cast<void>(enter_queue(*vm).ok());
  }
  place_again_ = true;
}

// The batch is committed with it. A VM that has a wish already keeps its place.
Status Manager::begin_wish(Vm& vm, std::string_view why, Batch batch) {
  std::string reason = plain_text(why, kReasonBytesMax);
  vm.wish_until = clock_.now() + std::chrono::seconds(config_.keep_seconds);
  if (vm.wish) return ledger_.commit(std::move(batch));
  state::Wish wish = new_wish(vm, reason);
  batch.put("wishes/" + vm.spec.name(), wish);
  if (Status status = ledger_.commit(std::move(batch)); !status) return status;
  vm.reason = std::move(reason);
  vm.wish = std::move(wish);
  Status status = enter_queue(vm);
  changed();
  return status;
}

state::Wish Manager::new_wish(const Vm& vm, const std::string& reason) {
  state::Wish wish;
  wish.set_vm(vm.spec.name());
  wish.set_sequence(next_sequence_++);
  wish.set_since_ms(unix_milliseconds());
  wish.set_reason(reason);
  if (vm.machine) wish.set_machine(*vm.machine);
  return wish;
}

// A wish of a VM that has none is fresh: it is in the queue, and not yet on disk.
void Manager::ask_for(Vm& vm, Asking& asking) {
  ++counters_.requests;
  if (vm.grant && !vm.absent) {
    vm.used = clock_.now();
    return;
  }
  // Waiting would change nothing, and a lease there would be in vain.
  if (std::string why = out_of_reach(vm); !why.empty() && !vm.absent) {
    drop_wish(vm);
    asking.status = Error{ErrorCode::kUnsupported, std::move(why)};
    return;
  }
  vm.wish_until = clock_.now() + std::chrono::seconds(config_.keep_seconds);
  if (vm.wish) return;
  vm.wish = new_wish(vm, vm.reason);
  asking.status = enter_queue(vm);
  if (!asking.status) forget_wish(vm);
}

void Manager::learn_machine(Vm& vm, const v1::GpuRequest& request) {
  if (!request.has_host() || vm.machine == request.host()) return;
  vm.machine = request.host();
  if (!vm.wish) return;
  vm.wish->set_machine(request.host());
  queue_again(vm);
  place();
}

void Manager::answer(const std::vector<Asking*>& all) {
  std::vector<Vm*> fresh;
  for (Asking* asking : all) {
    const auto vm = need_vm(asking->request.vm());
    if (!vm) {
      asking->status = vm.error();
      requirements_.asked = true;
      continue;
    }
    learn_machine(**vm, asking->request);
    const bool wished = (*vm)->wish.has_value();
    ask_for(**vm, *asking);
    if (!wished && (*vm)->wish) fresh.push_back(*vm);
  }
  Status written;
  if (!fresh.empty()) {
    place();
    written = write_wishes(fresh);
  }
  for (Asking* asking : all) show_answer(*asking, written);
  changed();
}

void Manager::show_answer(Asking& asking, const Status& written) {
  if (!asking.status) return;
  const Vm& vm = *find_vm(asking.request.vm());
  const bool none = !vm.wish && (!vm.grant || vm.absent);
  if (none) asking.status = written;
  if (!asking.status) return;
  asking.gpu = view(vm);
  if (!ready(vm)) return;
  asking.address = find_node(vm.grant->node())->record.address();
  asking.lease = vm.grant->lease().name();
}

// Of those that were not placed at once; the others' never are written.
Status Manager::write_wishes(const std::vector<Vm*>& fresh) {
  Status all;
  const std::size_t most = ledger_.changes_at_once();
  for (std::size_t at = 0; at < fresh.size(); at += most) {
    const auto part = std::span(fresh).subspan(at, std::min(most, fresh.size() - at));
    Batch batch;
    for (const Vm* vm : part) {
      if (vm->wish) batch.put("wishes/" + vm->spec.name(), *vm->wish);
    }
    const Status status = ledger_.commit(std::move(batch));
    if (status) continue;
    for (Vm* vm : part) {
      if (vm->wish) forget_wish(*vm);
    }
    all = status;
  }
  return all;
}

void Manager::forget_wish(Vm& vm) {
  scheduler_.cancel(vm.wish_id);
  vm_of_id_.erase(vm.wish_id);
  vm.wish_id.clear();
  vm.wish.reset();
}

placement::Request Manager::request_for(const Vm& vm, const std::string& id) const {
  placement::Request request = request_of(vm.spec, id, config_.policy);
  request.reach = vm.machine;
  return request;
}

std::string Manager::out_of_reach(const Vm& vm) const {
  if (!vm.machine) return {};
  const auto nodes = scheduler_.map().out_of_reach(request_for(vm, "what-if"));
  if (nodes.empty()) return {};
  const placement::NodeFacts& first = scheduler_.map().facts(nodes.front());
  std::string others;
  if (nodes.size() > 1) others = " (and of " + counted(nodes.size() - 1, "other node") + ")";
  return "the leases of node " + first.name + others + " have no address for the machine of VM " +
         vm.spec.name() +
         ": set leases.tcp_host and leases.tcp_ports in the node's node.toml; or, if the VM's"
         " programs run on that node's machine, vm.host = \"" +
         first.host + "\" in the VM's client.toml";
}

// Whoever asks for it is told why, as if it had never waited.
void Manager::drop_out_of_reach() {
  for (auto& [name, vm] : vms_) {
    if (!vm.wish || vm.absent) continue;
    std::string why = out_of_reach(vm);
    if (why.empty()) continue;
    note("wish-dropped", "", name, std::move(why));
    drop_wish(vm);
  }
}

// Under a new name: an older one may still be held on a node.
Status Manager::enter_queue(Vm& vm) {
  if (vm.wish_id.empty()) {
    vm.wish_id = new_id();
    vm_of_id_[vm.wish_id] = vm.spec.name();
    vm.wish_until = std::max(vm.wish_until,
                             clock_.now() + Duration(std::chrono::seconds(config_.keep_seconds)));
  }
  placement::Request request = request_for(vm, vm.wish_id);
  for (const auto& [node, until] : vm.avoid) request.avoid.push_back(node);
  return scheduler_.resume({.request = std::move(request),
                            .sequence = vm.wish->sequence(),
                            .overtaken = vm.wish->overtaken(),
                            .kept = {}});
}

void Manager::queue_again(Vm& vm) {
  if (const placement::Waiting* waiting = scheduler_.waiting(vm.wish_id)) {
    vm.wish->set_overtaken(waiting->overtaken);
  }
  scheduler_.cancel(vm.wish_id);
  static_cast<void>(enter_queue(vm).ok());
}

void Manager::drop_wish(Vm& vm) {
  if (!vm.wish) return;
  Batch batch;
  batch.remove("wishes/" + vm.spec.name());
  static_cast<void>(ledger_.commit(std::move(batch)).ok());
  forget_wish(vm);
  vm.reason.clear();
  changed();
}

state::Ending Manager::ending_of(const state::Grant& grant, std::string_view reason) const {
  state::Ending ending;
  ending.set_id(grant.id());
  ending.set_vm(grant.vm());
  ending.set_node(grant.node());
  ending.set_lease_name(lease_name_of(grant.vm(), grant.id()));
  ending.set_reason(plain_text(reason, kReasonBytesMax));
  ending.set_at_ms(unix_milliseconds());
  return ending;
}

// It is on disk already. Its room is free when its node has said so.
void Manager::begin_ending(const state::Ending& ending) {
  endings_[ending.id()] = {.ending = ending, .failures = 0, .retry_at = clock_.now()};
  vm_of_id_.erase(ending.id());
  push({Job::Kind::kEnd, ending.id()});
}

void Manager::forget_grant(Vm& vm) {
  vm_of_id_.erase(vm.grant->id());
  vm.grant.reset();
  vm.absent = false;
  changed();
}

Status Manager::end_grant(Vm& vm, std::string_view kind, const std::string& why, Batch batch) {
  const state::Ending ending = ending_of(*vm.grant, why);
  batch.put("endings/" + ending.id(), ending);
  batch.remove("grants/" + vm.spec.name());
  batch.event(kind, ending.node(), vm.spec.name(), why);
  if (Status status = ledger_.commit(std::move(batch)); !status) return status;
  forget_grant(vm);
  begin_ending(ending);
  return {};
}

void Manager::create(const std::string& id) {
  node::v1::CreateLeaseRequest request;
  std::string address;
  std::string node;
  {
    const Lock lock(mutex_);
    Vm* vm = vm_of_grant(id);
    if (vm == nullptr || vm->grant->made() || vm->absent) return;
    node = vm->grant->node();
    address = begin_call(node, {Job::Kind::kCreate, id});
    if (address.empty()) return;
    vm->tried = clock_.now();
    request = create_request_of(vm->spec, *vm->grant, cluster_);
    *request.mutable_leader() = as_leader();
  }
  auto lease = calls_.create(address, request);
  // Perhaps by ourselves, in an earlier run.
  if (!lease && lease.error().code == ErrorCode::kDenied) {
    const auto there = calls_.lease(address, request.name());
    if (there && label_of(*there, kGrantLabel) == id) lease = *there;
  }
  created(node, id, lease);
}

void Manager::created(const std::string& node, const std::string& id,
                      const Result<node::v1::Lease>& lease) {
  Created mine{.node = node, .id = id, .lease = lease};
  created_.join(mine, kCreatedAtOnceMax, [this](const std::vector<Created*>& all) {
    const Lock lock(mutex_);
    take_created(all);
  });
}

// Few commits for all that nodes have made. If one of these cannot be written, the next start finds
// the leases on their nodes.
void Manager::take_created(const std::vector<Created*>& all) {
  Batch batch;
  std::size_t made = 0;
  for (const Created* one : all) {
    Vm* vm = end_vms_call(one->node, one->id);
    if (vm == nullptr) continue;
    if (!one->lease) {
      take_refusal(*vm, one->lease.error());
      continue;
    }
    show_lease(*one->lease, true, *find_node(one->node)->report.mutable_description());
    take_made(*vm, *one->lease, batch);
    if (++made * kChangesOfLeaseMax < ledger_.changes_at_once()) continue;
    static_cast<void>(ledger_.commit(std::exchange(batch, {})).ok());
    made = 0;
  }
  static_cast<void>(ledger_.commit(std::move(batch)).ok());
  changed();
}

void Manager::take_made(Vm& vm, const node::v1::Lease& lease, Batch& batch) {
  vm.grant->set_made(true);
  *vm.grant->mutable_lease() = lease;
  vm.made = vm.used = clock_.now();
  vm.avoid.clear();
  vm.reason.clear();
  batch.put("grants/" + vm.spec.name(), *vm.grant);
  batch.event("gpu-ready", vm.grant->node(), vm.spec.name(),
              "GPU " + std::to_string(lease.gpu()) + ", " + std::to_string(lease.sms_granted()) +
                  " multiprocessors, " + size_text(lease.memory_bytes()));
  hold(vm);
}

// Back into the queue, and for a while not to this node. Where nobody knows whether the lease was
// made, it is ended before anything else is done with its room.
void Manager::take_refusal(Vm& vm, const Error& error) {
  const state::Grant grant = *vm.grant;
  const bool certain = is_refusal(error.code);
  const state::Ending ending = ending_of(grant, error.message);
  Batch batch;
  batch.remove("grants/" + vm.spec.name());
  if (!certain) batch.put("endings/" + ending.id(), ending);
  batch.event("gpu-refused", grant.node(), vm.spec.name(), error.message);
  vm.avoid[grant.node()] = clock_.now() + kAvoid;
  ++counters_.refused;
  const std::string reason = "node " + grant.node() + ": " + error.message;
  // Without a disk the grant stays, and its node is asked again.
  if (!begin_wish(vm, reason, std::move(batch))) return;
  forget_grant(vm);
  if (certain) {
    scheduler_.map().release(grant.id());
  } else {
    begin_ending(ending);
  }
  place();
}

void Manager::end(const std::string& id) {
  std::string address;
  node::v1::ReleaseLeaseRequest request;
  std::string name;
  {
    const Lock lock(mutex_);
    const auto entry = endings_.find(id);
    if (entry == endings_.end()) return;
    name = entry->second.ending.node();
    entry->second.retry_at = clock_.now() + kAskAgain;
    address = begin_call(name, {Job::Kind::kEnd, id});
    if (address.empty()) return;
    request.set_lease(entry->second.ending.lease_name());
    *request.mutable_leader() = as_leader();
  }
  const auto released = calls_.release(address, request);
  const Lock lock(mutex_);
  end_call(name, id);
  const auto entry = endings_.find(id);
  if (entry == endings_.end()) return;
  Status status = released || released.error().code == ErrorCode::kNotFound
                      ? Status()
                      : Status(released.error());
  if (status) {
    Batch batch;
    batch.remove("endings/" + id);
    batch.event("lease-ended", entry->second.ending.node(), entry->second.ending.vm(),
                entry->second.ending.reason());
    status = ledger_.commit(std::move(batch));
  }
  if (!status) {
    const unsigned failures = std::min(++entry->second.failures, kFailuresCounted);
    entry->second.retry_at = clock_.now() + std::chrono::seconds(1u << failures);
    entry->second.trouble = plain_text(status.error().message, kReasonBytesMax);
    return;
  }
  NodeEntry* node = find_node(name);
  if (node != nullptr && released) {
    show_lease(*released, false, *node->report.mutable_description());
  }
  endings_.erase(entry);
  ended_[id] = clock_.now();
  ++counters_.released;
  scheduler_.map().release(id);
  place();
  changed();
}

void Manager::check(const std::string& id, bool retire) {
  std::string address;
  std::string lease;
  std::string node;
  {
    const Lock lock(mutex_);
    Vm* vm = vm_of_grant(id);
    if (vm == nullptr || !vm->grant->made()) return;
    node = vm->grant->node();
    address = begin_call(node, {retire ? Job::Kind::kRetire : Job::Kind::kCheck, id});
    if (address.empty()) return;
    lease = lease_name_of(vm->grant->vm(), id);
  }
  const auto there = calls_.lease(address, lease);
  const Lock lock(mutex_);
  Vm* vm = end_vms_call(node, id);
  if (vm == nullptr) return;
  if (!there) {
    if (there.error().code == ErrorCode::kNotFound) lose_lease(*vm, "its node has it no longer");
    return;
  }
  *vm->grant->mutable_lease() = *there;
  if (there->sessions() != 0) vm->used = clock_.now();
  hold(*vm);
  if (!retire || !unused(*vm)) return;
  if (end_grant(*vm, "gpu-freed", "no program used it", {})) ++counters_.freed;
}

void Manager::lose_lease(Vm& vm, const std::string& why) {
  const std::string id = vm.grant->id();
  const std::string node = vm.grant->node();
  Batch batch;
  batch.remove("grants/" + vm.spec.name());
  batch.event("gpu-lost", node, vm.spec.name(), why);
  const Status status = unused(vm) ? ledger_.commit(std::move(batch))
                                   : begin_wish(vm, "it was lost: " + why, std::move(batch));
  if (!status) return;
  forget_grant(vm);
  scheduler_.map().release(id);
  place();
}

// For so long that it is to be given back.
bool Manager::unused(const Vm& vm) {
  if (vm.grant->lease().sessions() != 0) return false;
  const NodeEntry* node = find_node(vm.grant->node());
  const bool draining = node != nullptr && node->record.draining();
  if (!draining && (vm.spec.keep() || !config_.free_unused)) return false;
  const auto limit =
      std::chrono::seconds(draining ? 2 * config_.report_seconds : config_.grace_seconds);
  return clock_.now() - vm.used > limit;
}

void Manager::grants_due() {
  const Instant now = clock_.now();
  for (auto& [name, vm] : vms_) {
    if (!vm.grant || busy_.contains(vm.grant->id())) continue;
    if (vm.absent) {
      if (!vm.wish) static_cast<void>(begin_wish(vm, "it was lost", {}).ok());
      continue;
    }
    if (now - vm.tried < kAskAgain) continue;
    const NodeEntry* node = find_node(vm.grant->node());
    if (node == nullptr || !node->heard || node->lost) continue;
    if (!vm.grant->made()) {
      vm.tried = now;
      push({Job::Kind::kCreate, vm.grant->id()});
    } else if (unused(vm)) {
      vm.tried = now;
      push({Job::Kind::kRetire, vm.grant->id()});
    }
  }
}

void Manager::wishes_due() {
  const Instant now = clock_.now();
  for (auto& [name, vm] : vms_) {
    if (!vm.wish) continue;
    if (vm.watchers == 0 && now > vm.wish_until && !vm.absent) {
      note("wish-dropped", "", name, "nobody asks for it any more");
      drop_wish(vm);
      continue;
    }
    const std::size_t avoided = vm.avoid.size();
    std::erase_if(vm.avoid, [now](const auto& entry) { return entry.second < now; });
    if (vm.avoid.size() != avoided) {
      queue_again(vm);
      place_again_ = true;
    }
  }
}

void Manager::endings_due() {
  const Instant now = clock_.now();
  for (auto& [id, entry] : endings_) {
    if (entry.retry_at > now || busy_.contains(id)) continue;
    entry.retry_at = now + kAskAgain;
    push({Job::Kind::kEnd, id});
  }
  std::erase_if(ended_, [now](const auto& entry) { return now - entry.second > kForget; });
}

void Manager::tick() {
  const Lock lock(mutex_);
  if (!ledger_.mine()) return;
  lose_due();
  wishes_due();
  grants_due();
  endings_due();
  scales_due();
  place();
}

}  // namespace flyt::cluster
