// Virtual GPUs that grow and shrink by how much they are used.
#include "base/text.h"
#include "control/cluster/manager.h"
#include "control/cluster/records.h"

namespace flyt::cluster {

using Step = scaling::Decision::Step;

bool Manager::scales(const Vm& vm) const { return vm.spec.sms_max() != 0; }

void Manager::measure(Vm& vm, const node::v1::Lease& lease) {
  vm.scaler.take(
      rules_,
      {lease.measured_microseconds(), lease.busy_microseconds(), lease.queued_microseconds()},
      clock_.now());
}

// None where more or fewer multiprocessors would change nothing.
std::optional<scaling::Size> Manager::size_of(const Vm& vm) const {
  const node::v1::Lease& lease = vm.grant->lease();
  if (!lease.confined()) return std::nullopt;
  scaling::Size size{.asked = vm.grant->sms(),
                     .granted = lease.sms_granted(),
                     .group = 1,
                     .least = vm.spec.sms_min(),
                     .most = vm.spec.sms_max()};
  const NodeEntry* node = find_node(vm.grant->node());
  if (node == nullptr) return std::nullopt;
  for (const node::v1::Gpu& gpu : node->record.description().gpus()) {
    if (gpu.index() == lease.gpu() && gpu.groups_size() != 0) size.group = gpu.groups(0).sms();
  }
  return size;
}

void Manager::scales_due() {
  const Instant now = clock_.now();
  for (auto& [name, vm] : vms_) {
    if (!scales(vm) || !ready(vm) || busy_.contains(vm.grant->id())) continue;
    const NodeEntry* node = find_node(vm.grant->node());
    const auto size = size_of(vm);
    if (node == nullptr || !node->heard || node->lost || !size) continue;
    scaling::Decision decision = vm.scaler.decide(rules_, *size, now);
    if (decision.step == Step::kHold) continue;
    vm.scale = std::move(decision);
    // Whatever becomes of it, the next one is not before the cool-down is over.
    vm.scaler.settle(now);
    push({Job::Kind::kScale, vm.grant->id()});
  }
}

void Manager::scale(const std::string& id) {
  std::string node;
  std::string address;
  node::v1::ResizeLeaseRequest request;
  {
    const Lock lock(mutex_);
    Vm* vm = vm_of_grant(id);
    if (vm == nullptr || !scales(*vm) || !ready(*vm)) return;
    node = vm->grant->node();
    address = begin_call(node, {Job::Kind::kScale, id});
    if (address.empty()) return;
    auto wanted = begin_scale(*vm);
    if (!wanted) {
      end_call(node, id);
      not_scaled(*vm, wanted.error().message);
      return;
    }
    request = std::move(*wanted);
  }
  const auto lease = calls_.resize(address, request);
  scaled(node, id, lease);
}

// What it grows by is its own from now on.
Result<node::v1::ResizeLeaseRequest> Manager::begin_scale(Vm& vm) {
  const std::string& id = vm.grant->id();
  placement::ClusterMap& map = scheduler_.map();
  auto resized = map.resized(id, vm.scale.sms, map.lease(id)->memory_bytes);
  if (!resized) return std::move(resized).error();
  if (Status status = map.hold(map.changing(*resized)); !status) return status.error();
  node::v1::ResizeLeaseRequest request;
  request.set_lease(vm.grant->lease().name());
  request.set_sms(vm.scale.sms);
  *request.mutable_leader() = as_leader();
  return request;
}

void Manager::scaled(const std::string& node, const std::string& id,
                     const Result<node::v1::Lease>& lease) {
  const Lock lock(mutex_);
  Vm* vm = end_vms_call(node, id);
  if (vm == nullptr) return;
  if (!lease) {
    hold(*vm);
    not_scaled(*vm, "node " + node + ": " + lease.error().message);
    place();
    return;
  }
  const bool grown = vm->scale.step == Step::kGrow;
  vm->scaled = std::to_string(vm->grant->lease().sms_granted()) + " -> " +
               std::to_string(lease->sms_granted()) + " multiprocessors: " + vm->scale.why;
  ++counters_.scaled;
  // If it cannot be written, the node's next report says what it has.
  static_cast<void>(
      keep_resized(*vm, *lease, vm->spec, grown ? "gpu-grown" : "gpu-shrunk", vm->scaled).ok());
}

void Manager::not_scaled(Vm& vm, const std::string& why) {
  const bool grow = vm.scale.step == Step::kGrow;
  vm.scaled = "not to " + std::to_string(vm.scale.sms) + " multiprocessors: " + vm.scale.why +
              "; but " + why;
  note(grow ? "gpu-not-grown" : "gpu-not-shrunk", vm.grant->node(), vm.spec.name(), vm.scaled);
}

void Manager::explain_scaling(const Vm& vm, v1::Explanation& out) const {
  if (!scales(vm)) return;
  out.add_lines("it has " + std::to_string(vm.spec.sms_min()) + " to " +
                std::to_string(vm.spec.sms_max()) + " multiprocessors, by its use");
  if (!ready(vm)) return;
  const auto size = size_of(vm);
  if (!size) {
    out.add_lines("now: its GPU does not confine programs, so that nothing changes");
    return;
  }
  if (!vm.scaled.empty()) out.add_lines("last: " + vm.scaled);
  out.add_lines("now: " + vm.scaler.decide(rules_, *size, clock_.now()).why);
}

}  // namespace flyt::cluster
