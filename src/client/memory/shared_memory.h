// SharedMemory: memory that this process has given to others, and what it has opened of theirs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/fd.h"
#include "client/memory/memory_map.h"
#include "cuda/types.h"

namespace flyt::client {

struct ContextState;
class MemoryState;
class Session;

// What programs pass on: only the server that made it knows what it stands for.
using SharedHandle = std::array<std::byte, CU_IPC_HANDLE_SIZE>;

// Tells a pool from all others, whichever process made them. Handles of a pool and of its pointers
// have it at their end, where no server looks; elsewhere are zeros.
using PoolTag = std::array<std::byte, 16>;
PoolTag pool_tag_of(const SharedHandle& handle);
void set_pool_tag(SharedHandle& handle, const PoolTag& tag);

// Safe from any thread.
class SharedMemory {
 public:
  SharedMemory(Session& session, MemoryState& memory) : session_(session), memory_(memory) {}
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // cuIpcGetMemHandle: the same handle each time, until the memory is freed.
  CUresult share(const Memory& memory, SharedHandle& handle) EXCLUDES(mutex_);
  // Whether share() has given it.
  bool is_own(const SharedHandle& handle) EXCLUDES(mutex_);
  void on_freed(std::uint64_t base) EXCLUDES(mutex_);
  // cuIpcOpenMemHandle, in the current context: the same address each time, until it was closed as
  // often. `accessors`: devices that may use it besides, a bit each.
  CUresult open(const SharedHandle& handle, CUdeviceptr& address, std::uint64_t accessors = 0)
      EXCLUDES(mutex_);
  // Lets another device use the opened pointers of a pool, or no more.
  CUresult set_access(std::uint64_t pool, CUdevice accessor, bool allowed) EXCLUDES(mutex_);
  CUresult close(CUdeviceptr address) EXCLUDES(mutex_);
  // Frees a pointer of another process's pool, which open() has opened and `pool` owns since.
  // CUDA_ERROR_INVALID_VALUE for anything else.
  CUresult close_pointer(CUdeviceptr address) EXCLUDES(mutex_);
  // Closes what the map has forgotten with its context.
  void on_forgotten(const Memory& memory) EXCLUDES(mutex_);

  // An open file that stands for an allocation of cuMemCreate, in whatever process it is; the
  // caller's. The server lets the allocation go when no process has the file any more.
  CUresult export_file(std::uint64_t allocation, Fd& file) EXCLUDES(mutex_);
  // The same for a pool, which the commands call `name`.
  CUresult export_pool(std::uint64_t name, const PoolTag& tag, Fd& file) EXCLUDES(mutex_);
  // Whose memory the pool is of that such a file stands for.
  CUresult import_pool(int file, PoolTag& tag, CUdevice& device);
  // The allocation that such a file stands for, as a new one of this process.
  CUresult import_file(int file, CUmemGenericAllocationHandle& handle) EXCLUDES(mutex_);

 private:
  struct Opened {
    std::uint64_t allocation = 0;
    std::uint64_t block_base = 0;
    std::uint64_t block_bytes = 0;
    std::uint32_t count = 0;
    SharedHandle handle{};
  };
  struct Exported {
    Fd ours;
    SharedHandle handle{};
  };
  // What the server tells of an allocation that it has opened.
  struct Block {
    std::uint64_t allocation = 0;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    CUdevice device = 0;
    std::uint64_t block_id = 0;
  };

  template <class Command>
  CUresult export_by(const Command& command, const PoolTag& tag, Fd& file) EXCLUDES(mutex_);
  // Makes the file in which a handle waits for whoever looks, and remembers its other end.
  CUresult stand_in(const SharedHandle& handle, Fd& file) REQUIRES(mutex_);
  CUresult ask_for(const SharedHandle& handle, Block& block);
  CUresult map_block(const Block& block, std::uint64_t base, std::uint64_t accessors);
  CUresult grant(std::uint64_t base, std::uint64_t bytes, CUdevice device, bool allowed);
  void unmap_block(std::uint64_t base, std::uint64_t bytes);
  void release(std::uint64_t allocation);
  void unmap(const Opened& opened);
  // Tells the server of files that nobody has any more.
  void drop_dead_files() REQUIRES(mutex_);

  Session& session_;
  MemoryState& memory_;
  Mutex mutex_;
  std::map<std::uint64_t, SharedHandle> shared_ GUARDED_BY(mutex_);  // By address.
  std::map<std::uint64_t, Opened> opened_ GUARDED_BY(mutex_);        // By address.
  std::vector<Exported> exported_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
