// Pools: stream-ordered allocation, kept by ourselves over the arena, so that it works alike on
// every driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "server/memory/arena.h"
#include "server/streams/event_pool.h"

namespace flyt::server {

class Session;

// A stream as allocation sees it.
struct StreamPlace {
  std::uint32_t context = 0;
  CUstream stream = nullptr;
  bool operator==(const StreamPlace&) const = default;
};

// Memory freed in a stream may be given out again at once in the same stream, whose order keeps the
// uses apart; elsewhere when the GPU has passed the free, or behind a wait for it. Safe from any
// thread; only allocate() and trim() may take long.
class Pools {
 public:
  static constexpr std::uint64_t kChunkBytes = 32 * kMiB;
  static constexpr std::size_t kPoolsMax = 4096;

  Pools(Session& session, Arena& arena, EventPool& events)
      : session_(session), arena_(arena), events_(events) {}
  Pools(const Pools&) = delete;
  Pools& operator=(const Pools&) = delete;

  struct Allocation {
    std::uint64_t address = 0;
    std::uint64_t chunk_address = 0;
    std::uint64_t chunk_bytes = 0;
    std::uint64_t chunk_id = 0;
  };

  // bytes_max 0: no limit but the device's.
  CUresult create(std::uint64_t pool, CUdevice device, std::uint64_t bytes_max) EXCLUDES(mutex_);
  // What is allocated stays until it is freed.
  CUresult destroy(std::uint64_t pool) EXCLUDES(mutex_);

  // None where there is no such pool.
  std::optional<CUdevice> device_of(std::uint64_t pool) EXCLUDES(mutex_);

  // From memory that the pool has; CUDA_ERROR_NOT_READY if it must grow. The stream's context is
  // current.
  CUresult take(std::uint64_t pool, std::uint64_t bytes, const StreamPlace& place, Allocation& out)
      EXCLUDES(mutex_);
  // Grows, or waits for memory that other streams have freed, if it must. Not on the main thread.
  CUresult allocate(std::uint64_t pool, std::uint64_t bytes, const StreamPlace& place,
                    Allocation& out) EXCLUDES(mutex_);
  // Freed where `place` stands now; its context is current. False if it is none of the pools'.
  bool free(std::uint64_t address, const StreamPlace& place) EXCLUDES(mutex_);
  // The same in two steps, as the arena has them: unknown at once, used again after recycle().
  struct Retired {
    std::uint64_t pool = 0;
    std::uint64_t address = 0;
    std::uint64_t footprint = 0;
  };
  std::optional<Retired> retire(std::uint64_t address) EXCLUDES(mutex_);
  void recycle(const Retired& retired) EXCLUDES(mutex_);

  // An allocation of the process before, in memory that the arena has adopted: all work is done.
  // CUDA_ERROR_INVALID_VALUE if it does not lie there, or overlaps another one.
  CUresult restore(std::uint64_t pool, std::uint64_t address, std::uint64_t bytes, Allocation& out)
      EXCLUDES(mutex_);

  CUresult get(std::uint64_t pool, CUmemPool_attribute attribute, std::uint64_t& value)
      EXCLUDES(mutex_);
  CUresult set(std::uint64_t pool, CUmemPool_attribute attribute, std::uint64_t value)
      EXCLUDES(mutex_);
  CUresult trim(std::uint64_t pool, std::uint64_t bytes_to_keep) EXCLUDES(mutex_);

  // The driver has taken these back.
  void forget_chunks(const std::vector<Arena::Allocation>& chunks) EXCLUDES(mutex_);
  // A stream dies: its address may come back as another one's.
  void forget_stream(CUstream stream) EXCLUDES(mutex_);
  // Another takes a stream's place, behind all that it has to do.
  void rename_stream(const StreamPlace& old, CUstream fresh) EXCLUDES(mutex_);
  // After a wait of the client: whether release_excess() has something to give back.
  bool has_excess() const { return maybe_excess_.load(std::memory_order_relaxed); }
  // Gives back what pools hold beyond their release thresholds.
  void release_excess() EXCLUDES(mutex_);

 private:
  struct Freed {
    std::uint64_t bytes = 0;
    StreamPlace place;             // stream null and context 0: forgotten, only the fence counts.
    std::shared_ptr<Fence> fence;  // Null: the GPU has passed.
  };
  struct Live {
    std::uint64_t bytes = 0;      // As asked for.
    std::uint64_t footprint = 0;  // As taken.
  };
  struct Pool {
    CUdevice device = 0;
    std::uint64_t bytes_max = 0;
    std::uint64_t release_threshold = 0;
    bool follow_dependencies = true;
    bool opportunistic = true;
    bool internal_dependencies = true;
    bool dying = false;
    std::uint64_t reserved = 0;
    std::uint64_t reserved_high = 0;
    std::uint64_t used = 0;
    std::uint64_t used_high = 0;
    std::map<std::uint64_t, Arena::Allocation> chunks;
    std::map<std::uint64_t, Freed> freed;
    std::map<std::uint64_t, Live> live;
  };
  using PoolMap = std::map<std::uint64_t, Pool>;

  Pool* find(std::uint64_t pool) REQUIRES(mutex_);
  // The pool's chunk around an address; one that it gets for that; null: it cannot be the pool's.
  const Arena::Allocation* restore_chunk(Pool& pool, std::uint64_t address) REQUIRES(mutex_);
  bool take_locked(Pool& pool, std::uint64_t bytes, const StreamPlace& place, bool may_wait,
                   Allocation& out) REQUIRES(mutex_);
  void use(Pool& pool, std::map<std::uint64_t, Freed>::iterator freed, std::uint64_t bytes,
           Allocation& out) REQUIRES(mutex_);
  std::optional<Retired> retire_locked(std::uint64_t address) REQUIRES(mutex_);
  void recycle_locked(const Retired& retired, const StreamPlace& place,
                      std::shared_ptr<Fence> fence) REQUIRES(mutex_);
  CUresult grow(std::uint64_t pool_name, std::uint64_t bytes, std::uint32_t context)
      EXCLUDES(mutex_);
  // Turns freed ranges that the GPU has passed into ones without a fence, and joins neighbours.
  void settle(Pool& pool) REQUIRES(mutex_);
  void insert(Pool& pool, std::uint64_t address, Freed freed) REQUIRES(mutex_);
  // Takes chunks without live memory out of a pool until `bytes_to_keep` are left.
  std::vector<Arena::Allocation> shed(Pool& pool, std::uint64_t bytes_to_keep) REQUIRES(mutex_);
  void give_back(const std::vector<Arena::Allocation>& chunks);

  Session& session_;
  Arena& arena_;
  EventPool& events_;
  mutable Mutex mutex_;
  PoolMap pools_ GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::uint64_t> pool_of_ GUARDED_BY(mutex_);  // Address -> pool.
  std::atomic<bool> maybe_excess_{false};
};

}  // namespace flyt::server
