#include "server/memory/regions.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>

namespace flyt::server {

void Regions::add(Region region) {
  const std::unique_lock lock(gate_);
  by_base_.insert_or_assign(region.base, region);
}

void Regions::remove(std::uint64_t base) {
  const std::unique_lock lock(gate_);
  by_base_.erase(base);
}

const Regions::Region* Regions::locate(std::uint64_t address) const {
  auto after = by_base_.upper_bound(address);
  if (after == by_base_.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  return address - region.base < region.size ? &region : nullptr;
}

bool Regions::allowed(std::uint64_t address, std::uint64_t size) const {
  if (address + size < address) return false;
  const std::shared_lock lock(gate_);
  const std::uint64_t end = address + size;
  // A range may run over regions that stand side by side.
  do {
    const Region* region = locate(address);
    if (region == nullptr) return false;
    address = region->base + region->size;
  } while (address < end);
  return true;
}

std::optional<Regions::Region> Regions::around(std::uint64_t address) const {
  const std::shared_lock lock(gate_);
  const Region* region = locate(address);
  return region == nullptr ? std::nullopt : std::optional<Region>(*region);
}

std::vector<Regions::Region> Regions::all(Kind kind) const {
  std::vector<Region> regions;
  const std::shared_lock lock(gate_);
  for (const auto& [base, region] : by_base_) {
    if (region.kind == kind) regions.push_back(region);
  }
  return regions;
}

}  // namespace flyt::server
