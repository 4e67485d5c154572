#include "softgpu/memory/regions.h"

#include <algorithm>
#include <iterator>
#include <mutex>

namespace flyt::softgpu {

const Region* Regions::locate(std::uint64_t address, Extent extent) const {
  auto at = regions_.upper_bound(address);
  if (at == regions_.begin()) return nullptr;
  --at;
  return address - at->first < at->second.*extent ? &at->second : nullptr;
}

bool Regions::overlaps(std::uint64_t base, std::uint64_t size) const {
  const std::shared_lock lock(mutex_);
  const auto next = regions_.lower_bound(base);
  if (next != regions_.end() && next->first - base < size) return true;
  return locate(base) != nullptr;
}

bool Regions::reaches_device(std::uint64_t base, std::uint64_t size) const {
  const std::shared_lock lock(mutex_);
  if (const Region* first = locate(base); first != nullptr && !first->is_host()) return true;
  for (auto at = regions_.lower_bound(base); at != regions_.end(); ++at) {
    if (at->first - base >= size) break;
    if (!at->second.is_host()) return true;
  }
  return false;
}

// Which devices may touch it: those it names, and for memory of one device its peers.
DeviceSet Regions::sharing(const Region& region, DeviceSet devices) const {
  if (region.kind != RegionKind::kDevice && region.kind != RegionKind::kModule) return devices;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if ((peers_[i] & device_set(region.device)) != 0) devices |= device_set(static_cast<int>(i));
  }
  return devices;
}

void Regions::show(const Region& region) {
  const DeviceSet readers = sharing(region, region.readers);
  const DeviceSet writers = sharing(region, region.writers);
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const DeviceSet device = device_set(static_cast<int>(i));
    if (((readers | writers) & device) != 0) {
      maps_[i]->add(region.base, region.shown, (writers & device) != 0);
    } else {
      maps_[i]->remove(region.base, region.shown);
    }
  }
}

void Regions::hide(const Region& region) {
  for (ptx::MemoryMap* map : maps_) map->remove(region.base, region.shown);
}

bool Regions::add(Region region) {
  const std::unique_lock lock(mutex_);
  const auto next = regions_.lower_bound(region.base);
  if (next != regions_.end() && next->first - region.base < region.size) return false;
  if (locate(region.base) != nullptr) return false;
  region.id = ++next_id_;
  region.shown = region.size;
  show(region);
  regions_.emplace(region.base, region);
  return true;
}

std::optional<Region> Regions::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const Region* region = locate(address);
  if (region == nullptr) return std::nullopt;
  return *region;
}

std::optional<Region> Regions::remove(std::uint64_t base, RegionKind kind) {
  const std::unique_lock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end() || found->second.kind != kind) return std::nullopt;
  const Region region = found->second;
  regions_.erase(found);
  hide(region);
  // Registered ranges of bytes may share a granule of the map with a neighbour.
  if (region.kind == RegionKind::kRegistered) {
    for (const std::uint64_t address : {region.base - 1, region.end()}) {
      for (const auto& [other_base, other] : regions_) {
        const std::uint64_t granule = std::uint64_t{1} << ptx::MemoryMap::kGranuleShift;
        if (address + granule >= other.base && address < other.end() + granule) show(other);
      }
    }
  }
  return region;
}

std::vector<Region> Regions::exactly(std::uint64_t base, std::uint64_t size,
                                     RegionKind kind) const {
  const std::shared_lock lock(mutex_);
  std::vector<Region> found;
  std::uint64_t at = base;
  for (auto next = regions_.find(base); next != regions_.end() && at - base < size; ++next) {
    if (next->first != at || next->second.kind != kind) return {};
    at = next->second.end();
    found.push_back(next->second);
  }
  if (at - base != size) return {};
  return found;
}

void Regions::set_access(std::uint64_t base, DeviceSet devices, bool read, bool write) {
  const std::unique_lock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end()) return;
  Region& region = found->second;
  region.readers = read ? region.readers | devices : region.readers & ~devices;
  region.writers = write ? region.writers | devices : region.writers & ~devices;
  show(region);
}

bool Regions::mark_freed(std::uint64_t base) {
  const std::unique_lock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end() || found->second.freed) return false;
  found->second.freed = true;
  return true;
}

void Regions::revive(std::uint64_t base, std::uint64_t size) {
  const std::unique_lock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end()) return;
  Region& region = found->second;
  region.freed = false;
  region.size = size;
  region.shown = std::max(region.shown, size);
  region.id = ++next_id_;
  show(region);
}

void Regions::set_sync_memops(std::uint64_t address, bool value) {
  const std::unique_lock lock(mutex_);
  auto at = regions_.upper_bound(address);
  if (at == regions_.begin()) return;
  --at;
  if (at->second.contains(address)) at->second.sync_memops = value;
}

bool Regions::covers(std::uint64_t address, std::uint64_t size, bool write) const {
  return all_within(address, size, write, &Region::size);
}

bool Regions::reaches(std::uint64_t address, std::uint64_t size, bool write) const {
  return all_within(address, size, write, &Region::shown);
}

bool Regions::all_within(std::uint64_t address, std::uint64_t size, bool write,
                         Extent extent) const {
  if (size == 0) return true;
  if (address + size < address) return false;
  const std::shared_lock lock(mutex_);
  std::uint64_t at = address;
  for (;;) {
    const Region* region = locate(at, extent);
    if (region == nullptr) return false;
    if ((write ? region->writers : region->readers | region->writers) == 0) return false;
    const std::uint64_t end = region->base + region->*extent;
    if (address + size <= end) return true;
    if (region->kind != RegionKind::kMapped) return false;
    at = end;
  }
}

void Regions::set_peer(int device, int peer, bool enabled) {
  const std::unique_lock lock(mutex_);
  DeviceSet& peers = peers_[static_cast<std::size_t>(device)];
  peers = enabled ? peers | device_set(peer) : peers & ~device_set(peer);
  for (const auto& [base, region] : regions_) {
    if (region.device == peer) show(region);
  }
}

}  // namespace flyt::softgpu
