// Regions: every range of addresses that a GPU may be told of, and what it is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "cuda/managed_ranges.h"
#include "softgpu/interpreter/memory_map.h"

namespace flyt::softgpu {

enum class RegionKind : std::uint8_t {
  kDevice,      // cuMemAlloc
  kModule,      // A variable of a module.
  kPool,        // Stream-ordered allocation.
  kMapped,      // cuMemMap
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kGraph,       // Of an allocation node.
  kManaged,     // cuMemAllocManaged
};

// A set of device numbers (kDevicesMax = 64).
using DeviceSet = std::uint64_t;
inline constexpr DeviceSet kAllDevices = ~DeviceSet{0};
inline DeviceSet device_set(int device) { return DeviceSet{1} << static_cast<unsigned>(device); }

struct Region {
  RegionKind kind = RegionKind::kDevice;
  std::uint64_t base = 0;
  std::uint64_t size = 0;   // As asked for.
  std::uint64_t shown = 0;  // Bytes that work reaches: the largest size that it has had.
  int device = 0;
  std::uint64_t context = 0;     // Handle of the context it was made in; 0: none.
  unsigned flags = 0;            // Of host memory.
  std::uint64_t id = 0;          // Unique for ever: CU_POINTER_ATTRIBUTE_BUFFER_ID.
  std::uint64_t pool = 0;        // Handle.
  std::uint64_t allocation = 0;  // Handle, of kMapped.
  bool sync_memops = false;
  bool managed = false;  // The program's too: kManaged, and managed variables.
  bool freed = false;    // Of a pool: a stream will give it back.
  DeviceSet readers = 0;
  DeviceSet writers = 0;

  std::uint64_t end() const { return base + size; }
  bool is_host() const { return kind == RegionKind::kHost || kind == RegionKind::kRegistered; }
  bool contains(std::uint64_t address) const { return address >= base && address - base < size; }
};

// Keeps the memory map of every device exact. Safe from any thread.
class Regions {
 public:
  // `maps[i]` is device i's.
  explicit Regions(std::vector<ptx::MemoryMap*> maps)
      : maps_(std::move(maps)), managed_(static_cast<int>(maps_.size())) {
    peers_.resize(maps_.size());
  }

  // The region must not overlap another one; false if it does.
  bool add(Region region);
  std::optional<Region> find(std::uint64_t address) const;
  // Does any region overlap [base, base + size)?
  bool overlaps(std::uint64_t base, std::uint64_t size) const;
  // As overlaps(), host memory left out.
  bool reaches_device(std::uint64_t base, std::uint64_t size) const;
  // Removes the one that begins at `base` and is of that kind.
  std::optional<Region> remove(std::uint64_t base, RegionKind kind);
  // The regions of that kind in [base, base + size), if they begin and end exactly there.
  std::vector<Region> exactly(std::uint64_t base, std::uint64_t size, RegionKind kind) const;
  // All for which `wanted(region)`.
  template <class Predicate>
  std::vector<Region> select(Predicate wanted) const {
    const std::shared_lock lock(mutex_);
    std::vector<Region> found;
    for (const auto& [base, region] : regions_) {
      if (wanted(region)) found.push_back(region);
    }
    return found;
  }

  void set_access(std::uint64_t base, DeviceSet devices, bool read, bool write);
  // Marks memory of a pool as freed; false where it is none, or was freed before.
  bool mark_freed(std::uint64_t base);
  // Memory that was marked as freed is in use again, by somebody who asked for `size` bytes.
  // Work of before that may still run: what it reaches stays within reach throughout.
  void revive(std::uint64_t base, std::uint64_t size);
  void set_sync_memops(std::uint64_t address, bool value);

  // Whether all of [address, address + size) is memory that a copy may touch. Neighbouring mapped
  // regions count as one, others do not.
  bool covers(std::uint64_t address, std::uint64_t size, bool write) const;
  // The same for work that runs, which may be of before the memory got smaller.
  bool reaches(std::uint64_t address, std::uint64_t size, bool write) const;

  // What was said about managed memory.
  cuda::ManagedRanges& managed() { return managed_; }

  // From now on `device` may, or may not, touch the allocations of `peer`.
  void set_peer(int device, int peer, bool enabled);

 private:
  using Extent = std::uint64_t Region::*;

  const Region* locate(std::uint64_t address, Extent extent = &Region::size) const;
  bool all_within(std::uint64_t address, std::uint64_t size, bool write, Extent extent) const;
  DeviceSet sharing(const Region& region, DeviceSet devices) const;
  void show(const Region& region);
  void hide(const Region& region);

  mutable std::shared_mutex mutex_;  // Guards the rest.
  std::vector<ptx::MemoryMap*> maps_;
  std::vector<DeviceSet> peers_;  // By device: whose memory it may touch.
  std::map<std::uint64_t, Region> regions_;
  std::uint64_t next_id_ = 0;
  cuda::ManagedRanges managed_;  // Has a lock of its own.
};

}  // namespace flyt::softgpu
