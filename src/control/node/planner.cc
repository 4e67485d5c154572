#include "control/node/planner.h"

#include <algorithm>

#include "base/text.h"

namespace flyt::node {
namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

Error invalid(std::string message) { return {ErrorCode::kInvalid, std::move(message)}; }
Error full(std::string message) { return {ErrorCode::kLimit, std::move(message)}; }

std::string gpu_text(const Gpu& gpu) { return "GPU " + std::to_string(gpu.index); }

}  // namespace

Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || name.front() == '-' ||
      !std::all_of(name.begin(), name.end(), is_name_character)) {
    return invalid("a lease's name has 1 to " + std::to_string(kNameBytesMax) +
                   " letters, digits, '-', '_' or '.', and no '-' in front");
  }
  return {};
}

Status check_labels(const Labels& labels) {
  if (labels.size() > kLabelsMax) {
    return invalid("a lease has at most " + std::to_string(kLabelsMax) + " labels");
  }
  for (const auto& [key, value] : labels) {
    const bool good =
        !key.empty() && key.size() <= kLabelBytesMax && value.size() <= kLabelBytesMax &&
        std::all_of(key.begin(), key.end(),
                    [](char c) { return is_name_character(c) || c == '/'; }) &&
        std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
    if (!good) {
      return invalid(
          "a label is KEY=VALUE: letters, digits, '-', '_', '.', '/' = printable ASCII,"
          " at most " +
          std::to_string(kLabelBytesMax) + " bytes each");
    }
  }
  return {};
}

const Gpu* Planner::find(std::uint32_t index) const {
  for (const Gpu& gpu : gpus_) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

Planner::Held Planner::held(std::uint32_t gpu, std::span<const Lease> leases) {
  Held held;
  for (const Lease& lease : leases) {
    if (lease.grant.gpu != gpu) continue;
    held.quota_bytes += lease.grant.memory_bytes;
    held.overhead_bytes += lease.grant.overhead_bytes;
  }
  return held;
}

GroupMap Planner::map_of(const Gpu& gpu, std::span<const Lease> leases, const Lease* without) {
  GroupMap map(gpu.groups, gpu.sm_percent, gpu.rest_is_group);
  if (without != nullptr && !without->takes_rest) map.keep_rest();
  for (const Lease& lease : leases) {
    if (lease.grant.gpu != gpu.index || (without != nullptr && lease.id == without->id)) continue;
    static_cast<void>(map.take(lease.grant.groups));
  }
  return map;
}

std::uint64_t Planner::memory_free(const Gpu& gpu, std::span<const Lease> leases) const {
  const Held now = held(gpu.index, leases);
  const std::uint64_t used = gpu.reserve_bytes + now.quota_bytes + now.overhead_bytes;
  return gpu.memory_bytes > used ? gpu.memory_bytes - used : 0;
}

// What could never be, however empty the GPU.
Status Planner::check_size(const Gpu& gpu, std::uint32_t sms, std::uint64_t memory) const {
  if (sms > gpu.sms()) {
    return invalid(gpu_text(gpu) + " has " + std::to_string(gpu.sms()) + " multiprocessors, not " +
                   std::to_string(sms));
  }
  const std::uint64_t kept = gpu.reserve_bytes + limits_.overhead_per_lease;
  const std::uint64_t most = gpu.memory_bytes > kept ? gpu.memory_bytes - kept : 0;
  if (memory > most) {
    return invalid(gpu_text(gpu) + " can lease at most " + size_text(most) + " of its " +
                   size_text(gpu.memory_bytes) + " to one lease, not " + size_text(memory) + "; " +
                   size_text(kept) + " are kept for contexts");
  }
  return {};
}

Result<Grant> Planner::fit(const Gpu& gpu, const LeaseRequest& request,
                           std::span<const Lease> leases, const GpuFailures& failed) const {
  if (const auto found = failed.find(gpu.index); found != failed.end()) {
    return full(gpu_text(gpu) + " has failed: " + found->second);
  }
  if (request.mode && *request.mode != gpu.mode) {
    return invalid(gpu_text(gpu) + " is in mode " + std::string(to_string(gpu.mode)) + ", not " +
                   std::string(to_string(*request.mode)));
  }
  if (Status status = check_size(gpu, request.sms, request.memory_bytes); !status) {
    return status.error();
  }
  const std::uint64_t free = memory_free(gpu, leases);
  if (request.memory_bytes + limits_.overhead_per_lease > free) {
    return full(gpu_text(gpu) + " has " + size_text(free) +
                " of memory free, and the lease needs " + size_text(request.memory_bytes) +
                " and " + size_text(limits_.overhead_per_lease) + " for contexts");
  }
  const GroupMap map = map_of(gpu, leases, nullptr);
  auto groups = map.choose(request.sms);
  if (!groups) {
    return full(gpu_text(gpu) + " has " + map.free_text() + " free, and " +
                std::to_string(request.sms) + " multiprocessors need more");
  }
  Grant grant{.gpu = gpu.index, .mode = gpu.mode, .groups = std::move(*groups)};
  grant.sms = map.sms_of(grant.groups);
  grant.memory_bytes = request.memory_bytes;
  grant.overhead_bytes = limits_.overhead_per_lease;
  return grant;
}

Result<Grant> Planner::place(const LeaseRequest& request, std::span<const Lease> leases,
                             std::int64_t now, const GpuFailures& failed) const {
  if (Status status = check_name(request.name); !status) return status.error();
  if (Status status = check_labels(request.labels); !status) return status.error();
  if (request.sms == 0) return invalid("a lease needs at least 1 multiprocessor");
  if (request.memory_bytes < kMemoryQuotaMin) {
    return invalid("a lease needs at least " + size_text(kMemoryQuotaMin) + " of memory");
  }
  if (request.priority < -kPriorityMax || request.priority > kPriorityMax) {
    return invalid("a priority is from -1000 to 1000");
  }
  if (request.expires_at != 0 && request.expires_at <= now) {
    return invalid("the lease would have expired already");
  }
  for (const Lease& lease : leases) {
    if (lease.name == request.name || lease.id == request.name) {
      return Error{ErrorCode::kDenied, "there is a lease named " + request.name + " already"};
    }
  }
  if (leases.size() >= limits_.leases_max) {
    return full("there are " + std::to_string(leases.size()) + " leases; leases.max allows more");
  }
  if (request.gpu) {
    const Gpu* gpu = find(*request.gpu);
    if (gpu != nullptr) return fit(*gpu, request, leases, failed);
    return invalid("there is no GPU " + std::to_string(*request.gpu) + "; there are " +
                   std::to_string(gpus_.size()) + ", from 0");
  }
  Error refusal = invalid("this node has no GPU");
  for (const Gpu& gpu : gpus_) {
    auto grant = fit(gpu, request, leases, failed);
    if (grant) return grant;
    // What is only full now says more than what could never be.
    if (refusal.code != ErrorCode::kLimit) refusal = std::move(grant).error();
  }
  return refusal;
}

Result<Grant> Planner::resize(const Lease& lease, const ResizeRequest& request,
                              std::span<const Lease> leases) const {
  const Gpu* gpu = find(lease.grant.gpu);
  if (gpu == nullptr) return full("the lease's GPU is not there");
  const std::uint32_t sms = request.sms.value_or(lease.sms_asked);
  const std::uint64_t memory = request.memory_bytes.value_or(lease.grant.memory_bytes);
  if (!request.sms && !request.memory_bytes) {
    return invalid("a resize names multiprocessors, memory or both");
  }
  if (sms == 0) return invalid("a lease needs at least 1 multiprocessor");
  if (memory < kMemoryQuotaMin) {
    return invalid("a lease needs at least " + size_text(kMemoryQuotaMin) + " of memory");
  }
  if (Status status = check_size(*gpu, sms, memory); !status) return status.error();
  const std::uint64_t free = memory_free(*gpu, leases) + lease.grant.memory_bytes;
  if (memory > free) {
    return full(gpu_text(*gpu) + " has room for " + size_text(free) + " in this lease, not " +
                size_text(memory));
  }
  Grant grant = lease.grant;
  grant.memory_bytes = memory;
  const GroupMap map = map_of(*gpu, leases, &lease);
  // With the multiprocessors that it has asked for it keeps what it has.
  auto groups = sms == lease.sms_asked ? std::optional(lease.grant.groups)
                                       : map.choose_again(sms, lease.grant.groups);
  if (!groups) {
    return full(gpu_text(*gpu) + " has " + map.free_text() + " for this lease, and " +
                std::to_string(sms) + " multiprocessors need more");
  }
  grant.groups = std::move(*groups);
  grant.sms = map.sms_of(grant.groups);
  return grant;
}

Result<Grant> Planner::gather(const Lease& lease, std::span<const Lease> leases) const {
  const auto apart = [](const std::vector<std::uint32_t>& groups) {
    std::size_t gaps = 0;
    for (std::size_t i = 1; i < groups.size(); ++i) gaps += groups[i] != groups[i - 1] + 1 ? 1 : 0;
    return gaps;
  };
  const Gpu* gpu = find(lease.grant.gpu);
  if (gpu == nullptr) return full("the lease's GPU is not there");
  const GroupMap map = map_of(*gpu, leases, &lease);
  const auto groups = map.choose(lease.grant.sms);
  if (!groups || apart(*groups) >= apart(lease.grant.groups))
    return full("there is no better place");
  Grant grant = lease.grant;
  grant.groups = *groups;
  grant.sms = map.sms_of(grant.groups);
  return grant;
}

}  // namespace flyt::node
