// DriverBlocks: physical memory from the CUDA driver, at fixed addresses where it can map.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "base/annotations.h"
#include "driver/table.h"
#include "server/memory/arena.h"
#include "server/recovery/keeper.h"

namespace flyt::server {

class Recovery;  // server/recovery/recovery.h

// Creates memory, maps it into a window that is reserved already and opens it. Without a window it
// comes from cuMemAlloc at addresses of the driver's choice. Safe from any thread.
class DriverBlocks final : public BlockSource {
 public:
  // A window of 0 bytes: the driver chooses addresses. `recovery`: whoever keeps the memory for
  // another process; may be null.
  DriverBlocks(const driver::Table& driver, AddressWindow window, Recovery* recovery = nullptr)
      : driver_(driver), window_(window), recovery_(recovery) {}

  AddressWindow window() const { return window_; }
  bool fixed_addresses() const override { return window_.bytes != 0; }
  CUresult map(Block& block) override;
  void unmap(const Block& block) override;
  // Maps memory that another process of the session had at the same place.
  CUresult adopt(const Kept& kept, Block& block);

  // From now on new memory of `owner` may (or may not) be used by `accessor`; counted. True if that
  // is a change, which memory that is there already has still to see: grant().
  bool allow(CUdevice owner, CUdevice accessor, bool allowed) EXCLUDES(mutex_);
  CUresult grant(const Block& block, CUdevice accessor, bool allowed);

 private:
  CUresult map_at_address(Block& block);
  CUresult open_at_address(Block& block);

  const driver::Table& driver_;
  const AddressWindow window_;
  Recovery* const recovery_;
  Mutex mutex_;
  std::map<std::pair<CUdevice, CUdevice>, int> allowed_ GUARDED_BY(mutex_);  // Owner, accessor.
};

// Physical memory of one device as cuMemCreate takes it, such that other processes can have it too
// if the driver can do that.
CUmemAllocationProp device_memory(const driver::Table& driver, CUdevice device);

}  // namespace flyt::server
