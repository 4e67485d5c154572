// What a manager tells of kernels that fault.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "control/node/manager.h"

namespace flyt::node {
namespace {

constexpr Duration kFaultLooks = std::chrono::seconds(1);
constexpr std::string_view kFaultEvent = "gpu-fault";

struct Name {
  std::uint32_t error;
  std::string_view name;
};
constexpr std::array kNames = {
    Name{214, "CUDA_ERROR_ECC_UNCORRECTABLE"},    Name{700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    Name{702, "CUDA_ERROR_LAUNCH_TIMEOUT"},       Name{710, "CUDA_ERROR_ASSERT"},
    Name{714, "CUDA_ERROR_HARDWARE_STACK_ERROR"}, Name{715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
    Name{716, "CUDA_ERROR_MISALIGNED_ADDRESS"},   Name{717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"},
    Name{718, "CUDA_ERROR_INVALID_PC"},           Name{719, "CUDA_ERROR_LAUNCH_FAILED"},
};

std::string text_of(const control::FaultState& fault, std::uint32_t gpu) {
  const auto* const known = std::find_if(
      kNames.begin(), kNames.end(), [&](const Name& name) { return name.error == fault.error; });
  const std::string error =
      known == kNames.end() ? "error " + std::to_string(fault.error) : std::string(known->name);
  const std::string who = fault.name + ", process " + std::to_string(fault.client_process);
  const std::string where = " on GPU " + std::to_string(gpu);
  if (fault.suspects == 1) return error + where + ", caused by " + who;
  return error + where + ", caused by " + who + " or another, one of " +
         std::to_string(fault.suspects) + " that had work under way";
}

}  // namespace

Instant Manager::next_fault_look(Instant next) const {
  const bool any = std::any_of(held_.begin(), held_.end(),
                               [](const auto& entry) { return entry.second.link != nullptr; });
  return any ? std::min(next, fault_look_) : next;
}

void Manager::look_for_faults() {
  struct Asked {
    std::string id;
    std::shared_ptr<ControlLink> link;
    std::uint64_t after = 0;
  };
  std::vector<Asked> asked;
  {
    const Lock lock(mutex_);
    const Instant now = system_clock().now();
    if (stopping_ || now < fault_look_) return;
    fault_look_ = now + kFaultLooks;
    for (const auto& [id, held] : held_) {
      if (held.busy || held.link == nullptr || held.link->lost()) continue;
      asked.push_back({id, held.link, held.faults_seen});
    }
  }
  for (const Asked& one : asked) {
    if (const auto told = one.link->faults(one.after)) note_faults(one.id, one.after, *told);
  }
}

void Manager::note_faults(const std::string& id, std::uint64_t after,
                          const control::FaultsState& told) {
  const Lock lock(mutex_);
  const auto found = held_.find(id);
  if (found == held_.end() || found->second.faults_seen != after) return;
  Held& held = found->second;
  // Its server has begun anew, with nothing of what the one before knew.
  if (told.caused + told.suspected < after) held.faults_seen = 0;
  for (const control::FaultState& fault : told.newest) {
    held.faults_seen = std::max(held.faults_seen, fault.number);
    // The manager before this one has told of it.
    if (fault.unix_ms <= held.faults_told_ms) continue;
    note(kFaultEvent, &held.lease, text_of(fault, held.lease.grant.gpu));
  }
}

void Manager::recall_faults(std::span<const Event> events) {
  for (const Event& event : events) {
    if (event.kind != kFaultEvent) continue;
    std::int64_t& told = faults_told_ms_[event.lease_id];
    told = std::max(told, event.at_ms);
  }
}

}  // namespace flyt::node
