// What nodes report, and what follows when they do not.
#include <algorithm>

#include "base/text.h"
#include "base/wall_clock.h"
#include "control/cluster/manager.h"
#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

// A report may have been made before the node was asked for something that is done by now.
constexpr Duration kReportAge = std::chrono::seconds(10);
constexpr Duration kAskAgain = std::chrono::seconds(5);
constexpr std::size_t kNodesMax = 10000;
constexpr std::size_t kMisplacedMax = 256;

// What is counted all the time is no news.
bool tells_the_same(v1::NodeReport a, v1::NodeReport b) {
  for (v1::NodeReport* report : {&a, &b}) {
    for (node::v1::Lease& lease : *report->mutable_leases()) {
      lease.clear_measured_microseconds();
      lease.clear_busy_microseconds();
      lease.clear_queued_microseconds();
      lease.clear_launches();
    }
  }
  return a.SerializeAsString() == b.SerializeAsString();
}

}  // namespace

v1::NodeState Manager::state_of(const NodeEntry& node) const {
  if (node.lost) return v1::NODE_LOST;
  if (!node.heard) return v1::NODE_UNKNOWN;
  if (node.record.draining()) return v1::NODE_DRAINING;
  if (node.record.cordoned() || node.report.description().draining()) return v1::NODE_CORDONED;
  return v1::NODE_READY;
}

placement::NodeState Manager::placement_state(const NodeEntry& node) const {
  switch (state_of(node)) {
    case v1::NODE_READY:
      return placement::NodeState::kReady;
    case v1::NODE_CORDONED:
      return placement::NodeState::kCordoned;
    case v1::NODE_DRAINING:
      return placement::NodeState::kDraining;
    default:
      return placement::NodeState::kLost;
  }
}

Result<v1::NodeReply> Manager::report(const v1::NodeReport& report) {
  const Lock lock(mutex_);
  // It is to be told to somebody who decides.
  if (!ledger_.mine()) return Error{ErrorCode::kLost, "this cluster manager does not decide now"};
  if (Status status = check_report(report); !status) return status.error();
  NodeEntry* node = find_node(report.name());
  if (node == nullptr && nodes_.size() >= kNodesMax) {
    return Error{ErrorCode::kLimit, "there are " + std::to_string(kNodesMax) + " nodes already"};
  }
  const bool other = node != nullptr && node->heard && !node->lost &&
                     report.address() != node->record.address() &&
                     report.instance() != node->report.instance();
  if (other) {
    return Error{ErrorCode::kDenied, "there is a node " + report.name() + " already, at " +
                                         node->record.address() +
                                         "; if this is the same one, try again when that is lost"};
  }
  if (Status status = check_place(report); !status) return status.error();
  NodeEntry fresh;
  const bool known = node != nullptr;
  if (!known) node = &fresh;
  const bool back = node->lost;
  const placement::NodeState before = placement_state(*node);
  const bool same = known && !back && node->heard && tells_the_same(report, node->report);
  node->heard = true;
  node->lost = false;
  node->last = clock_.now();
  node->last_ms = unix_milliseconds();
  if (Status status = take_record(*node, report); !status) {
    if (known && back) node->lost = true;
    return status.error();
  }
  if (!known) node = &nodes_.emplace(report.name(), std::move(fresh)).first->second;
  node->report = report;
  ++counters_.reports;
  if (back) note("node-back", report.name(), "", "it reports again");
  // Whoever waits is tried again where a node's state has changed; so it is not set in vain.
  if (placement_state(*node) != before) {
    scheduler_.map().set_state(report.name(), placement_state(*node));
  }
  take_leases(*node);
  place();
  if (!same) changed();
  v1::NodeReply reply;
  reply.set_cluster(cluster_);
  reply.set_epoch(epoch_);
  reply.set_next_report_ms(config_.report_seconds * 1000);
  return reply;
}

// That neither the manager nor VMs' programs are sent to another node in its name: who is there
// keeps the place until it is lost. Names of hosts are believed because certificates name them.
Status Manager::check_place(const v1::NodeReport& report) {
  const Places::Which others = [&](const std::string& name) {
    const NodeEntry* node = find_node(name);
    return name != report.name() && node != nullptr && !node->lost;
  };
  if (const auto there = places_.node_at(report.address(), others)) {
    return refuse_place(
        report, "node " + *there + " is at " + report.address() +
                    " already; if it is this one by another name, it is taken when " + *there +
                    " is lost");
  }
  const std::string own = host_of(report.address());
  for (const std::string& host : lease_hosts(report)) {
    // One that is asked over a Unix socket is on the manager's machine, as others may be.
    if (own.empty() || host == own) continue;
    const auto there = places_.node_on(host, others);
    if (!there) continue;
    return refuse_place(report, "programs would be sent to " + host + ", where node " + *there +
                                    " is: see leases.advertise");
  }
  misplaced_.erase(report.name());
  return {};
}

// It is told once, however often and with whatever reason it tries.
Status Manager::refuse_place(const v1::NodeReport& report, std::string why) {
  if (misplaced_.size() >= kMisplacedMax && !misplaced_.contains(report.name())) {
    misplaced_.clear();
  }
  Misplaced& known = misplaced_[report.name()];
  known.last = clock_.now();
  if (known.why.empty()) note("node-refused", report.name(), "", why);
  if (known.why != why) changed();
  known.why = why;
  return Error{ErrorCode::kDenied, std::move(why)};
}

// What is kept on disk changes seldom.
Status Manager::take_record(NodeEntry& node, const v1::NodeReport& report) {
  const state::NodeRecord record = record_of(report, node.record);
  const bool first = node.record.name().empty();
  if (record.SerializeAsString() == node.record.SerializeAsString()) return {};
  placement::NodeFacts facts = facts_of(record);
  NodeEntry after;
  after.record = record;
  after.heard = true;
  after.report = report;
  facts.state = placement_state(after);
  if (Status status = scheduler_.map().set_node(facts); !status) {
    return Error{ErrorCode::kInvalid, "node " + record.name() + ": " + status.error().message};
  }
  Batch batch;
  batch.put("nodes/" + record.name(), record);
  if (first) {
    batch.event("node-registered", record.name(), "",
                counted(static_cast<std::uint64_t>(record.description().gpus_size()), "GPU") +
                    ", at " + record.address());
  } else if (record.address() != node.record.address()) {
    batch.event("node-moved", record.name(), "", "now at " + record.address());
  }
  if (Status status = ledger_.commit(std::move(batch)); !status) {
    if (first) scheduler_.map().remove_node(record.name());
    return status;
  }
  node.record = record;
  places_.set(record.name(), record.address());
  if (!first) drop_out_of_reach();
  return {};
}

void Manager::take_leases(NodeEntry& node) {
  std::set<std::string> seen;
  // The report's entry may not move while leases are taken from it.
  const auto leases = node.report.leases();
  for (const node::v1::Lease& lease : leases) {
    const std::string id = label_of(lease, kGrantLabel);
    if (label_of(lease, kClusterLabel) != cluster_ || id.empty()) continue;
    seen.insert(id);
    take_own(node, id, lease);
  }
  take_foreign(node);
  ask_for_missing(node, seen);
}

void Manager::take_own(NodeEntry& node, const std::string& id, const node::v1::Lease& lease) {
  if (busy_.contains(id) || ended_.contains(id)) return;
  if (const auto ending = endings_.find(id); ending != endings_.end()) {
    ending->second.retry_at = std::min(ending->second.retry_at, clock_.now() + kAskAgain);
    return;
  }
  Vm* vm = vm_of_grant(id);
  if (vm == nullptr) {
    take_unknown(node, id, lease);
    return;
  }
  if (vm->grant->node() != node.record.name()) return;
  if (!vm->grant->made()) {
    if (lease.state() == "starting") return;
    Batch batch;
    take_made(*vm, lease, batch);
    static_cast<void>(ledger_.commit(std::move(batch)).ok());
  }
  // A report that was on its way meanwhile tells what was before; the next one does not.
  const bool before = vm->resized && (lease.sms_asked() != vm->grant->sms() ||
                                      lease.memory_bytes() != vm->grant->memory_bytes());
  vm->resized = false;
  if (!before) *vm->grant->mutable_lease() = lease;
  if (lease.sessions() != 0) vm->used = clock_.now();
  measure(*vm, lease);
  hold(*vm);
  if (vm->absent && lease.state() != "lost") {
    vm->absent = false;
    drop_wish(*vm);
    note("gpu-back", node.record.name(), vm->spec.name(), "its node has it still");
  } else if (!vm->absent && lease.state() == "lost") {
    vm->absent = true;
    static_cast<void>(begin_wish(*vm, "its GPU is gone: " + lease.state_reason(), {}).ok());
  }
}

// A lease of ours that nobody here remembers: the state is older than the lease.
void Manager::take_unknown(NodeEntry& node, const std::string& id, const node::v1::Lease& lease) {
  const std::string name = label_of(lease, kVmLabel);
  Vm* vm = find_vm(name);
  Batch batch;
  if (vm == nullptr || vm->grant) {
    // One that goes on inventing leases does not fill the store.
    const auto known = std::count_if(endings_.begin(), endings_.end(), [&](const auto& entry) {
      return entry.second.ending.node() == node.record.name();
    });
    if (known >= kReportLeasesMax) return;
    state::Ending ending;
    ending.set_id(id);
    ending.set_vm(name);
    ending.set_node(node.record.name());
    ending.set_lease_name(lease.name());
    ending.set_reason("no VM has it");
    ending.set_at_ms(unix_milliseconds());
    batch.put("endings/" + id, ending);
    batch.event("lease-unknown", node.record.name(), name, "released: no VM has it");
    if (ledger_.commit(std::move(batch))) begin_ending(ending);
    return;
  }
  state::Grant grant;
  grant.set_id(id);
  grant.set_vm(vm->spec.name());
  grant.set_generation(vm->generation + 1);
  grant.set_node(node.record.name());
  grant.set_gpu(lease.gpu());
  grant.set_sms(lease.sms_asked());
  grant.set_memory_bytes(lease.memory_bytes());
  grant.set_made(true);
  *grant.mutable_lease() = lease;
  grant.set_at_ms(unix_milliseconds());
  grant.set_why("found on its node");
  batch.put("grants/" + vm->spec.name(), grant);
  if (vm->wish) batch.remove("wishes/" + vm->spec.name());
  batch.event("gpu-found", node.record.name(), vm->spec.name(), "its node had one for it");
  if (!ledger_.commit(std::move(batch))) return;
  if (vm->wish) {
    scheduler_.cancel(vm->wish_id);
    vm_of_id_.erase(vm->wish_id);
    vm->wish.reset();
  }
  ++vm->generation;
  vm_of_id_[id] = vm->spec.name();
  vm->grant = std::move(grant);
  vm->made = vm->used = clock_.now();
  hold(*vm);
}

void Manager::hold(const Vm& vm) {
  const state::Grant& grant = *vm.grant;
  const NodeEntry* node = find_node(grant.node());
  if (node == nullptr) return;
  placement::HeldLease held;
  if (grant.made()) {
    held = held_of(grant.id(), node->record, grant.lease());
  } else {
    held.id = grant.id();
    held.node = grant.node();
    held.gpu = grant.gpu();
    held.sms = grant.sms();
    if (grant.rest()) held.rest = true;
    held.memory_bytes = grant.memory_bytes();
    held.overhead_bytes = node->record.description().overhead_per_lease_bytes();
  }
  held.labels.insert(vm.spec.labels().begin(), vm.spec.labels().end());
  held.apart = apart_of(vm.spec);
  held.why = grant.why();
  const placement::HeldLease* now = scheduler_.map().lease(held.id);
  if (now != nullptr && now->gpu == held.gpu && now->sms == held.sms && now->rest == held.rest &&
      now->memory_bytes == held.memory_bytes && now->overhead_bytes == held.overhead_bytes) {
    return;
  }
  static_cast<void>(scheduler_.map().hold(held).ok());
}

// Leases that somebody made at the node itself take room, too.
void Manager::take_foreign(NodeEntry& node) {
  std::set<std::string> there;
  for (const node::v1::Lease& lease : node.report.leases()) {
    if (label_of(lease, kClusterLabel) == cluster_) continue;
    const std::string id = node.record.name() + "/" + lease.id();
    there.insert(id);
    const placement::HeldLease held = held_of(id, node.record, lease);
    const placement::HeldLease* now = scheduler_.map().lease(id);
    if (now != nullptr && now->gpu == held.gpu && now->sms == held.sms && now->rest == held.rest &&
        now->memory_bytes == held.memory_bytes) {
      continue;
    }
    static_cast<void>(scheduler_.map().hold(held).ok());
  }
  for (const std::string& id : node.foreign) {
    if (!there.contains(id)) scheduler_.map().release(id);
  }
  node.foreign = std::move(there);
}

void Manager::ask_for_missing(NodeEntry& node, const std::set<std::string>& seen) {
  const auto place = scheduler_.map().node(node.record.name());
  if (!place) return;
  const Instant now = clock_.now();
  for (const placement::HeldLease* held : scheduler_.map().leases_on(*place)) {
    if (seen.contains(held->id) || busy_.contains(held->id)) continue;
    Vm* vm = vm_of_grant(held->id);
    if (vm == nullptr || !vm->grant->made()) continue;
    if (now - vm->made < kReportAge || now - vm->tried < kAskAgain) continue;
    vm->tried = now;
    push({Job::Kind::kCheck, held->id});
  }
}

void Manager::lose_due() {
  const Instant now = clock_.now();
  const Duration limit = std::chrono::seconds(config_.lost_seconds);
  for (auto& [name, node] : nodes_) {
    if (!node.lost && now - node.last > limit) lose(node);
  }
  std::erase_if(misplaced_, [&](const auto& entry) { return now - entry.second.last > limit; });
}

// Its VMs wait for another one; if the node comes back first, they keep what they had.
void Manager::lose(NodeEntry& node) {
  const std::string& name = node.record.name();
  node.lost = true;
  ++counters_.nodes_lost;
  scheduler_.map().set_state(name, placement::NodeState::kLost);
  note("node-lost", name, "", "no report for " + seconds_text(config_.lost_seconds));
  const auto place = scheduler_.map().node(name);
  if (!place) return;
  std::vector<std::string> ids;
  for (const placement::HeldLease* held : scheduler_.map().leases_on(*place)) {
    ids.push_back(held->id);
  }
  for (const std::string& id : ids) {
    Vm* vm = vm_of_grant(id);
    if (vm == nullptr || vm->absent) continue;
    vm->absent = true;
    static_cast<void>(begin_wish(*vm, "node " + name + " is lost", {}).ok());
  }
  changed();
}

}  // namespace flyt::cluster
