// DriverBlocks: physical memory from the CUDA driver, at fixed addresses where it can map.
#pragma once

#include <cstdint>

#include "driver/table.h"
#include "server/arena.h"

namespace flyt::server {

// Creates memory, maps it into a window that is reserved already and opens it. Without a window it
// comes from cuMemAlloc at addresses of the driver's choice. Safe from any thread.
class DriverBlocks final : public BlockSource {
 public:
  // A window of 0 bytes: the driver chooses addresses.
  DriverBlocks(const driver::Table& driver, AddressWindow window)
      : driver_(driver), window_(window) {}

  AddressWindow window() const { return window_; }
  bool fixed_addresses() const override { return window_.bytes != 0; }
  CUresult map(Block& block) override;
  void unmap(const Block& block) override;

 private:
  CUresult map_at_address(Block& block);

  const driver::Table& driver_;
  const AddressWindow window_;
};

// Physical memory of one device as cuMemCreate takes it.
CUmemAllocationProp device_memory(CUdevice device);

}  // namespace flyt::server
