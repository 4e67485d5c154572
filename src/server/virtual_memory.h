// VirtualMemory: physical allocations of the program and where it has mapped them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/annotations.h"
#include "driver/table.h"
#include "server/arena.h"
#include "server/regions.h"
#include "server/usage_board.h"

namespace flyt::server {

// cuMemCreate and cuMemMap inside the session's window for them. The client has checked what it
// can; everything is checked again. Safe from any thread; calls may take long and hold up only
// each other.
class VirtualMemory {
 public:
  static constexpr std::size_t kAllocationsMax = 1 << 20;

  // The window is reserved already; 0 bytes: the driver cannot do this.
  VirtualMemory(const driver::Table& driver, Regions& regions, AddressWindow window);
  ~VirtualMemory();
  VirtualMemory(const VirtualMemory&) = delete;
  VirtualMemory& operator=(const VirtualMemory&) = delete;

  bool supported() const { return window_.bytes != 0; }

  // `allocation`: the client's handle. bytes must be a multiple of 2 MiB.
  CUresult create(std::uint64_t allocation, std::uint64_t bytes, CUdevice device,
                  std::uint64_t& block_id) EXCLUDES(mutex_);
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
  // Maps the whole of an allocation.
  CUresult map(std::uint64_t address, std::uint64_t bytes, std::uint64_t allocation)
      EXCLUDES(mutex_);
  // Unmaps whole mappings that together are exactly the range.
  CUresult unmap(std::uint64_t address, std::uint64_t bytes) EXCLUDES(mutex_);
  CUresult set_access(std::uint64_t address, std::uint64_t bytes, CUdevice device,
                      CUmemAccess_flags access) EXCLUDES(mutex_);

 private:
  struct Allocation {
    CUmemGenericAllocationHandle native = 0;
    std::uint64_t bytes = 0;
    CUdevice device = 0;
    std::shared_ptr<UsedMemory> charge = {};
  };
  struct Mapping {
    std::uint64_t bytes = 0;
    bool accessible = false;
    std::shared_ptr<const UsedMemory> charge = {};
  };
  using Mappings = std::map<std::uint64_t, Mapping>;

  bool in_window(std::uint64_t address, std::uint64_t bytes) const;
  // The mappings that together are exactly the range; begin == end if there are none.
  bool exactly(std::uint64_t address, std::uint64_t bytes, Mappings::iterator& begin,
               Mappings::iterator& end) REQUIRES(mutex_);

  const driver::Table& driver_;
  Regions& regions_;
  const AddressWindow window_;
  // Held across driver calls: the order of what is mapped and unmapped must be theirs too.
  Mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_ GUARDED_BY(mutex_);
  Mappings mappings_ GUARDED_BY(mutex_);
  std::uint64_t next_block_id_ GUARDED_BY(mutex_) = std::uint64_t{1} << 32;
};

}  // namespace flyt::server
