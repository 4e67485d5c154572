#include "control/cluster/manager.h"

#include <algorithm>

#include "base/text.h"
#include "control/cluster/records.h"

namespace flyt::cluster {
namespace {

constexpr int kVmsOfOneRequestMax = 10000;
// So that nobody waits for long while many ask at once.
constexpr std::size_t kAskedAtOnceMax = 512;
// A machine's manager watches once, or twice while it connects again; no machine keeps others out.
constexpr std::uint32_t kWatchersOfVmMax = 16;

Error no_vm(std::string_view name) {
  return {ErrorCode::kNotFound, "there is no VM " + plain_text(name, kTextBytesMax) +
                                    "; flytctl vm set makes one, flytctl vms lists them"};
}

Error no_node(const std::string& name) {
  return {ErrorCode::kNotFound,
          "there is no node " + plain_text(name, kTextBytesMax) + "; flytctl nodes lists them"};
}

}  // namespace

Manager::Manager(Config config, const Log& log, std::unique_ptr<Store> store, NodeCalls& calls,
                 const Clock& clock)
    : config_(std::move(config)),
      rules_(scaling_rules(config_)),
      log_(log),
      expiry_({config_.cert, config_.ca}),
      calls_(calls),
      clock_(clock),
      ledger_(std::move(store), log, config_.events_max, config_.audit_max) {}

Manager::~Manager() = default;

void Manager::stop() {
  {
    const Lock lock(mutex_);
    if (!stopping_) note("manager-stopped", "", "", "virtual GPUs go on");
  }
  retire();
}

void Manager::retire() {
  const Lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  work_.notify_all();
  idle_.notify_all();
}

bool Manager::stopping() {
  const Lock lock(mutex_);
  return stopping_;
}

bool Manager::decides() {
  const Lock lock(mutex_);
  return !stopping_ && ledger_.mine();
}

std::string Manager::problem() {
  const Lock lock(mutex_);
  return ledger_.problem();
}

void Manager::note(std::string_view kind, std::string_view node, std::string_view vm,
                   std::string text) {
  Batch batch;
  batch.event(kind, node, vm, std::move(text));
  static_cast<void>(ledger_.commit(std::move(batch)).ok());
  changed();
}

void Manager::changed() {
  ++revision_;
  changed_.notify_all();
}

std::uint64_t Manager::wait_for_change(std::uint64_t revision, Duration patience) {
  std::unique_lock<Mutex> lock(mutex_);
  static_cast<void>(changed_.wait_for(
      lock, patience, [this, revision] { return stopping_ || revision_ > revision; }));
  return revision_;
}

Manager::Vm* Manager::find_vm(std::string_view name) {
  if (const auto found = vms_.find(name); found != vms_.end()) return &found->second;
  const auto address = addresses_.find(name);
  if (address == addresses_.end()) return nullptr;
  const auto found = vms_.find(address->second);
  return found == vms_.end() ? nullptr : &found->second;
}

Result<Manager::Vm*> Manager::need_vm(std::string_view name) {
  if (Vm* vm = find_vm(name)) return vm;
  return no_vm(name);
}

Status Manager::need_node(const std::string& name) {
  return find_node(name) != nullptr ? Status() : no_node(name);
}

Manager::Vm* Manager::vm_of_grant(const std::string& id) {
  const auto name = vm_of_id_.find(id);
  if (name == vm_of_id_.end()) return nullptr;
  Vm* vm = find_vm(name->second);
  return vm != nullptr && vm->grant && vm->grant->id() == id ? vm : nullptr;
}

node::v1::Leader Manager::as_leader() const {
  node::v1::Leader leader;
  if (epoch_ == 0) return leader;
  leader.set_cluster(cluster_);
  leader.set_epoch(epoch_);
  return leader;
}

Manager::NodeEntry* Manager::find_node(std::string_view name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

const Manager::NodeEntry* Manager::find_node(std::string_view name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

bool Manager::ready(const Vm& vm) const { return vm.grant && vm.grant->made() && !vm.absent; }

Result<v1::VirtualGpu> Manager::request(const v1::GpuRequest& request) {
  if (Status status = check_request(request); !status) return status.error();
  Asking asking{.request = request, .status = {}, .gpu = {}, .address = {}, .lease = {}};
  asked_.join(asking, kAskedAtOnceMax, [this](const std::vector<Asking*>& all) {
    const Lock lock(mutex_);
    answer(all);
  });
  if (!asking.status) return asking.status.error();
  if (asking.lease.empty() || !request.token()) return asking.gpu;
  const auto token = calls_.token(asking.address, asking.lease, request.token_seconds());
  if (token) {
    asking.gpu.set_token(token->token());
    asking.gpu.set_token_expires_at(token->expires_at());
    return asking.gpu;
  }
  const Lock lock(mutex_);
  Vm* vm = find_vm(asking.gpu.vm());
  const bool same = vm != nullptr && vm->grant && vm->grant->lease().name() == asking.lease;
  if (token.error().code != ErrorCode::kNotFound || !same) return token.error();
  lose_lease(*vm, "its node has it no longer");
  return view(*vm);
}

Result<v1::VirtualGpu> Manager::gpu_of(const std::string& name) {
  const Lock lock(mutex_);
  const auto vm = need_vm(name);
  if (!vm) return vm.error();
  return view(**vm);
}

Status Manager::watch(const std::string& name, bool begin) {
  const Lock lock(mutex_);
  const auto found = need_vm(name);
  if (!found) return found.error();
  Vm& vm = **found;
  if (!begin && vm.watchers == 0) return {};
  if (begin && vm.watchers >= kWatchersOfVmMax) {
    return Error{ErrorCode::kLimit, "too many watch VM " + vm.spec.name() + " already"};
  }
  vm.watchers += begin ? 1 : -1;
  vm.wish_until = clock_.now() + std::chrono::seconds(config_.keep_seconds);
  return {};
}

Result<v1::VirtualGpu> Manager::release(const std::string& name, const std::string& why) {
  const Lock lock(mutex_);
  const auto found = need_vm(name);
  if (!found) return found.error();
  Vm& vm = **found;
  Batch batch;
  if (vm.wish) batch.remove("wishes/" + vm.spec.name());
  const Status status = vm.grant ? end_grant(vm, "gpu-released", why, std::move(batch))
                                 : ledger_.commit(std::move(batch));
  if (!status) return status.error();
  if (vm.wish) {
    forget_wish(vm);
    place();
  }
  vm.reason.clear();
  changed();
  return view(vm);
}

void Manager::set_spec(const v1::VmSpec& spec) {
  Vm& vm = vms_[spec.name()];
  if (!vm.spec.address().empty()) addresses_.erase(vm.spec.address());
  vm.spec = spec;
  if (!spec.address().empty()) addresses_[spec.address()] = spec.name();
}

Result<v1::VmSpec> Manager::spec_after(const v1::VmSpec& wanted, const v1::SetVmsRequest& request) {
  v1::VmSpec spec = wanted;
  const Vm* vm = find_vm(wanted.name());
  if (vm != nullptr && request.fields_size() != 0) {
    spec = vm->spec;
    if (Status status = merge(wanted, request.fields(), spec); !status) return status.error();
    spec.set_name(vm->spec.name());
  }
  spec.clear_source();
  if (vm != nullptr && listed(*vm)) {
    spec.set_source(vm->spec.source());
    if (Status status = check_listed(*vm, spec); !status) return status.error();
  }
  if (Status status = check_spec(spec); !status) return status.error();
  if (Status status = check_names(spec); !status) return status.error();
  return spec;
}

Status Manager::check_names(const v1::VmSpec& spec) const {
  const auto address = addresses_.find(spec.address());
  if (!spec.address().empty() && address != addresses_.end() && address->second != spec.name()) {
    return Error{ErrorCode::kDenied,
                 "VM " + address->second + " has the address " + spec.address() + " already"};
  }
  const bool taken = vms_.contains(spec.address()) && spec.address() != spec.name();
  if (taken || addresses_.contains(spec.name())) {
    return Error{ErrorCode::kDenied, "one VM's name would be another one's address"};
  }
  return {};
}

Result<v1::ListVmsResponse> Manager::set_vms(const v1::SetVmsRequest& request) {
  const Lock lock(mutex_);
  if (request.vms_size() == 0 || request.vms_size() > kVmsOfOneRequestMax) {
    return Error{ErrorCode::kInvalid, "a request sets 1 to 10000 VMs"};
  }
  Batch batch;
  std::vector<v1::VmSpec> specs;
  std::set<std::string> seen;
  for (const v1::VmSpec& wanted : request.vms()) {
    auto spec = spec_after(wanted, request);
    if (!spec) return std::move(spec).error();
    const bool twice = !seen.insert(spec->name()).second ||
                       (!spec->address().empty() && !seen.insert(spec->address()).second);
    if (twice) return Error{ErrorCode::kInvalid, "VM " + spec->name() + " is there twice"};
    const Vm* vm = find_vm(spec->name());
    batch.put("vms/" + spec->name(), *spec);
    batch.event(vm == nullptr ? "vm-added" : "vm-changed", "", spec->name(), text_of(*spec));
    specs.push_back(std::move(*spec));
  }
  if (vms_.size() + specs.size() > kVmsMax) {
    return Error{ErrorCode::kLimit, "there are too many VMs"};
  }
  if (Status status = ledger_.commit(std::move(batch)); !status) return status.error();
  v1::ListVmsResponse reply;
  for (const v1::VmSpec& spec : specs) {
    set_spec(spec);
    Vm& vm = *find_vm(spec.name());
    if (vm.wish) queue_again(vm);
    *reply.add_vms() = view_of_vm(vm);
  }
  place();
  changed();
  return reply;
}

Result<v1::Vm> Manager::remove_vm(const std::string& name, bool force) {
  const Lock lock(mutex_);
  const auto found = need_vm(name);
  if (!found) return found.error();
  Vm& vm = **found;
  const v1::Vm last = view_of_vm(vm);
  const std::string id = vm.spec.name();
  if (listed(vm) && !requirements_.gone.contains(id)) {
    return Error{ErrorCode::kUnsupported,
                 "VM " + id + " comes from MongoDB: remove it there, and it goes here, too"};
  }
  if (vm.grant && !force) {
    return Error{ErrorCode::kUnsupported,
                 "VM " + id + " has a virtual GPU; release it first, or use --force"};
  }
  Batch batch;
  plan_removal(vm, "", batch);
  const Status status = vm.grant
                            ? end_grant(vm, "gpu-released", "its VM was removed", std::move(batch))
                            : ledger_.commit(std::move(batch));
  if (!status) return status.error();
  forget_vm(id);
  place();
  changed();
  return last;
}

void Manager::plan_removal(const Vm& vm, std::string text, Batch& batch) {
  const std::string& id = vm.spec.name();
  batch.remove("vms/" + id);
  if (vm.generation != 0) batch.remove("generations/" + id);
  if (vm.wish) batch.remove("wishes/" + id);
  batch.event("vm-removed", "", id, std::move(text));
}

void Manager::forget_vm(const std::string& name) {
  const Vm& vm = vms_.at(name);
  if (vm.wish) {
    scheduler_.cancel(vm.wish_id);
    vm_of_id_.erase(vm.wish_id);
  }
  if (!vm.spec.address().empty()) addresses_.erase(vm.spec.address());
  vms_.erase(name);
}

Result<v1::Vm> Manager::resize(const v1::ResizeVmRequest& request) {
  v1::VmSpec after;
  std::string id;
  node::v1::ResizeLeaseRequest wanted;
  std::string address;
  {
    const Lock lock(mutex_);
    const auto found = need_vm(request.vm());
    if (!found) return found.error();
    after = (*found)->spec;
    if (request.has_sms()) after.set_sms(request.sms());
    if (request.has_memory_bytes()) after.set_memory_bytes(request.memory_bytes());
    if (Status status = check_spec(after); !status) return status.error();
    if (!(*found)->grant || (*found)->absent) return resize_waiting(**found, after);
    // What use has given it is not taken back by a change of its memory.
    v1::VmSpec there = after;
    if (scales(**found) && !request.has_sms()) there.set_sms((*found)->grant->sms());
    auto begun = begin_resize(after.name(), there);
    if (!begun) return std::move(begun).error();
    id = std::move(*begun);
    const state::Grant& grant = *find_vm(after.name())->grant;
    wanted.set_lease(grant.lease().name());
    wanted.set_sms(there.sms());
    wanted.set_memory_bytes(after.memory_bytes());
    *wanted.mutable_leader() = as_leader();
    address = find_node(grant.node())->record.address();
  }
  const auto lease = calls_.resize(address, wanted);
  return end_resize(id, after, lease);
}

Result<v1::Vm> Manager::resize_waiting(Vm& vm, const v1::VmSpec& after) {
  if (listed(vm)) {
    if (Status status = check_listed(vm, after); !status) return status.error();
  }
  Batch batch;
  batch.put("vms/" + after.name(), after);
  batch.event("vm-changed", "", after.name(), "for its next virtual GPU");
  if (Status status = ledger_.commit(std::move(batch)); !status) return status.error();
  set_spec(after);
  if (vm.wish) queue_again(vm);
  place();
  changed();
  return view_of_vm(vm);
}

// The grant is busy from now on; what it grows by is its own.
Result<std::string> Manager::begin_resize(const std::string& name, const v1::VmSpec& after) {
  Vm* vm = find_vm(name);
  for (; vm != nullptr && vm->grant && busy_.contains(vm->grant->id()); vm = find_vm(name)) {
    if (stopping_) return Error{ErrorCode::kLost, "the cluster manager is stopping"};
    idle_.wait(mutex_);
  }
  if (vm == nullptr) return no_vm(name);
  if (!ledger_.mine()) return Error{ErrorCode::kLost, "this cluster manager does not decide now"};
  if (!ready(*vm)) {
    return Error{ErrorCode::kUnsupported, "VM " + name +
                                              " is being given its virtual GPU; try"
                                              " again when it has it"};
  }
  const std::string id = vm->grant->id();
  placement::ClusterMap& map = scheduler_.map();
  auto resized = map.resized(id, after.sms(), after.memory_bytes());
  if (!resized) return std::move(resized).error();
  if (Status status = map.hold(map.changing(*resized)); !status) return status.error();
  busy_.insert(id);
  return id;
}

Result<v1::Vm> Manager::end_resize(const std::string& id, const v1::VmSpec& after,
                                   const Result<node::v1::Lease>& lease) {
  const Lock lock(mutex_);
  busy_.erase(id);
  idle_.notify_all();
  Vm* vm = vm_of_grant(id);
  if (vm == nullptr) {
    if (endings_.contains(id)) push({Job::Kind::kEnd, id});
    return Error{ErrorCode::kUnsupported, "the virtual GPU was given back meanwhile"};
  }
  if (!lease) {
    hold(*vm);
    place();
    return Error{lease.error().code, "node " + vm->grant->node() + ": " + lease.error().message};
  }
  v1::VmSpec spec = vm->spec;
  // What a VM gets next is its database's to say, where it has one.
  if (!listed(*vm)) {
    spec.set_sms(after.sms());
    spec.set_memory_bytes(after.memory_bytes());
  }
  const Status status = keep_resized(*vm, *lease, spec, "gpu-resized",
                                     std::to_string(lease->sms_granted()) + " multiprocessors, " +
                                         size_text(lease->memory_bytes()));
  if (status) return view_of_vm(*vm);
  return Error{status.error().code,
               "its node has resized it, and that cannot be written: " + status.error().message};
}

Status Manager::keep_resized(Vm& vm, const node::v1::Lease& lease, const v1::VmSpec& spec,
                             std::string_view kind, std::string text) {
  node::v1::NodeDescription& shown = *find_node(vm.grant->node())->report.mutable_description();
  show_lease(vm.grant->lease(), false, shown);
  show_lease(lease, true, shown);
  *vm.grant->mutable_lease() = lease;
  state::Grant grant = *vm.grant;
  grant.set_sms(lease.sms_asked());
  grant.set_memory_bytes(lease.memory_bytes());
  Batch batch;
  batch.put("vms/" + spec.name(), spec);
  batch.put("grants/" + spec.name(), grant);
  batch.event(kind, grant.node(), spec.name(), std::move(text));
  Status status = ledger_.commit(std::move(batch));
  if (status) {
    vm.grant = std::move(grant);
    vm.resized = true;
    set_spec(spec);
  }
  vm.scaler.settle(clock_.now());
  hold(vm);
  place();
  changed();
  return status;
}

Result<v1::Node> Manager::set_node(const v1::SetNodeRequest& request) {
  const Lock lock(mutex_);
  NodeEntry* node = find_node(request.node());
  if (node == nullptr) return no_node(request.node());
  state::NodeRecord record = node->record;
  if (request.has_cordoned()) record.set_cordoned(request.cordoned());
  if (request.has_draining()) record.set_draining(request.draining());
  const bool open = !record.cordoned() && !record.draining();
  Batch batch;
  batch.put("nodes/" + record.name(), record);
  batch.event(record.draining() ? "node-draining"
              : open            ? "node-open"
                                : "node-cordoned",
              record.name(), "",
              open ? "new virtual GPUs come here again" : "no new virtual GPUs come here");
  if (Status status = ledger_.commit(std::move(batch)); !status) return status.error();
  node->record = std::move(record);
  scheduler_.map().set_state(node->record.name(), placement_state(*node));
  place();
  changed();
  return view_of_node(*node);
}

Result<v1::Node> Manager::remove_node(const std::string& name) {
  const Lock lock(mutex_);
  NodeEntry* node = find_node(name);
  if (node == nullptr) return no_node(name);
  if (!node->lost) {
    return Error{ErrorCode::kUnsupported,
                 "node " + name + " is not lost: stop its flyt-node-manager first"};
  }
  const v1::Node last = view_of_node(*node);
  Batch batch;
  batch.remove("nodes/" + name);
  batch.event("node-removed", name, "", "");
  std::vector<Vm*> losers;
  for (auto& [vm_name, vm] : vms_) {
    if (!vm.grant || vm.grant->node() != name) continue;
    if (busy_.contains(vm.grant->id())) {
      return Error{ErrorCode::kUnsupported, "the node is being asked something; try again"};
    }
    batch.remove("grants/" + vm_name);
    losers.push_back(&vm);
  }
  for (const auto& [id, entry] : endings_) {
    if (entry.ending.node() == name) batch.remove("endings/" + id);
  }
  if (Status status = ledger_.commit(std::move(batch)); !status) return status.error();
  for (Vm* vm : losers) forget_grant(*vm);
  std::erase_if(endings_, [&](const auto& entry) { return entry.second.ending.node() == name; });
  scheduler_.map().remove_node(name);
  nodes_.erase(name);
  places_.remove(name);
  drop_out_of_reach();
  place();
  changed();
  return last;
}

}  // namespace flyt::cluster
