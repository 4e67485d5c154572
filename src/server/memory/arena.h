// Arena: device memory of one session, at addresses that this side chooses.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "cuda/types.h"
#include "server/memory/regions.h"

namespace flyt::server {

// Physical memory of one device, mapped in one piece.
struct Block {
  CUdevice device = 0;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;  // 0: the driver maps by itself (no VMM).
  // Where the driver chooses addresses its memory dies with the context it was made in: that
  // context's handle index, else 0.
  std::uint32_t home = 0;
  bool slab = false;  // Several allocations share it.
};

// Where an Arena gets physical memory from. Safe from any thread.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // Whether map() puts memory where block.address says; else the driver chooses.
  virtual bool fixed_addresses() const = 0;
  // Puts memory behind a block whose device, bytes (and address) are set and fills in the rest.
  // CUDA_ERROR_OUT_OF_MEMORY if the device has no more. May take long.
  virtual CUresult map(Block& block) = 0;
  virtual void unmap(const Block& block) = 0;
};

// A range of addresses that is ours.
struct AddressWindow {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

// Hands out device memory. An allocation below kSlabAllocationBytesMax shares a block with others
// (a slab), a larger one has its own. Freeing has two steps, because the GPU may still use what the
// program has freed: retire() makes the address unknown at once, recycle() gives the memory back
// once the GPU has passed. Safe from any thread; only allocate(), recycle() and trim() may be slow,
// and they hold no lock while the driver works.
class Arena {
 public:
  static constexpr std::uint64_t kBlockBytes = 2 * kMiB;
  static constexpr std::uint64_t kAlignment = 512;
  static constexpr std::uint64_t kSlabAllocationBytesMax = 1 * kMiB;
  // Blocks without allocations that stay mapped for the next ones, a device.
  static constexpr std::uint64_t kIdleBytesMax = 64 * kMiB;
  // Owner of what pools hand on in parts; no handle index is that large.
  static constexpr std::uint32_t kPoolOwner = ~std::uint32_t{0};

  struct Allocation {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    CUdevice device = 0;
    std::uint32_t owner = 0;  // Handle index of the context that it dies with, or kPoolOwner.
    std::uint64_t block_address = 0;
    std::uint64_t block_bytes = 0;
    std::uint64_t block_id = 0;  // Never used twice in a session.
  };
  struct Wanted {
    CUdevice device = 0;
    std::uint64_t bytes = 0;
    std::uint32_t owner = 0;
    std::uint32_t context = 0;  // The one that is current.
  };
  struct Usage {
    std::uint64_t allocated_bytes = 0;  // As asked for.
    std::uint64_t mapped_bytes = 0;     // Taken from the device.
    std::uint64_t idle_bytes = 0;  // Mapped, but in blocks where nothing is allocated any more.
  };

  // The window must be reserved already if the source maps at fixed addresses.
  Arena(BlockSource& source, Regions& regions, AddressWindow window);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // From memory that is mapped already; nothing if more must be mapped. Fast.
  std::optional<Allocation> take(const Wanted& wanted) EXCLUDES(mutex_);
  // Maps memory if it must. bytes 0 is CUDA_ERROR_INVALID_VALUE.
  CUresult allocate(const Wanted& wanted, Allocation& out) EXCLUDES(mutex_);
  // The allocation that starts at `address`, which is unknown from now on; nothing if none does.
  std::optional<Allocation> retire(std::uint64_t address) EXCLUDES(mutex_);
  // The GPU has passed everything that used a retired allocation.
  void recycle(const Allocation& retired) EXCLUDES(mutex_, unmapping_);
  // Memory of another process that is mapped here again; false, and nothing changes, if that is not
  // free. Until end_restoring() parts of it are restored, and else nobody gets any of it.
  bool adopt(const Block& block) EXCLUDES(mutex_);
  // An allocation that lies in such memory; nothing if that is not free.
  std::optional<Allocation> restore(std::uint64_t address, const Wanted& wanted) EXCLUDES(mutex_);
  // What was adopted is like all other blocks from now on: what nobody has restored is idle.
  void end_restoring() EXCLUDES(mutex_);
  // The block around an address, whether something is allocated there or not.
  std::optional<Block> mapped_around(std::uint64_t address) const EXCLUDES(mutex_);
  // Unmaps every idle block; returns how many bytes that freed.
  std::uint64_t trim(CUdevice device) EXCLUDES(mutex_, unmapping_);

  // The live allocation around an address.
  std::optional<Allocation> find(std::uint64_t address) const EXCLUDES(mutex_);
  // The block that holds a part of one live allocation.
  std::optional<Block> block_around(std::uint64_t address, std::uint64_t bytes) const
      EXCLUDES(mutex_);
  // All blocks of a device that are mapped.
  std::vector<Block> blocks_of(CUdevice device) const EXCLUDES(mutex_);
  // A context whose work is done dies, and with it what it owns. Returns what else is lost: the
  // allocations of pools in blocks that the driver takes back by itself.
  std::vector<Allocation> drop_context(std::uint32_t context) EXCLUDES(mutex_);
  Usage usage(CUdevice device) const EXCLUDES(mutex_);
  // Nothing is on its way back to the driver at this moment.
  bool settled() EXCLUDES(unmapping_) {
    if (!unmapping_.try_lock()) return false;
    unmapping_.unlock();
    return true;
  }
  // Runs `ask`, which asks the driver what is free, while nothing is on its way back to it.
  template <class Ask>
  CUresult while_settled(Ask&& ask) EXCLUDES(unmapping_) {
    const Lock lock(unmapping_);
    return ask();
  }

 private:
  struct BlockState {
    Block block;
    std::uint64_t id = 0;
    std::uint32_t live = 0;     // Allocations.
    std::uint32_t retired = 0;  // Allocations that wait for the GPU.
    bool restoring = false;     // Adopted, and parts of it may still be restored.
    std::map<std::uint64_t, std::uint64_t> holes;  // Slabs: free address -> bytes.
  };
  using Blocks = std::map<std::uint64_t, BlockState>;

  std::optional<Allocation> take_locked(const Wanted& wanted) REQUIRES(mutex_);
  std::optional<Allocation> take_from_slab(BlockState& block, const Wanted& wanted)
      REQUIRES(mutex_);
  Allocation note(BlockState& block, std::uint64_t address, const Wanted& wanted) REQUIRES(mutex_);
  bool take_addresses(std::uint64_t bytes, std::uint64_t& address) REQUIRES(mutex_);
  bool take_addresses_at(std::uint64_t address, std::uint64_t bytes) REQUIRES(mutex_);
  void give_addresses(std::uint64_t address, std::uint64_t bytes) REQUIRES(mutex_);
  std::uint64_t idle_bytes(CUdevice device) const REQUIRES(mutex_);
  std::uint32_t home(const Wanted& wanted) const {
    return source_.fixed_addresses() ? 0 : wanted.context;
  }
  // Takes a block out of the books; the caller unmaps it without the lock and then gives the
  // addresses back.
  Block detach(Blocks::iterator block) REQUIRES(mutex_);
  void discard(const Block& block) EXCLUDES(mutex_);

  BlockSource& source_;
  Regions& regions_;
  // Held while idle blocks leave the books and go back to the driver.
  Mutex unmapping_;
  mutable Mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> free_addresses_ GUARDED_BY(mutex_);
  Blocks blocks_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, Allocation> allocations_ GUARDED_BY(mutex_);
  std::uint64_t next_block_id_ GUARDED_BY(mutex_) = 1;
};

// Inserts [address, address + bytes) into a map of free ranges and joins it with its neighbours.
void insert_range(std::map<std::uint64_t, std::uint64_t>& ranges, std::uint64_t address,
                  std::uint64_t bytes);

}  // namespace flyt::server
