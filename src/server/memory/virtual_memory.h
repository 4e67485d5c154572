// VirtualMemory: physical allocations of the program and where it has mapped them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "driver/table.h"
#include "server/lease/usage_board.h"
#include "server/memory/arena.h"
#include "server/memory/regions.h"
#include "server/recovery/keeper.h"

namespace flyt::server {

class Recovery;  // server/recovery/recovery.h

// cuMemCreate and cuMemMap inside the session's window for them. The client has checked what it
// can; everything is checked again. Safe from any thread; calls may take long and hold up only
// each other.
class VirtualMemory {
 public:
  static constexpr std::size_t kAllocationsMax = 1 << 20;
  static constexpr CUdevice kDevicesMax = 64;

  // The window is reserved already; 0 bytes: the driver cannot do this. `recovery`: whoever keeps
  // the memory for another process; may be null.
  VirtualMemory(const driver::Table& driver, Regions& regions, AddressWindow window,
                Recovery* recovery = nullptr);
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  bool supported() const { return window_.bytes != 0; }

  // `allocation`: the client's handle. bytes must be a multiple of 2 MiB. Where the session goes on
  // it is memory that was kept, until end_restoring().
  CUresult create(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                  std::uint64_t& block_id) EXCLUDES(mutex_);
  // Memory that another process of the session had, for create(). False: the driver refuses it.
  bool adopt_kept(const Kept& kept) EXCLUDES(mutex_);
  // What nobody has asked for goes.
  void end_restoring() EXCLUDES(mutex_);
  // Takes over memory that the driver has imported, and drops it if that cannot be.
  CUresult adopt(std::uint64_t allocation, CUmemGenericAllocationHandle native, std::uint64_t bytes,
                 CUdevice device, std::uint64_t& block_id) EXCLUDES(mutex_);
  // Calls visit(the driver's handle, bytes, device) while the allocation stays.
  template <class Visit>
  CUresult use(std::uint64_t allocation, Visit&& visit) EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    const auto found = allocations_.find(allocation);
    if (found == allocations_.end()) return CUDA_ERROR_INVALID_VALUE;
    return visit(found->second.native, found->second.bytes, found->second.device);
  }
  CUresult release(std::uint64_t allocation) EXCLUDES(mutex_);
  // Maps the whole of an allocation. Once more at the same place is no error: a client asks again
  // what another process has not answered.
  CUresult map(std::uint64_t address, std::uint64_t bytes, std::uint64_t allocation)
      EXCLUDES(mutex_);
  // Unmaps whole mappings that together are exactly the range.
  CUresult unmap(std::uint64_t address, std::uint64_t bytes) EXCLUDES(mutex_);
  CUresult set_access(std::uint64_t address, std::uint64_t bytes, CUdevice device,
                      CUmemAccess_flags access) EXCLUDES(mutex_);
  // Whether the range is memory of another device.
  bool elsewhere(std::uint64_t address, std::uint64_t bytes, CUdevice device) EXCLUDES(mutex_);
  struct Place {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    CUdevice device = 0;
  };
  // All of it, where its device reaches it. What the program has mapped nowhere, or may not touch,
  // is mapped or opened while this lives; until then nobody may map, unmap or open anything.
  class Reached {
   public:
    explicit Reached(VirtualMemory& memory);
    ~Reached();
    Reached(const Reached&) = delete;
    Reached& operator=(const Reached&) = delete;
    // False: the driver has refused something, and some of it is not among the places.
    bool all() const { return all_; }
    const std::vector<Place>& places() const { return places_; }

   private:
    friend class VirtualMemory;
    VirtualMemory& memory_;
    bool all_ = true;
    std::vector<Place> places_;
    std::vector<Place> mapped_;  // Of places, those that this has mapped,
    std::vector<Place> opened_;  // and those that were mapped and closed.
  };

 private:
  // What stays as long as the allocation or a mapping of it does.
  struct Physical {
    ~Physical();
    UsedMemory charge;
    Recovery* keeper = nullptr;  // Of the allocation.
    std::uint64_t allocation = 0;
  };
  struct Allocation {
    CUmemGenericAllocationHandle native = 0;
    std::uint64_t bytes = 0;
    CUdevice device = 0;
    std::shared_ptr<Physical> physical = {};
  };
  struct Mapping {
    std::uint64_t bytes = 0;
    CUdevice device = 0;
    std::uint64_t open_to = 0;  // Devices, a bit each.
    std::shared_ptr<const Physical> physical = {};
    bool reached() const { return (open_to >> device & 1) != 0; }  // By its own device.
  };
  using Mappings = std::map<std::uint64_t, Mapping>;
  CUresult create_kept(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                       std::uint64_t& block_id) REQUIRES(mutex_);

  // Both add to `reached`. False: the driver refuses.
  bool open_for(Reached& reached, const Place& place) REQUIRES(mutex_);
  bool map_for(Reached& reached, const Allocation& allocation) REQUIRES(mutex_);
  CUresult set_driver_access(const Place& place, CUmemAccess_flags access) const;
  bool in_window(std::uint64_t address, std::uint64_t bytes) const;
  // The mappings that together are exactly the range; begin == end if there are none.
  bool exactly(std::uint64_t address, std::uint64_t bytes, Mappings::iterator& begin,
               Mappings::iterator& end) REQUIRES(mutex_);

  const driver::Table& driver_;
  Regions& regions_;
  const AddressWindow window_;
  Recovery* const recovery_;
  // Held across driver calls: the order of what is mapped and unmapped must be theirs too.
  Mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Allocation> kept_ GUARDED_BY(mutex_);  // Of another process.
  bool restoring_ GUARDED_BY(mutex_) = false;
  Mappings mappings_ GUARDED_BY(mutex_);
  std::uint64_t next_block_id_ GUARDED_BY(mutex_) = std::uint64_t{1} << 32;
};

}  // namespace flyt::server
