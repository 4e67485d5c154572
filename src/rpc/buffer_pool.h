// BufferPool: memory chunks that an Endpoint receives into and that handlers may keep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"

namespace flyt::rpc {

class BufferPool;

// A chunk of received bytes with the count of those who need it. Made by a pool and returned to
// it when the last ChunkRef is gone. The memory's owner is the pool.
class Chunk {
 public:
  Chunk(BufferPool& pool, MutableBytes bytes, std::uint64_t tag)
      : pool_(pool), bytes_(bytes), tag_(tag) {}
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  MutableBytes bytes() const { return bytes_; }
  // The pool's own word: an index, a registration, whatever finds the rest.
  std::uint64_t tag() const { return tag_; }

 private:
  friend class ChunkRef;
  BufferPool& pool_;
  MutableBytes bytes_;
  std::uint64_t tag_;
  std::atomic<std::uint32_t> references_{0};
};

// Memory for received bytes. The default is HeapBufferPool; a server gives pinned memory, so that
// a copy to the device can start from the chunk itself.
class BufferPool {
 public:
  virtual ~BufferPool() = default;

  // A chunk of at least wire::kFrameBytesMax bytes (2 MiB is good) that nobody uses, or null if
  // all are in use: the Endpoint then stops reading until recycle() was called, which is how a
  // client that sends faster than the device copies is slowed down. Called by the Endpoint's main
  // thread.
  virtual Chunk* acquire() = 0;

  // The last reference is gone. Called by whatever thread dropped it.
  virtual void recycle(Chunk& chunk) = 0;
};

// Keeps a chunk from being overwritten or recycled. Copy it into whatever waits for a DMA. Copying
// and dropping are safe from any thread; one ChunkRef object belongs to one thread at a time.
class ChunkRef {
 public:
  ChunkRef() = default;
  explicit ChunkRef(Chunk* chunk) : chunk_(chunk) {
    if (chunk_ != nullptr) chunk_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  ChunkRef(const ChunkRef& other) : ChunkRef(other.chunk_) {}
  ChunkRef(ChunkRef&& other) noexcept : chunk_(std::exchange(other.chunk_, nullptr)) {}
  ChunkRef& operator=(ChunkRef other) noexcept {
    std::swap(chunk_, other.chunk_);
    return *this;
  }
  ~ChunkRef() { reset(); }

  void reset() {
    Chunk* chunk = std::exchange(chunk_, nullptr);
    if (chunk != nullptr && chunk->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      chunk->pool_.recycle(*chunk);
    }
  }

  Chunk* get() const { return chunk_; }
  Chunk* operator->() const { return chunk_; }
  explicit operator bool() const { return chunk_ != nullptr; }

  // Nobody else holds the chunk, and what others did with it has happened before this.
  bool sole() const {
    return chunk_ != nullptr && chunk_->references_.load(std::memory_order_acquire) == 1;
  }

 private:
  Chunk* chunk_ = nullptr;
};

// Ordinary memory: up to `chunks_max` chunks, allocated when first needed and kept. Must outlive
// every ChunkRef. Safe from any thread.
class HeapBufferPool final : public BufferPool {
 public:
  explicit HeapBufferPool(std::size_t chunk_bytes = 4 * kMiB, std::size_t chunks_max = 8);
  ~HeapBufferPool() override;

  Chunk* acquire() override;
  void recycle(Chunk& chunk) override;

  std::size_t chunks_in_use() const;

 private:
  struct Owned;
  const std::size_t chunk_bytes_;
  const std::size_t chunks_max_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Owned>> all_ GUARDED_BY(mutex_);
  std::vector<Chunk*> free_ GUARDED_BY(mutex_);
};

}  // namespace flyt::rpc
