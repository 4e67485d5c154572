// PinnedMemory: host memory of this process that the GPU copies from and to directly.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "driver/table.h"
#include "rpc/buffer_pool.h"

namespace flyt::server {

// Pages that are registered with the driver if it lets us. They are mapped here and not allocated
// by the driver, whose allocations die with the context they were made in; registered pages just
// cease to be pinned, and a copy from or to them then takes the driver's own, slower way.
class PinnedMemory {
 public:
  // Empty if the system has no memory. Registers only if the calling thread has a context.
  static PinnedMemory make(const driver::Table& driver, std::uint64_t bytes);
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  explicit operator bool() const { return !bytes_.empty(); }
  MutableBytes bytes() const { return bytes_; }
  bool pinned() const { return pinned_; }
  // Registers if that was not possible before.
  void pin();

 private:
  PinnedMemory(const driver::Table* driver, MutableBytes bytes) : driver_(driver), bytes_(bytes) {}

  const driver::Table* driver_ = nullptr;
  MutableBytes bytes_;
  bool pinned_ = false;
};

// What a session's Endpoint receives into, so that copies to the device start from the received
// bytes. Must outlive every ChunkRef. Safe from any thread.
class PinnedBufferPool final : public rpc::BufferPool {
 public:
  static constexpr std::size_t kChunkBytes = 4 * kMiB;
  static constexpr std::size_t kChunksMax = 24;

  explicit PinnedBufferPool(const driver::Table& driver) : driver_(driver) {}

  rpc::Chunk* acquire() override EXCLUDES(mutex_);
  void recycle(rpc::Chunk& chunk) override EXCLUDES(mutex_);

 private:
  struct Owned {
    Owned(BufferPool& pool, PinnedMemory mapped, std::uint64_t index)
        : memory(std::move(mapped)), chunk(pool, memory.bytes(), index) {}
    PinnedMemory memory;
    rpc::Chunk chunk;
  };
  const driver::Table& driver_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Owned>> all_ GUARDED_BY(mutex_);
  std::vector<rpc::Chunk*> free_ GUARDED_BY(mutex_);
};

// Slots of pinned memory through which copies to the host go. Safe from any thread.
class Staging {
 public:
  static constexpr std::size_t kSlotBytes = 1 * kMiB;
  static constexpr std::size_t kSmallSlotBytes = 16 * kKiB;
  static constexpr std::size_t kSlabBytes = 8 * kMiB;
  // What copies may take in all before they wait for the peer to take the data...
  static constexpr std::size_t kBytesMax = 256 * kMiB;
  // ... and when waiting could be for ever, because a stream waits for the peer itself.
  static constexpr std::size_t kBytesHardMax = 1 * kGiB;

  struct Slot {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // 0: none.
    explicit operator bool() const { return bytes != 0; }
  };

  explicit Staging(const driver::Table& driver) : driver_(driver) {}

  // A slot for `bytes` (at most kSlotBytes), or none if that would exceed the limit.
  Slot take(std::size_t bytes, std::size_t bytes_max) EXCLUDES(mutex_);
  void give(const Slot& slot) EXCLUDES(mutex_);

 private:
  const driver::Table& driver_;
  Mutex mutex_;
  std::vector<PinnedMemory> slabs_ GUARDED_BY(mutex_);
  std::vector<std::byte*> large_ GUARDED_BY(mutex_);
  std::vector<std::byte*> small_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
