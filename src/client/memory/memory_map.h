// MemoryMap: what the client knows about every address that CUDA knows: no round trip is needed to
// say what a pointer is.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "cuda/types.h"

namespace flyt::client {

enum class MemoryKind : std::uint8_t {
  kDevice,      // cuMemAlloc, cuMemAllocPitch
  kPool,        // cuMemAllocAsync
  kMapped,      // cuMemMap
  kGlobal,      // A variable of a module.
  kPinned,      // cuMemHostAlloc, cuMemAllocHost
  kRegistered,  // cuMemHostRegister
  kOpened,      // cuIpcOpenMemHandle
  kAlias,       // Where kernels find registered memory whose own address they cannot use.
  kGraph,       // What nodes of graphs allocate.
  // Managed memory is always mirrored, that is, kernels reach it.
  kManaged,          // cuMemAllocManaged
  kManagedVariable,  // A variable of a module or library.
};

constexpr bool on_device(MemoryKind kind) {
  return kind != MemoryKind::kPinned && kind != MemoryKind::kRegistered;
}

// Whether a mapping is asked to end, and a process that ended had done that, and not said so.
enum class Unmapping : std::uint8_t { kNo, kAsked, kDone };

// Devices that memory is opened to are noted as bits.
inline constexpr CUdevice kAccessorsMax = 64;

// One range of addresses.
struct Memory {
  MemoryKind kind = MemoryKind::kDevice;
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
  std::uint64_t context = 0;  // Handle; 0 for memory that belongs to no context.
  CUdevice device = 0;
  std::uint32_t flags = 0;      // Host memory: as cuMemHostGetFlags tells them.
  std::uint64_t buffer_id = 0;  // Filled in by add().
  // The physical block behind it; 0 bytes: the range itself.
  std::uint64_t mapping_base = 0;
  std::uint64_t mapping_bytes = 0;
  std::uint64_t block_id = 0;
  std::uint64_t pool = 0;           // kPool: the CUmemoryPool.
  std::uint64_t allocation = 0;     // kMapped: the CUmemGenericAllocationHandle.
  std::uint64_t reserved_base = 0;  // kMapped: the reservation around it.
  std::uint64_t reserved_bytes = 0;
  std::uint32_t access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  // kMapped: other devices that may use it, a bit each.
  std::uint64_t readers = 0;
  std::uint64_t writers = 0;
  Unmapping unmapping = Unmapping::kNo;  // kMapped.
  std::optional<bool> sync_memops;       // What the program has said, if it has.
  // Kernels reach it, at device_base: the server has mapped the very memory (PinnedHeap::shared()),
  // or keeps a mirror of it (HostMirror).
  bool mirrored = false;
  std::uint64_t device_base = 0;

  bool on_device() const { return client::on_device(kind); }
  bool is_managed() const {
    return kind == MemoryKind::kManaged || kind == MemoryKind::kManagedVariable;
  }
  // Host memory that the GPU may not write.
  bool read_only() const {
    return kind == MemoryKind::kRegistered && (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  }
  // By any device, as accessible().
  bool writable() const {
    if (kind != MemoryKind::kMapped) return !read_only();
    return access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE || writers != 0;
  }
  // Whether streams write and await words in it, as NVIDIA's driver has it.
  bool takes_words() const { return kind != MemoryKind::kPool && !is_managed(); }
  std::uint64_t end() const { return base + bytes; }
  // By any device: a copy is done by one that may.
  bool accessible() const { return access != 0 || readers != 0 || writers != 0; }
  // As cuMemGetAccess tells it.
  std::uint32_t access_of(CUdevice by) const {
    if (by == device) return access;
    if (by < 0 || by >= kAccessorsMax) return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if ((writers >> by & 1) != 0) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (readers >> by & 1) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
  void set_access(CUdevice by, std::uint32_t flags) {
    if (by == device) {
      access = flags;
      return;
    }
    const std::uint64_t bit = std::uint64_t{1} << by;
    readers = flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? readers | bit : readers & ~bit;
    writers = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? writers | bit : writers & ~bit;
  }
  // An address in it as kernels use it.
  std::uint64_t device_address(std::uint64_t address) const {
    return mirrored ? address - base + device_base : address;
  }
};

// Safe from any thread: readers share a lock. Ranges never overlap.
class MemoryMap {
 public:
  // False, and nothing changes, if the range is empty, wraps or overlaps another one.
  bool add(Memory memory);
  // Takes out the range that starts at `base` if it is of one of the kinds.
  template <class... Kinds>
  std::optional<Memory> remove(std::uint64_t base, Kinds... kinds) {
    return remove_if(base, [&](const Memory& memory) { return (... || (memory.kind == kinds)); });
  }
  // All that a dying context owned.
  std::vector<Memory> remove_owned_by(std::uint64_t context);

  std::optional<Memory> find(std::uint64_t address) const;
  // Whether any byte of [base, base + bytes) is in a range; a range that wraps counts as such.
  bool overlaps(std::uint64_t base, std::uint64_t bytes) const;
  // Changes the range around `address`; false if there is none.
  template <class Change>
  bool update(std::uint64_t address, Change&& change) {
    const std::unique_lock lock(mutex_);
    Memory* memory = locate(address);
    if (memory == nullptr) return false;
    change(*memory);
    return true;
  }
  // Every range that begins in [base, base + bytes), in order of addresses.
  std::vector<Memory> within(std::uint64_t base, std::uint64_t bytes) const;

  // What a copy or fill may touch.
  enum class Place : std::uint8_t {
    kDevice,    // Device memory, all of it ours and accessible.
    kPinned,    // Page-locked host memory.
    kPageable,  // Nothing CUDA knows: ordinary host memory, or nonsense.
    kBeyond,    // Begins in page-locked host memory and leaves its pages.
    kBad,       // Begins in device memory and leaves it, or may not be accessed.
  };
  struct Placed {
    Place place = Place::kPageable;
    Memory memory;  // The range at the first byte; none for kPageable.
    bool writable = true;

    bool on_gpu_or_pinned() const { return place == Place::kDevice || place == Place::kPinned; }
  };
  // bytes > 0. Adjacent mappings of virtual memory count as one.
  Placed place(std::uint64_t address, std::uint64_t bytes) const;

 private:
  template <class Test>
  std::optional<Memory> remove_if(std::uint64_t base, Test&& test) {
    const std::unique_lock lock(mutex_);
    const auto found = by_base_.find(base);
    if (found == by_base_.end() || !test(found->second)) return std::nullopt;
    std::optional<Memory> memory(found->second);
    by_base_.erase(found);
    return memory;
  }
  const Memory* locate(std::uint64_t address) const;
  Memory* locate(std::uint64_t address) {
    return const_cast<Memory*>(std::as_const(*this).locate(address));
  }
  bool overlaps_locked(std::uint64_t base, std::uint64_t bytes) const;

  mutable std::shared_mutex mutex_;  // Guards all below.
  std::map<std::uint64_t, Memory> by_base_;
  std::uint64_t next_buffer_id_ = 1;
};

}  // namespace flyt::client
