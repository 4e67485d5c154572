#include "control/cluster/testing/fake_cluster.h"

#include <iterator>
#include <set>

#include "base/sm_cut.h"
#include "control/cluster/records.h"

namespace flyt::cluster::testing {
namespace {

constexpr std::uint32_t kGroupSms = 8;

Error gone() { return {ErrorCode::kLost, "the node does not answer"}; }

}  // namespace

Result<std::vector<StoreEntry>> MemoryStore::list(std::string_view prefix) {
  std::vector<StoreEntry> found;
  for (const auto& [key, entry] : entries_) {
    if (key.starts_with(prefix)) found.push_back(entry);
  }
  return found;
}

Result<std::uint64_t> MemoryStore::commit(std::span<const StoreCondition> conditions,
                                          std::span<const StoreChange> changes) {
  if (full_) return Error{ErrorCode::kSystem, "the disk is full"};
  if (!fuse_.step()) return Error{ErrorCode::kSystem, "dead"};
  for (const StoreCondition& condition : conditions) {
    const auto found = entries_.find(condition.key);
    if ((found == entries_.end() ? 0 : found->second.revision) == condition.revision) continue;
    return Error{ErrorCode::kDenied, condition.key + " was changed"};
  }
  std::uint64_t revision = 1;
  for (const auto& [key, entry] : entries_) revision = std::max(revision, entry.revision + 1);
  for (const StoreChange& change : changes) {
    if (change.value) {
      entries_[change.key] = {change.key, *change.value, revision};
    } else {
      entries_.erase(change.key);
    }
  }
  return revision;
}

v1::NodeReport FakeNode::report() const {
  v1::NodeReport report;
  report.set_name(name);
  report.set_address("unix:///" + name);
  report.set_host(name + "-host");
  report.set_instance("1");
  report.set_host_only(host_only);
  node::v1::NodeDescription& said = *report.mutable_description();
  said.set_name(name);
  said.set_leases_max(64);
  for (std::uint32_t index = 0; index < gpus; ++index) {
    node::v1::Gpu& gpu = *said.add_gpus();
    gpu.set_index(index);
    gpu.set_name("Soft GPU");
    gpu.set_mode(node::v1::MODE_ISOLATED);
    if (failed == index) gpu.set_failed("it is lost");
    if (failed == index && failed_before) continue;
    gpu.set_sms(groups * kGroupSms + rest);
    gpu.set_memory_bytes(memory);
    for (std::uint32_t i = 0; i < groups; ++i) gpu.add_groups()->set_sms(kGroupSms);
    gpu.set_rest_is_group(rest != 0);
    if (rest != 0) gpu.add_groups()->set_sms(rest);
  }
  for (const auto& [key, lease] : leases) *report.add_leases() = lease;
  return report;
}

bool FakeNode::fits(std::uint32_t gpu, std::uint32_t sms, std::uint64_t bytes,
                    const std::string& without) const {
  std::uint64_t used_sms = 0;
  std::uint64_t used_bytes = 0;
  for (const auto& [key, lease] : leases) {
    if (lease.gpu() != gpu || key == without) continue;
    used_sms += lease.sms_granted();
    used_bytes += lease.memory_bytes();
  }
  return gpu < gpus && used_sms + sms <= std::uint64_t{groups} * kGroupSms + rest &&
         used_bytes + bytes <= memory;
}

bool FakeNode::grant(node::v1::Lease& lease, std::uint32_t sms, std::uint64_t bytes) const {
  std::set<std::uint32_t> free;
  for (std::uint32_t group = 0; group < groups + (rest != 0 ? 1 : 0); ++group) free.insert(group);
  for (const auto& [name, other] : leases) {
    if (other.gpu() != lease.gpu() || name == lease.name()) continue;
    for (const std::uint32_t group : other.groups()) free.erase(group);
  }
  const SmCut cut{kGroupSms, groups, rest, rest != 0};
  const bool rest_free = free.erase(groups) != 0;
  const auto share = cut.share(sms, static_cast<std::uint32_t>(free.size()), rest_free);
  if (!share || !fits(lease.gpu(), cut.sms_of(*share), bytes, lease.name())) return false;
  lease.clear_groups();
  for (std::uint32_t i = 0; i < share->groups; ++i) lease.add_groups(*std::next(free.begin(), i));
  if (share->rest) lease.add_groups(groups);
  lease.set_sms_asked(sms);
  lease.set_sms_granted(cut.sms_of(*share));
  lease.set_memory_bytes(bytes);
  return true;
}

FakeNode& FakeNodes::add(const std::string& name) {
  FakeNode& node = nodes_["unix:///" + name];
  node.name = name;
  return node;
}

void FakeNodes::use(Duration time) {
  const auto us = static_cast<std::uint64_t>(time.count() / 1000);
  for (auto& [address, node] : nodes_) {
    for (auto& [name, lease] : node.leases) {
      lease.set_measured_microseconds(lease.measured_microseconds() + us);
      lease.set_busy_microseconds(lease.busy_microseconds() + us * node.busy_percent / 100);
    }
  }
}

Result<FakeNode*> FakeNodes::reach(const std::string& address) {
  const auto found = nodes_.find(address);
  if (found == nodes_.end() || !found->second.up || !fuse_.step()) return gone();
  return &found->second;
}

Result<FakeNode*> FakeNodes::reach(const std::string& address, const node::v1::Leader& leader) {
  const auto node = reach(address);
  if (!node || leader.epoch() == 0) return node;
  if (leader.epoch() < (*node)->epoch) {
    return Error{ErrorCode::kUnsupported, "a newer manager has asked"};
  }
  (*node)->epoch = leader.epoch();
  return node;
}

// The manager may die between what it asked for and the answer.
template <class T>
Result<T> FakeNodes::answer(const FakeNode& node, T value) const {
  if (!node.answers || fuse_.dead()) return gone();
  return value;
}

Result<node::v1::Lease> FakeNodes::create(const std::string& address,
                                          const node::v1::CreateLeaseRequest& request) {
  const auto node = reach(address, request.leader());
  if (!node) return node.error();
  FakeNode& there = **node;
  if (on_create) on_create();
  if (there.leases.contains(request.name())) {
    return Error{ErrorCode::kDenied, "there is a lease named " + request.name() + " already"};
  }
  node::v1::Lease lease;
  lease.set_id("lease-" + std::to_string(++made_));
  lease.set_name(request.name());
  lease.set_gpu(request.gpu());
  if (there.refuses || !there.grant(lease, request.sms(), request.memory_bytes())) {
    return Error{ErrorCode::kLimit, there.refusal};
  }
  lease.set_state("running");
  lease.set_confined(true);
  lease.add_urls("unix:///" + lease.id());
  *lease.mutable_labels() = request.labels();
  there.leases[request.name()] = lease;
  return answer(there, lease);
}

Result<node::v1::Lease> FakeNodes::resize(const std::string& address,
                                          const node::v1::ResizeLeaseRequest& request) {
  const auto node = reach(address, request.leader());
  if (!node) return node.error();
  FakeNode& there = **node;
  const auto found = there.leases.find(request.lease());
  if (found == there.leases.end()) return Error{ErrorCode::kNotFound, "there is no such lease"};
  const std::uint32_t asked = request.has_sms() ? request.sms() : found->second.sms_asked();
  const std::uint64_t memory =
      request.has_memory_bytes() ? request.memory_bytes() : found->second.memory_bytes();
  node::v1::Lease& lease = found->second;
  if (!there.grant(lease, asked, memory)) return Error{ErrorCode::kLimit, "there is no room"};
  return answer(there, lease);
}

Result<node::v1::Lease> FakeNodes::release(const std::string& address,
                                           const node::v1::ReleaseLeaseRequest& request) {
  const auto node = reach(address, request.leader());
  if (!node) return node.error();
  const auto found = (*node)->leases.find(request.lease());
  if (found == (*node)->leases.end()) {
    return Error{ErrorCode::kNotFound, "there is no such lease"};
  }
  const node::v1::Lease last = found->second;
  (*node)->leases.erase(found);
  return answer(**node, last);
}

Result<node::v1::Lease> FakeNodes::lease(const std::string& address, const std::string& lease) {
  const auto node = reach(address);
  if (!node) return node.error();
  const auto found = (*node)->leases.find(lease);
  if (found == (*node)->leases.end()) {
    return Error{ErrorCode::kNotFound, "there is no such lease"};
  }
  return answer(**node, found->second);
}

Result<node::v1::Token> FakeNodes::token(const std::string& address, const std::string& lease,
                                         std::uint32_t) {
  const auto node = reach(address);
  if (!node) return node.error();
  if (!(*node)->leases.contains(lease)) {
    return Error{ErrorCode::kNotFound, "there is no such lease"};
  }
  node::v1::Token token;
  token.set_token("token of " + lease);
  return answer(**node, token);
}

Result<node::v1::ListSessionsResponse> FakeNodes::sessions(const std::string& address) {
  const auto node = reach(address);
  if (!node) return node.error();
  return node::v1::ListSessionsResponse();
}

FakeCluster::FakeCluster(Config config) : config_(std::move(config)) { start(); }

FakeCluster::~FakeCluster() = default;

void FakeCluster::start() {
  manager_.reset();
  fuse.replace();
  manager_ = std::make_unique<Manager>(config_, Log("test", LogLevel::kOff),
                                       std::make_unique<MemoryStore>(entries, fuse, disk_full),
                                       nodes, clock);
  const Status status = manager_->start();
  FLYT_ASSERT(status.ok() || disk_full);
}

FakeNode& FakeCluster::add_node(const std::string& name) {
  FakeNode& node = nodes.add(name);
  FLYT_ASSERT(manager_->report(node.report()).ok());
  return node;
}

void FakeCluster::add_vm(const std::string& name, std::uint32_t sms, std::uint64_t memory) {
  v1::SetVmsRequest request;
  v1::VmSpec& spec = *request.add_vms();
  spec.set_name(name);
  spec.set_sms(sms);
  spec.set_memory_bytes(memory);
  FLYT_ASSERT(manager_->set_vms(request).ok());
}

void FakeCluster::report() {
  for (const auto& [address, node] : nodes.all()) {
    if (node.up) static_cast<void>(manager_->report(node.report()).ok());
  }
}

void FakeCluster::work() {
  while (const auto job = manager_->next_job(Duration(0))) manager_->run(*job);
}

void FakeCluster::live(std::uint32_t seconds) {
  for (std::uint32_t i = 0; i < seconds; ++i) {
    clock.pass(std::chrono::seconds(1));
    nodes.use(std::chrono::seconds(1));
    report();
    manager_->tick();
    work();
  }
}

v1::VirtualGpu FakeCluster::want(const std::string& vm) {
  v1::GpuRequest request;
  request.set_vm(vm);
  static_cast<void>(manager_->request(request).ok());
  work();
  return gpu(vm);
}

v1::VirtualGpu FakeCluster::gpu(const std::string& vm) {
  const auto gpu = manager_->gpu_of(vm);
  return gpu ? *gpu : v1::VirtualGpu();
}

std::string audit_leases(const Entries& entries, const FakeNodes& nodes) {
  std::set<std::string> known;
  for (const auto& [key, entry] : entries) {
    state::Grant grant;
    if (key.starts_with("grants/") && grant.ParseFromString(entry.value)) known.insert(grant.id());
    if (key.starts_with("endings/")) known.insert(key.substr(8));
  }
  for (const auto& [address, node] : nodes.all()) {
    for (const auto& [name, lease] : node.leases) {
      const std::string id = label_of(lease, kGrantLabel);
      if (!id.empty() && !known.contains(id)) return "the store forgot lease " + name;
    }
    for (std::uint32_t gpu = 0; gpu < node.gpus; ++gpu) {
      if (!node.fits(gpu, 0, 0, "")) return "node " + node.name + " gave out too much";
    }
  }
  return {};
}

std::string audit_quiet_leases(const Entries& entries, const FakeNodes& nodes, Manager& manager) {
  std::map<std::string, std::string> leases;  // Node and name of each VM's lease.
  for (const auto& [address, node] : nodes.all()) {
    for (const auto& [name, lease] : node.leases) {
      const std::string vm = label_of(lease, kVmLabel);
      if (vm.empty()) continue;
      if (!leases.emplace(vm, node.name + " " + name).second) return "VM " + vm + " has two leases";
    }
  }
  std::size_t grants = 0;
  for (const auto& [key, entry] : entries) {
    if (key.starts_with("endings/")) return "an ending is left: " + key;
    state::Grant grant;
    if (!key.starts_with("grants/") || !grant.ParseFromString(entry.value)) continue;
    ++grants;
    const std::string wanted = grant.node() + " " + lease_name_of(grant.vm(), grant.id());
    const auto lease = leases.find(grant.vm());
    if (lease == leases.end() || lease->second != wanted) return "no lease of grant " + wanted;
    const auto gpu = manager.gpu_of(grant.vm());
    if (!gpu || gpu->phase() != v1::PHASE_READY) return "VM " + grant.vm() + " is not ready";
  }
  if (grants != leases.size()) return "there are leases without a grant";
  return audit_leases(entries, nodes);
}

}  // namespace flyt::cluster::testing
