// Device: one software GPU: what it can do, its memory and its primary context.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/interpreter/grid.h"
#include "softgpu/interpreter/memory_map.h"
#include "softgpu/lost_gpu.h"
#include "softgpu/memory/code_chunks.h"
#include "softgpu/memory/device_memory.h"
#include "softgpu/multiprocessors.h"
#include "softgpu/settings.h"
#include "softgpu/shared_faults.h"

namespace flyt::softgpu {

class Context;

// What launches are checked against and occupancy is computed from.
struct DeviceLimits {
  unsigned multiprocessors = 0;
  unsigned threads_per_block = 1024;
  std::array<unsigned, 3> block = {1024, 1024, 64};
  std::array<unsigned, 3> grid = {2147483647, 65535, 65535};
  unsigned threads_per_multiprocessor = 2048;
  unsigned blocks_per_multiprocessor = 32;
  unsigned registers = ptx::kRegistersPerBlock;  // Also per multiprocessor.
  unsigned shared_bytes = 49152;                 // Of a block that did not ask for more.
  unsigned shared_optin_bytes = 232448;
  unsigned shared_multiprocessor_bytes = 233472;
  unsigned shared_reserved_bytes = 1024;  // Per block, by the system.
  unsigned cluster_blocks = 8;
  unsigned cluster_blocks_nonportable = 16;
  unsigned warp = 32;
};

// Safe from any thread.
class Device {
 public:
  // `unit`: which of all there are; programs know the visible ones by `number`.
  Device(int number, unsigned unit, const Settings& settings);

  int number() const { return number_; }
  const Settings& settings() const { return settings_; }
  const DeviceLimits& limits() const { return limits_; }
  const std::string& name() const { return name_; }
  CUuuid uuid() const { return uuid_of(unit_); }
  static CUuuid uuid_of(unsigned unit);
  int pci_bus() const { return static_cast<int>(unit_) + 1; }
  // None where there is no such attribute.
  std::optional<int> attribute(CUdevice_attribute attribute) const;

  Multiprocessors& multiprocessors() { return multiprocessors_; }
  DeviceMemory& memory() { return memory_; }
  // Of a variable of code; zeroes.
  std::optional<std::uint64_t> allocate_variable(std::uint64_t bytes);
  void release_variable(std::uint64_t address, std::uint64_t bytes);
  ptx::MemoryMap& map() { return map_; }
  // Null where a fault is its process's alone.
  SharedFaults* shared_faults() const { return shared_faults_.get(); }
  LostGpu& lost() { return lost_; }
  // Before a context is made, which gets the place.
  CUresult enter(SharedFaults::Place& place) {
    if (const CUresult lost = lost_.error(); lost != CUDA_SUCCESS) return lost;
    return shared_faults_ == nullptr ? CUDA_SUCCESS : shared_faults_->enter(place);
  }

  // The primary context's bookkeeping.
  struct Primary {
    std::uint64_t context = 0;  // Handle; 0: not active.
    std::uint64_t last = 0;     // The handle it had, and will have again.
    unsigned retained = 0;
    unsigned flags = 0;
  };
  Mutex& primary_mutex() RETURN_CAPABILITY(primary_mutex_) { return primary_mutex_; }
  Primary& primary() REQUIRES(primary_mutex_) { return primary_; }

  // Handles of the default and the current memory pool; set when the driver starts.
  std::uint64_t default_pool() const { return default_pool_; }
  void set_default_pool(std::uint64_t pool) { default_pool_ = pool; }
  std::uint64_t current_pool() const { return current_pool_.load(); }
  void set_current_pool(std::uint64_t pool) { current_pool_.store(pool); }

 private:
  const int number_;
  const unsigned unit_;
  const Settings settings_;
  DeviceLimits limits_;
  std::string name_;
  Multiprocessors multiprocessors_;
  DeviceMemory memory_;
  CodeChunks code_chunks_;
  ptx::MemoryMap map_;
  const std::unique_ptr<SharedFaults> shared_faults_;
  LostGpu lost_;
  Mutex primary_mutex_;
  Primary primary_ GUARDED_BY(primary_mutex_);
  std::uint64_t default_pool_ = 0;
  std::atomic<std::uint64_t> current_pool_{0};
};

}  // namespace flyt::softgpu
