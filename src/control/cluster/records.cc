#include "control/cluster/records.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "base/text.h"
#include "control/cluster/scaling/scaler.h"
#include "control/settings/settings.h"

namespace flyt::cluster {
namespace {

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

bool is_printable(std::string_view text) {
  return text.size() <= kTextBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

Status check_labels(const v1::VmSpec& spec) {
  if (spec.labels().size() > kVmLabelsMax || spec.apart_size() > static_cast<int>(kVmLabelsMax)) {
    return invalid("a VM has at most " + std::to_string(kVmLabelsMax) + " labels");
  }
  for (const auto& [key, value] : spec.labels()) {
    const bool good = !key.empty() && key.size() <= kTextBytesMax && is_printable(value) &&
                      std::all_of(key.begin(), key.end(),
                                  [](char c) { return is_name_character(c) || c == '/'; });
    if (!good) {
      return invalid("a label is KEY=VALUE: letters, digits, '-', '_', '.', '/' = printable ASCII");
    }
    if (key.starts_with("flyt/")) return invalid("labels flyt/... are the cluster's own");
  }
  for (const std::string& key : spec.apart()) {
    if (!spec.labels().contains(key)) {
      return invalid("VM " + spec.name() + " is to be kept apart by label " + key +
                     ", and has no such label");
    }
  }
  return {};
}

bool can_be_use(const node::v1::Lease& lease) {
  return lease.measured_microseconds() <= scaling::Scaler::kMicrosecondsMax &&
         lease.busy_microseconds() <= scaling::Scaler::kMicrosecondsMax &&
         lease.queued_microseconds() <= lease.busy_microseconds();
}

// Also that the marks of one that says it is a cluster's can be a store's keys.
bool can_be_lease(const node::v1::Lease& lease) {
  if (lease.id().empty() || !is_printable(lease.id()) || !is_printable(lease.name()) ||
      lease.memory_bytes() > kVmMemoryMax || lease.overhead_bytes() > kVmMemoryMax ||
      lease.ByteSizeLong() > kReportLeaseBytesMax || !can_be_use(lease)) {
    return false;
  }
  if (label_of(lease, kClusterLabel).empty() || label_of(lease, kGrantLabel).empty()) return true;
  return check_name("a grant", label_of(lease, kGrantLabel), kGrantIdBytesMax).ok() &&
         check_name("a VM", label_of(lease, kVmLabel), kVmNameBytesMax).ok();
}

Status check_gpu(const node::v1::Gpu& gpu) {
  const std::string name = "GPU " + std::to_string(gpu.index());
  std::uint64_t sms = 0;
  for (const node::v1::Group& group : gpu.groups()) sms += group.sms();
  if (sms != gpu.sms()) {
    return invalid(name + " has " + std::to_string(gpu.sms()) + " multiprocessors, and groups of " +
                   std::to_string(sms));
  }
  if (gpu.memory_bytes() > kVmMemoryMax || gpu.memory_overhead_bytes() > kVmMemoryMax) {
    return invalid(name + " has more memory than there can be");
  }
  if (gpu.sm_percent() != 0 &&
      (gpu.sm_percent() < 100 || gpu.sm_percent() > placement::kSmPercentMax)) {
    return invalid(name + " gives out " + std::to_string(gpu.sm_percent()) +
                   " percent of its multiprocessors");
  }
  if (!is_printable(gpu.name()) || !is_printable(gpu.uuid())) {
    return invalid(name + " has a name that cannot be shown");
  }
  return {};
}

// What the node keeps back for itself: all overhead that is no lease's.
std::uint64_t reserve_of(const node::v1::Gpu& gpu, const v1::NodeReport& report) {
  std::uint64_t of_leases = 0;
  for (const node::v1::Lease& lease : report.leases()) {
    if (lease.gpu() == gpu.index()) of_leases += lease.overhead_bytes();
  }
  const std::uint64_t overhead = gpu.memory_overhead_bytes();
  return overhead > of_leases ? overhead - of_leases : 0;
}

}  // namespace

v1::Role message_of(Role role) {
  switch (role) {
    case Role::kViewer:
      return v1::ROLE_VIEWER;
    case Role::kOperator:
      return v1::ROLE_OPERATOR;
    case Role::kAdmin:
      return v1::ROLE_ADMIN;
    case Role::kNode:
      return v1::ROLE_NODE;
    case Role::kVm:
      return v1::ROLE_VM;
  }
  return v1::ROLE_UNSPECIFIED;
}

Status check_name(std::string_view what, std::string_view name, std::size_t bytes_max) {
  if (!name.empty() && name.size() <= bytes_max && name.front() != '-' &&
      std::all_of(name.begin(), name.end(), is_name_character)) {
    return {};
  }
  return invalid(std::string(what) + " has 1 to " + std::to_string(bytes_max) +
                 " letters, digits, '-', '_' or '.', and no '-' in front");
}

Status check_spec(const v1::VmSpec& spec) {
  if (Status status = check_name("a VM's name", spec.name(), kVmNameBytesMax); !status) {
    return status;
  }
  const std::string vm = "VM " + spec.name() + ": ";
  if (spec.sms() == 0 || spec.sms() > kVmSmsMax) {
    return invalid(vm + "it needs 1 to " + std::to_string(kVmSmsMax) + " multiprocessors");
  }
  const bool scaled = spec.sms_min() != 0 || spec.sms_max() != 0;
  if (scaled && (spec.sms_min() == 0 || spec.sms_min() > spec.sms() ||
                 spec.sms() > spec.sms_max() || spec.sms_max() > kVmSmsMax)) {
    return invalid(vm +
                   "its least, its own and its most multiprocessors are in this order, from 1 to " +
                   std::to_string(kVmSmsMax) + "; or it has neither a least nor a most");
  }
  if (spec.memory_bytes() < kVmMemoryMin || spec.memory_bytes() > kVmMemoryMax) {
    return invalid(vm + "it needs " + size_text(kVmMemoryMin) + " to " + size_text(kVmMemoryMax) +
                   " of memory");
  }
  if (spec.priority() < -placement::kRequestPriorityMax ||
      spec.priority() > placement::kRequestPriorityMax) {
    return invalid(vm + "a priority is from -1000 to 1000");
  }
  if (!is_printable(spec.address()) || !is_printable(spec.host())) {
    return invalid(vm + "its address and host are printable, at most 256 bytes");
  }
  if (!spec.policy().empty() && !placement::policy_of(spec.policy())) {
    return invalid(vm + "there is no policy " + spec.policy() +
                   "; there are host-first, pack, spread");
  }
  if (!node::v1::Mode_IsValid(spec.mode())) return invalid(vm + "there is no such mode");
  return check_labels(spec);
}

std::string text_of(const v1::VmSpec& spec) {
  std::string text = std::to_string(spec.sms()) + " multiprocessors, ";
  if (spec.sms_max() != 0) {
    text += "from " + std::to_string(spec.sms_min()) + " to " + std::to_string(spec.sms_max()) +
            " by use, ";
  }
  return text + size_text(spec.memory_bytes());
}

Status merge(const v1::VmSpec& wanted,
             const google::protobuf::RepeatedPtrField<std::string>& fields, v1::VmSpec& spec) {
  const google::protobuf::Descriptor& type = *v1::VmSpec::descriptor();
  const google::protobuf::Reflection& of = *v1::VmSpec::GetReflection();
  v1::VmSpec from = wanted;
  for (const std::string& name : fields) {
    const google::protobuf::FieldDescriptor* field = type.FindFieldByName(name);
    if (field == nullptr) return invalid("a VM has no field " + name);
    std::vector<const google::protobuf::FieldDescriptor*> one = {field};
    of.ClearField(&spec, field);
    of.SwapFields(&spec, &from, one);
  }
  return {};
}

Status check_request(const v1::GpuRequest& request) {
  if (is_printable(request.host())) return {};
  return invalid("a VM's machine is printable ASCII, at most " + std::to_string(kTextBytesMax) +
                 " bytes");
}

Status check_report(const v1::NodeReport& report) {
  if (Status status = check_name("a node's name", report.name(), kNodeNameBytesMax); !status) {
    return status;
  }
  const std::string node = "node " + report.name() + ": ";
  const node::v1::NodeDescription& said = report.description();
  if (!is_printable(report.address()) || !is_printable(report.host()) ||
      !is_printable(report.instance()) || !is_printable(report.lease_host())) {
    return invalid(node + "its texts are printable, at most 256 bytes");
  }
  if (!report.address().starts_with("unix:///") && !control::parse_address(report.address())) {
    return invalid(node + "its address is unix:///PATH or HOST:PORT");
  }
  for (const std::string& problem : report.problems()) {
    if (problem.size() > kProblemBytesMax) return invalid(node + "it reports a novel as a problem");
  }
  if (report.ByteSizeLong() > kReportBytesMax || said.gpus_size() > kReportGpusMax ||
      report.leases_size() > kReportLeasesMax || report.problems_size() > kReportProblemsMax) {
    return invalid(node + "it reports more than a node can have");
  }
  for (const node::v1::Gpu& gpu : said.gpus()) {
    if (Status status = check_gpu(gpu); !status) return invalid(node + status.error().message);
  }
  for (const node::v1::Lease& lease : report.leases()) {
    if (!can_be_lease(lease)) return invalid(node + "it reports a lease that cannot be");
  }
  return {};
}

state::NodeRecord record_of(const v1::NodeReport& report, const state::NodeRecord& before) {
  state::NodeRecord record = before;
  record.set_name(report.name());
  record.set_address(report.address());
  record.set_host(report.host().empty() ? report.name() : report.host());
  record.set_host_only(report.host_only());
  *record.mutable_description() = report.description();
  node::v1::NodeDescription& kept = *record.mutable_description();
  kept.set_leases(0);
  for (node::v1::Gpu& gpu : *kept.mutable_gpus()) {
    gpu.set_memory_overhead_bytes(reserve_of(gpu, report));
    gpu.set_memory_leased_bytes(0);
    gpu.set_memory_free_bytes(0);
    gpu.set_sms_free(0);
    for (node::v1::Group& group : *gpu.mutable_groups()) {
      group.clear_lease_id();
      group.clear_leases();
    }
  }
  return record;
}

placement::NodeFacts facts_of(const state::NodeRecord& record) {
  placement::NodeFacts facts;
  facts.name = record.name();
  facts.host = record.host();
  facts.host_only = record.host_only();
  facts.leases_max = record.description().leases_max();
  facts.overhead_per_lease = record.description().overhead_per_lease_bytes();
  for (const node::v1::Gpu& said : record.description().gpus()) {
    // One that had failed when the node began: nobody knows how it is cut.
    if (!said.failed().empty() && said.groups().empty()) continue;
    placement::GpuFacts gpu;
    gpu.index = said.index();
    gpu.kind = said.name();
    gpu.mode = said.mode() == node::v1::MODE_SHARED ? placement::GpuMode::kShared
                                                    : placement::GpuMode::kIsolated;
    for (const node::v1::Group& group : said.groups()) gpu.groups.push_back(group.sms());
    gpu.rest_is_group = said.rest_is_group();
    gpu.sm_percent = said.sm_percent() == 0 ? 100 : said.sm_percent();
    gpu.memory_bytes = said.memory_bytes();
    gpu.reserve_bytes = said.memory_overhead_bytes();
    gpu.usable = (said.mps().empty() || said.mps() == "running") && said.failed().empty();
    facts.gpus.push_back(std::move(gpu));
  }
  return facts;
}

placement::HeldLease held_of(const std::string& id, const state::NodeRecord& node,
                             const node::v1::Lease& lease) {
  placement::HeldLease held;
  held.id = id;
  held.node = node.name();
  for (const node::v1::Gpu& gpu : node.description().gpus()) {
    if (gpu.index() != lease.gpu() || gpu.groups_size() == 0 || lease.groups().empty()) continue;
    const auto last = static_cast<std::uint32_t>(gpu.groups_size() - 1);
    held.rest =
        std::find(lease.groups().begin(), lease.groups().end(), last) != lease.groups().end();
  }
  held.gpu = lease.gpu();
  held.sms = lease.sms_granted();
  held.memory_bytes = lease.memory_bytes();
  held.overhead_bytes = lease.overhead_bytes();
  return held;
}

std::vector<placement::Apart> apart_of(const v1::VmSpec& spec) {
  std::vector<placement::Apart> apart;
  for (const std::string& key : spec.apart()) {
    apart.push_back({key, placement::Apart::From::kNode});
  }
  return apart;
}

placement::Request request_of(const v1::VmSpec& spec, const std::string& id,
                              std::string_view default_policy) {
  placement::Request request;
  request.id = id;
  request.sms = spec.sms();
  request.memory_bytes = spec.memory_bytes();
  request.priority = spec.priority();
  const auto policy = placement::policy_of(spec.policy().empty() ? default_policy
                                                                 : std::string_view(spec.policy()));
  if (policy) request.policy = *policy;
  request.host = spec.host();
  if (spec.mode() == node::v1::MODE_SHARED) request.mode = placement::GpuMode::kShared;
  if (spec.mode() == node::v1::MODE_ISOLATED) request.mode = placement::GpuMode::kIsolated;
  request.labels.insert(spec.labels().begin(), spec.labels().end());
  request.apart = apart_of(spec);
  request.share_sms = spec.share_sms();
  return request;
}

std::string lease_name_of(const std::string& vm, const std::string& grant) {
  return vm + "." + grant;
}

node::v1::CreateLeaseRequest create_request_of(const v1::VmSpec& spec, const state::Grant& grant,
                                               const std::string& cluster) {
  node::v1::CreateLeaseRequest request;
  request.set_name(lease_name_of(grant.vm(), grant.id()));
  request.set_gpu(grant.gpu());
  request.set_mode(spec.mode());
  request.set_sms(grant.sms());
  request.set_memory_bytes(grant.memory_bytes());
  request.set_priority(spec.priority());
  auto& labels = *request.mutable_labels();
  for (const auto& [key, value] : spec.labels()) labels[key] = value;
  labels[kClusterLabel] = cluster;
  labels[kVmLabel] = grant.vm();
  labels[kGrantLabel] = grant.id();
  return request;
}

std::string label_of(const node::v1::Lease& lease, const char* key) {
  const auto found = lease.labels().find(key);
  return found == lease.labels().end() ? std::string() : found->second;
}

void show_lease(const node::v1::Lease& lease, bool there, node::v1::NodeDescription& node) {
  for (node::v1::Gpu& gpu : *node.mutable_gpus()) {
    // Who else has the groups is the node's to say.
    if (gpu.index() != lease.gpu() || gpu.sm_percent() > 100) continue;
    std::uint32_t changed = 0;
    for (const std::uint32_t number : lease.groups()) {
      if (number >= static_cast<std::uint32_t>(gpu.groups_size())) continue;
      node::v1::Group& group = *gpu.mutable_groups(static_cast<int>(number));
      if ((group.lease_id() == lease.id()) == there) continue;
      group.set_lease_id(there ? lease.id() : "");
      group.set_leases(there ? 1 : 0);
      changed += group.sms();
    }
    // A report may have told of it already.
    if (changed == 0) return;
    const auto moved = [there](std::uint64_t from, std::uint64_t by, bool grows) {
      return grows == there ? from + by : from - std::min(from, by);
    };
    const std::uint64_t all = lease.memory_bytes() + lease.overhead_bytes();
    gpu.set_sms_free(static_cast<std::uint32_t>(moved(gpu.sms_free(), changed, false)));
    gpu.set_memory_leased_bytes(moved(gpu.memory_leased_bytes(), lease.memory_bytes(), true));
    gpu.set_memory_overhead_bytes(moved(gpu.memory_overhead_bytes(), lease.overhead_bytes(), true));
    gpu.set_memory_free_bytes(moved(gpu.memory_free_bytes(), all, false));
  }
}

std::string new_id() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::array<unsigned char, 8> bytes{};
  random_bytes(bytes.data(), bytes.size());
  std::string id;
  for (const unsigned char byte : bytes) id += {kDigits[byte >> 4], kDigits[byte & 15]};
  return id;
}

}  // namespace flyt::cluster
