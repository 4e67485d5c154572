// What a cluster manager tells about nodes, VMs and leases.
#include <algorithm>

#include "base/wall_clock.h"
#include "control/cluster/manager.h"
#include "control/cluster/records.h"

namespace flyt::cluster {

v1::VirtualGpu Manager::view(const Vm& vm) const {
  v1::VirtualGpu gpu;
  gpu.set_vm(vm.spec.name());
  gpu.set_phase(v1::PHASE_NONE);
  gpu.set_keep_seconds(config_.keep_seconds);
  gpu.set_generation(vm.generation);
  gpu.set_reason(vm.reason);
  if (vm.wish) {
    gpu.set_phase(v1::PHASE_WAITING);
    gpu.set_since_ms(vm.wish->since_ms());
    const auto ahead = scheduler_.ahead(vm.wish_id);
    gpu.set_ahead(ahead ? static_cast<std::uint32_t>(*ahead) : 0);
    const placement::Waiting* waits = scheduler_.waiting(vm.wish_id);
    if (vm.reason.empty() && waits != nullptr) {
      std::string why = out_of_reach(vm);
      if (why.empty()) {
        why = scheduler_.map().possible(waits->request)
                  ? "no GPU has room for it"
                  : "no GPU of the cluster could ever take it";
      }
      gpu.set_reason(std::move(why));
    }
  }
  if (!vm.grant || vm.absent) return gpu;
  const state::Grant& grant = *vm.grant;
  gpu.set_phase(grant.made() ? v1::PHASE_READY : v1::PHASE_STARTING);
  gpu.set_since_ms(grant.at_ms());
  gpu.set_node(grant.node());
  gpu.set_gpu(grant.gpu());
  gpu.set_sms_asked(grant.sms());
  gpu.set_memory_bytes(grant.memory_bytes());
  const NodeEntry* node = find_node(grant.node());
  if (node != nullptr) {
    gpu.set_host(node->record.host());
    for (const node::v1::Gpu& one : node->record.description().gpus()) {
      if (one.index() == grant.gpu()) gpu.set_gpu_name(one.name());
    }
  }
  if (!grant.made()) return gpu;
  const node::v1::Lease& lease = grant.lease();
  gpu.set_lease_id(lease.id());
  gpu.set_sms_granted(lease.sms_granted());
  gpu.set_memory_bytes(lease.memory_bytes());
  *gpu.mutable_urls() = lease.urls();
  if (lease.state() != "running") gpu.set_reason(lease.state() + ": " + lease.state_reason());
  return gpu;
}

v1::Vm Manager::view_of_vm(const Vm& vm) const {
  v1::Vm one;
  *one.mutable_spec() = vm.spec;
  *one.mutable_gpu() = view(vm);
  if (!ready(vm)) return one;
  one.set_sessions(vm.grant->lease().sessions());
  one.set_memory_used_bytes(vm.grant->lease().memory_used_bytes());
  if (const auto use = vm.scaler.use(rules_, clock_.now())) {
    one.set_busy_percent(use->busy_percent);
    one.set_queued_percent(use->queued_percent);
  }
  return one;
}

v1::Node Manager::view_of_node(const NodeEntry& node) const {
  v1::Node one;
  one.set_name(node.record.name());
  one.set_state(state_of(node));
  one.set_address(node.record.address());
  one.set_host(node.record.host());
  one.set_reported_at_ms(node.last_ms);
  one.set_cordoned(node.record.cordoned());
  one.set_draining(node.record.draining());
  const bool heard = node.heard;
  *one.mutable_description() = heard ? node.report.description() : node.record.description();
  *one.mutable_problems() = node.report.problems();
  if (node.lost) one.set_reason("it has not reported for too long");
  if (!node.lost && !heard) one.set_reason("it has not reported since the manager started");
  if (heard && node.report.description().draining()) one.set_reason("drained at the node itself");
  const auto place = scheduler_.map().node(node.record.name());
  if (!place) return one;
  std::uint32_t leases = 0;
  for (const placement::HeldLease* held : scheduler_.map().leases_on(*place)) {
    leases += node.foreign.contains(held->id) ? 0 : 1;
  }
  one.set_leases(leases);
  return one;
}

v1::ClusterLease Manager::view_of_grant(const Vm& vm) const {
  v1::ClusterLease one;
  one.set_vm(vm.spec.name());
  one.set_node(vm.grant->node());
  one.set_state(vm.absent ? "lost" : vm.grant->made() ? "ready" : "starting");
  one.set_reason(vm.absent ? vm.reason : vm.grant->lease().state_reason());
  one.set_generation(vm.grant->generation());
  *one.mutable_lease() = vm.grant->lease();
  if (vm.grant->made()) return one;
  node::v1::Lease& lease = *one.mutable_lease();
  lease.set_name(lease_name_of(vm.grant->vm(), vm.grant->id()));
  lease.set_gpu(vm.grant->gpu());
  lease.set_sms_asked(vm.grant->sms());
  lease.set_memory_bytes(vm.grant->memory_bytes());
  return one;
}

v1::ClusterDescription Manager::describe() {
  const Lock lock(mutex_);
  v1::ClusterDescription all;
  all.set_cluster(cluster_);
  all.set_policy(config_.policy);
  all.set_revision(revision_);
  all.set_nodes(static_cast<std::uint32_t>(nodes_.size()));
  all.set_vms(static_cast<std::uint32_t>(vms_.size()));
  all.set_waiting(static_cast<std::uint32_t>(scheduler_.queue().size()));
  std::uint32_t usable = 0;
  std::uint32_t gpus = 0;
  for (const auto& [name, node] : nodes_) {
    usable += state_of(node) == v1::NODE_READY ? 1 : 0;
    gpus += static_cast<std::uint32_t>(node.record.description().gpus_size());
  }
  std::uint32_t leases = 0;
  for (const auto& [name, vm] : vms_) leases += vm.grant ? 1 : 0;
  all.set_nodes_ready(usable);
  all.set_gpus(gpus);
  all.set_leases(leases);
  return all;
}

Result<v1::ListNodesResponse> Manager::nodes(const std::string& name) {
  const Lock lock(mutex_);
  v1::ListNodesResponse reply;
  for (const auto& [key, node] : nodes_) {
    if (name.empty() || name == key) *reply.add_nodes() = view_of_node(node);
  }
  if (name.empty() || reply.nodes_size() != 0) return reply;
  return need_node(name).error();
}

Result<v1::ListVmsResponse> Manager::vms(const std::string& name) {
  const Lock lock(mutex_);
  v1::ListVmsResponse reply;
  if (!name.empty()) {
    const auto vm = need_vm(name);
    if (!vm) return vm.error();
    *reply.add_vms() = view_of_vm(**vm);
    return reply;
  }
  for (const auto& [key, vm] : vms_) *reply.add_vms() = view_of_vm(vm);
  return reply;
}

Result<v1::ListClusterLeasesResponse> Manager::leases(const std::string& name,
                                                      const std::string& node) {
  const Lock lock(mutex_);
  std::string wanted;
  if (!name.empty()) {
    const auto vm = need_vm(name);
    if (!vm) return vm.error();
    wanted = (*vm)->spec.name();
  }
  v1::ListClusterLeasesResponse reply;
  const auto add = [&](v1::ClusterLease lease) {
    if (!wanted.empty() && lease.vm() != wanted) return;
    if (!node.empty() && lease.node() != node) return;
    *reply.add_leases() = std::move(lease);
  };
  for (const auto& [key, vm] : vms_) {
    if (vm.grant) add(view_of_grant(vm));
  }
  for (const auto& [id, entry] : endings_) {
    v1::ClusterLease one;
    one.set_vm(entry.ending.vm());
    one.set_node(entry.ending.node());
    one.set_state("ending");
    one.set_reason(entry.ending.reason() +
                   (entry.trouble.empty() ? "" : "; not over yet: " + entry.trouble));
    one.mutable_lease()->set_name(entry.ending.lease_name());
    add(std::move(one));
  }
  for (const auto& [key, entry] : nodes_) {
    for (const node::v1::Lease& lease : entry.report.leases()) {
      if (label_of(lease, kClusterLabel) == cluster_) continue;
      v1::ClusterLease one;
      one.set_node(key);
      one.set_state("foreign");
      *one.mutable_lease() = lease;
      add(std::move(one));
    }
  }
  // There may be leases of a node that is not there any more.
  if (reply.leases_size() == 0 && !node.empty()) {
    if (Status known = need_node(node); !known) return known.error();
  }
  return reply;
}

Result<v1::ListClusterSessionsResponse> Manager::sessions(const std::string& name,
                                                          const std::string& node) {
  std::map<std::string, std::string> addresses;
  std::map<std::string, std::string> vm_of_lease;
  {
    const Lock lock(mutex_);
    std::string wanted;
    if (!name.empty()) {
      const auto vm = need_vm(name);
      if (!vm) return vm.error();
      wanted = (*vm)->spec.name();
    }
    if (!node.empty()) {
      if (Status known = need_node(node); !known) return known.error();
    }
    for (const auto& [key, vm] : vms_) {
      if (!vm.grant || (!wanted.empty() && wanted != key)) continue;
      if (!node.empty() && vm.grant->node() != node) continue;
      const NodeEntry* entry = find_node(vm.grant->node());
      if (entry == nullptr || entry->lost) continue;
      addresses[vm.grant->node()] = entry->record.address();
      vm_of_lease[vm.grant->lease().id()] = key;
    }
  }
  v1::ListClusterSessionsResponse reply;
  for (const auto& [key, address] : addresses) {
    const auto answer = calls_.sessions(address);
    if (!answer) {
      reply.add_problems("node " + key + ": " + answer.error().message);
      continue;
    }
    for (const node::v1::Session& session : answer->sessions()) {
      const auto vm = vm_of_lease.find(session.lease_id());
      if (vm == vm_of_lease.end()) continue;
      v1::ClusterSession& one = *reply.add_sessions();
      one.set_vm(vm->second);
      one.set_node(key);
      *one.mutable_session() = session;
    }
  }
  return reply;
}

Result<v1::Explanation> Manager::explain(const std::string& name) {
  const Lock lock(mutex_);
  const auto found = need_vm(name);
  if (!found) return found.error();
  const Vm& vm = **found;
  v1::Explanation out;
  out.set_vm(vm.spec.name());
  const v1::VirtualGpu gpu = view(vm);
  out.set_phase(gpu.phase());
  out.set_at_ms(gpu.since_ms());
  placement::Explanation told;
  if (vm.grant && !vm.absent) {
    told = scheduler_.explain(vm.grant->id());
  } else if (vm.wish) {
    if (!vm.reason.empty()) out.add_lines(vm.reason);
    told = scheduler_.explain(vm.wish_id);
  } else {
    out.add_lines("it has no virtual GPU and asks for none; this is what it would get:");
    told = scheduler_.what_if(request_for(vm, "what-if"));
  }
  out.add_lines(told.text);
  for (const placement::NodeAnswer& answer : told.nodes) {
    out.add_lines(answer.node + ": " + answer.text);
  }
  explain_scaling(vm, out);
  if (listed(vm)) out.add_lines("its host, multiprocessors and memory come from MongoDB");
  return out;
}

std::vector<std::string> Manager::problems() {
  const Lock lock(mutex_);
  std::vector<std::string> problems = expiry_.problems(unix_seconds());
  if (!ledger_.problem().empty()) problems.push_back(ledger_.problem());
  add_requirements_problems(problems);
  for (const auto& [name, node] : nodes_) {
    if (node.lost) problems.push_back("node " + name + " is lost");
    if (!node.lost && !node.heard) problems.push_back("node " + name + " has not reported yet");
    for (const std::string& problem : node.report.problems()) {
      if (!node.lost) problems.push_back("node " + name + ": " + problem);
    }
  }
  for (const auto& [name, one] : misplaced_) {
    problems.push_back("node " + name + " is refused: " + one.why);
  }
  return problems;
}

bool Manager::writable() {
  const Lock lock(mutex_);
  return ledger_.problem().empty();
}

std::vector<v1::ClusterEvent> Manager::events(std::uint64_t after) {
  const Lock lock(mutex_);
  return ledger_.events(after);
}

std::vector<v1::AuditEntry> Manager::audits(std::uint64_t after) {
  const Lock lock(mutex_);
  return ledger_.audits(after);
}

Status Manager::audit(v1::AuditEntry entry) {
  const Lock lock(mutex_);
  return ledger_.audit(std::move(entry));
}

ClusterCounters Manager::counters() {
  const Lock lock(mutex_);
  return counters_;
}

}  // namespace flyt::cluster
