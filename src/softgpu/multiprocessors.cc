#include "softgpu/multiprocessors.h"

#include <algorithm>
#include <iterator>

namespace flyt::softgpu {
namespace {

constexpr unsigned kSmsPerTpc = 2;
constexpr unsigned kTpcsPerGpcMax = 9;
constexpr unsigned kClusterSms = 16;  // Of the largest cluster, one block on each.

// What the CUDA driver asks of groups of multiprocessors.
Multiprocessors::Grain grain_of(cuda::ComputeCapability capability) {
  if (capability.major < 7) return {1, 1};
  if (capability.major < 8) return {2, 2};
  if (capability.major < 9) return {4, 2};
  return {8, 8};
}

}  // namespace

Multiprocessors::Multiprocessors(unsigned count, cuda::ComputeCapability capability)
    : grain_(grain_of(capability)) {
  for (unsigned i = 0; i < count; ++i) all_.push_back(static_cast<std::uint16_t>(i));
  const unsigned tpcs = (count + kSmsPerTpc - 1) / kSmsPerTpc;
  const unsigned gpcs = (tpcs + kTpcsPerGpcMax - 1) / kTpcsPerGpcMax;
  // The first ones are larger where the TPCs do not divide evenly; and then, as on an H200, the
  // last one is smaller by one more.
  const unsigned uneven = tpcs % gpcs;
  const unsigned larger = uneven == 0 || uneven + 1 == gpcs ? uneven : uneven + 1;
  for (unsigned gpc = 0; gpc < gpcs; ++gpc) {
    const unsigned smaller = larger != uneven && gpc + 1 == gpcs ? 1 : 0;
    const unsigned own = tpcs / gpcs + (gpc < larger ? 1 : 0) - smaller;
    gpc_of_tpc_.insert(gpc_of_tpc_.end(), own, static_cast<std::uint16_t>(gpc));
  }
}

unsigned Multiprocessors::gpc_of(std::uint16_t sm) const { return gpc_of_tpc_[sm / kSmsPerTpc]; }

Multiprocessors::Grain Multiprocessors::fine_grain() const {
  const unsigned step = std::min(grain_.step, kSmsPerTpc);
  return {step, step};
}

Multiprocessors::Grain Multiprocessors::cluster_grain() const { return {kClusterSms, kClusterSms}; }

std::vector<SmSet> Multiprocessors::split(const SmSet& from, unsigned size, Grain grain) const {
  // The steps first: neighbours of one GPC, from its first multiprocessor on.
  std::vector<SmSet> groups;
  SmSet group;
  SmSet step;
  for (const std::uint16_t sm : from) {
    if (!step.empty() && gpc_of(sm) != gpc_of(step.back())) step.clear();
    step.push_back(sm);
    if (step.size() < grain.step) continue;
    group.insert(group.end(), step.begin(), step.end());
    step.clear();
    if (group.size() < size) continue;
    groups.push_back(std::move(group));
    group.clear();
  }
  return groups;
}

SmSet Multiprocessors::without(const SmSet& from, const SmSet& taken) {
  SmSet rest;
  std::set_difference(from.begin(), from.end(), taken.begin(), taken.end(),
                      std::back_inserter(rest));
  return rest;
}

SmSet Multiprocessors::united(const SmSet& one, const SmSet& other) {
  SmSet both;
  std::set_union(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(both));
  return both;
}

std::uint32_t Multiprocessors::number_of(const SmSet& set) {
  const Lock lock(mutex_);
  const auto [known, fresh] = numbers_.try_emplace(set, 0);
  if (fresh) {
    sets_.push_back(std::make_shared<const SmSet>(set));
    known->second = static_cast<std::uint32_t>(sets_.size());
  }
  return known->second;
}

std::shared_ptr<const SmSet> Multiprocessors::find(std::uint32_t number) const {
  const Lock lock(mutex_);
  return number == 0 || number > sets_.size() ? nullptr : sets_[number - 1];
}

}  // namespace flyt::softgpu
