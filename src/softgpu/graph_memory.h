// Memory of allocation nodes: fixed addresses for as long as a graph may use them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/memory/regions.h"

namespace flyt::softgpu {

class Device;

class GraphMemory;

// The memory of one allocation node. Its address is taken when the node is made, and given back
// when no graph has it any more and nothing lives there.
class GraphAllocation {
 public:
  GraphAllocation(GraphMemory& memory, std::uint64_t address, std::uint64_t bytes)
      : memory_(memory), address_(address), bytes_(bytes) {}
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;
  std::uint64_t address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }
  GraphMemory& memory() const { return memory_; }

 private:
  friend class GraphMemory;
  GraphMemory& memory_;
  const std::uint64_t address_;
  const std::uint64_t bytes_;
  bool backed_ = false;    // Charged to the device. Guarded by GraphMemory's mutex.
  bool claimed_ = false;   // By launches so far, it lives when all of them are done. Likewise.
  unsigned launches_ = 0;  // Launches that are not at their end. Likewise.
};

// One device's. Safe from any thread.
class GraphMemory {
 public:
  GraphMemory(Device& device, Regions& regions) : device_(device), regions_(regions) {}

  // Null where there are no addresses left. `peers`: devices that may touch it, too.
  std::shared_ptr<GraphAllocation> make(std::uint64_t bytes, DeviceSet peers);

  // Charges the device for what is not backed yet; false where it has not that much left.
  bool back(const std::vector<std::shared_ptr<GraphAllocation>>& allocations);
  // A launch that will run their nodes is on its way, or has ended.
  void begin_launch(const std::vector<std::shared_ptr<GraphAllocation>>& allocations);
  void end_launch(const std::vector<std::shared_ptr<GraphAllocation>>& allocations);

  // In the order of calls: will it live when all that was asked for so far is done?
  bool claimed(const GraphAllocation& allocation) const;
  void claim(GraphAllocation& allocation);
  // It will not, for it shall be freed. False where nothing would have lived there.
  bool unclaim(std::uint64_t address);

  // The node runs: from now on it lives, until it is freed. False where it lives already.
  bool allocate(const std::shared_ptr<GraphAllocation>& allocation);
  // False where nothing lives there.
  bool release(std::uint64_t address);

  // Takes back what neither lives nor is about to.
  void trim();
  CUresult attribute(CUgraphMem_attribute attribute, std::uint64_t* value) const;
  CUresult reset(CUgraphMem_attribute attribute);

 private:
  friend class GraphAllocation;
  void forget(GraphAllocation& allocation);

  Device& device_;
  Regions& regions_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<GraphAllocation>> living_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, GraphAllocation*> all_ GUARDED_BY(mutex_);
  // What graphs use and what is kept for them are the same: launches take it, and it stays theirs
  // until it is trimmed, whether anything lives there or not.
  std::uint64_t used_high_ GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_ GUARDED_BY(mutex_) = 0;
  std::uint64_t reserved_high_ GUARDED_BY(mutex_) = 0;
};

}  // namespace flyt::softgpu
