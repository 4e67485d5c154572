// PinnedMemory: host memory of this process that the GPU copies from and to directly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "driver/table.h"
#include "rpc/buffer_pool.h"

namespace flyt::server {

// Blocks of one size that are registered with the driver ahead of need. A driver may wait for
// running kernels before it registers memory, and a copy that meets memory which is not registered
// waits for its stream; so whoever takes a block does neither, as long as the reserve lasts.
//
// The blocks are mapped here and not allocated by the driver, whose allocations die with the
// context they were made in; registered pages just cease to be pinned. Safe from any thread.
class PinnedStock {
 public:
  struct Sizes {
    std::size_t block_bytes = 0;
    std::size_t reserve = 0;  // Free blocks that shall be registered.
  };
  // How long a taker waits for a block that is being registered before it gets one that is not.
  static constexpr Duration kPatience = std::chrono::milliseconds(50);

  PinnedStock(const driver::Table& driver, Sizes sizes) : driver_(driver), sizes_(sizes) {}
  PinnedStock(const PinnedStock&) = delete;
  PinnedStock& operator=(const PinnedStock&) = delete;
  ~PinnedStock();

  // What to call when the reserve runs short: it has some thread call restock(), or given_up() if
  // there is no context. Not called again before one of them was. From any thread.
  void on_shortage(std::function<void()> call);

  // The index of a free block. None if `blocks_max` exist and none of them is free, or if the
  // system has no memory.
  std::optional<std::size_t> take(std::size_t blocks_max) EXCLUDES(mutex_);
  // The same of one that is registered, without any wait.
  std::optional<std::size_t> take_registered(std::size_t blocks_max) EXCLUDES(mutex_);
  void give(std::size_t index) EXCLUDES(mutex_);
  MutableBytes bytes(std::size_t index) const EXCLUDES(mutex_);
  bool pinned(std::size_t index) const EXCLUDES(mutex_);

  // Has `wanted` blocks registered, in use or not, and waits for them as long as each takes no
  // longer than kPatience. Returns how many are; `blocks_max` where none can be.
  std::size_t prepare(std::size_t wanted, std::size_t blocks_max) EXCLUDES(mutex_);

  // Registers what there is, and more until the reserve is full. With `context` current, on a
  // thread that may wait for the GPU.
  void restock(CUcontext context) EXCLUDES(mutex_);
  void given_up() EXCLUDES(mutex_);
  // Gives the system the memory of one free block beyond the reserve; its index stays. False: there
  // is none, or the driver does not let it go. With a context current, where restock() may be
  // called.
  bool rest_one() EXCLUDES(mutex_);
  bool may_rest() const EXCLUDES(mutex_);
  // A context is gone, and what was registered in it is not any more: it is registered anew.
  void forget(CUcontext context) EXCLUDES(mutex_);

 private:
  struct Block {
    MutableBytes bytes;
    CUcontext home = nullptr;  // Where it is registered; null: nowhere.
    bool taken = false;
    bool registering = false;  // Or the opposite.
    bool resting = false;      // Free, without memory, and nowhere registered.
  };

  std::optional<std::size_t> find_free(bool pinned) const REQUIRES(mutex_);
  std::size_t reserve() const REQUIRES(mutex_);  // Free blocks that are registered.
  std::size_t registered() const REQUIRES(mutex_);
  bool scarce() const REQUIRES(mutex_);
  Block* add() REQUIRES(mutex_);
  Block* next_to_register() REQUIRES(mutex_);
  Block* resting() const REQUIRES(mutex_);
  Block* next_to_rest() const REQUIRES(mutex_);
  bool ask_for_more() REQUIRES(mutex_);  // True: the caller calls shortage_, unlocked.

  const driver::Table& driver_;
  const Sizes sizes_;
  std::function<void()> shortage_;  // Set before threads share this.
  mutable Mutex mutex_;
  Condition changed_;
  std::vector<std::unique_ptr<Block>> blocks_ GUARDED_BY(mutex_);
  std::size_t blocks_max_ GUARDED_BY(mutex_) = 0;  // The most that a taker allowed.
  std::size_t wanted_ GUARDED_BY(mutex_) = 0;      // So many shall be registered, in use or not.
  bool tried_ GUARDED_BY(mutex_) = false;          // restock() or given_up() was called.
  bool possible_ GUARDED_BY(mutex_) = false;       // The driver registers what it is given.
  bool asked_ GUARDED_BY(mutex_) = false;
  bool rests_ GUARDED_BY(mutex_) = true;  // The driver lets go what it is asked to.
};

// What a session's Endpoint receives into, so that copies to the device start from the received
// bytes. Must outlive every ChunkRef. Safe from any thread.
class PinnedBufferPool final : public rpc::BufferPool {
 public:
  static constexpr std::size_t kChunkBytes = 2 * kMiB;
  static constexpr std::size_t kChunksMax = 48;
  static constexpr std::size_t kChunksReserve = 3;

  explicit PinnedBufferPool(const driver::Table& driver)
      : stock_(driver, {kChunkBytes, kChunksReserve}) {}

  rpc::Chunk* acquire() override EXCLUDES(mutex_);
  void recycle(rpc::Chunk& chunk) override { stock_.give(chunk.tag()); }
  PinnedStock& stock() { return stock_; }

 private:
  PinnedStock stock_;
  Mutex mutex_;
  std::vector<std::unique_ptr<rpc::Chunk>> chunks_ GUARDED_BY(mutex_);  // By the block's index.
};

// Slots of pinned memory through which copies to the host go. Safe from any thread.
class Staging {
 public:
  static constexpr std::size_t kSlotBytes = 1 * kMiB;
  static constexpr std::size_t kSmallSlotBytes = 16 * kKiB;
  static constexpr std::size_t kSlotsReserve = 4;
  // What copies may take in all before they wait for the peer to take the data...
  static constexpr std::size_t kBytesMax = 256 * kMiB;
  // ... and when waiting could be for ever, because a stream waits for the peer itself.
  static constexpr std::size_t kBytesHardMax = 1 * kGiB;

  struct Slot {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  // 0: none.
    std::size_t block = 0;
    explicit operator bool() const { return bytes != 0; }
  };

  explicit Staging(const driver::Table& driver) : stock_(driver, {kSlotBytes, kSlotsReserve}) {}

  // What a driver does not know it copies to only when the stream is there, and the caller waits.
  enum class Memory : std::uint8_t { kAny, kRegistered };
  // A slot for `bytes` (at most kSlotBytes), or none if that would exceed the limit; of kRegistered
  // also if there is none at once.
  Slot take(std::size_t bytes, std::size_t bytes_max, Memory memory = Memory::kAny)
      EXCLUDES(mutex_);
  void give(const Slot& slot) EXCLUDES(mutex_);
  PinnedStock& stock() { return stock_; }

 private:
  PinnedStock stock_;
  Mutex mutex_;
  std::vector<Slot> small_ GUARDED_BY(mutex_);  // Of blocks that were cut up.
};

// The host memory that a session's bytes go through. Registering it takes a driver 10 to 20 ms, so
// a process that waits for its client does it ahead.
struct HostBuffers {
  explicit HostBuffers(const driver::Table& driver) : received(driver), staging(driver) {}
  // With `context` current, which is new: registers the reserves in it.
  void restock(CUcontext context);
  // The driver has destroyed a context, and with it what was registered there.
  void forget(CUcontext context);

  PinnedBufferPool received;
  Staging staging;
};

}  // namespace flyt::server
