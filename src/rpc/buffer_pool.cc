#include "rpc/buffer_pool.h"

#include "wire/frame.h"

namespace flyt::rpc {

struct HeapBufferPool::Owned {
  Owned(HeapBufferPool& pool, std::size_t bytes, std::uint64_t tag)
      : memory(std::make_unique_for_overwrite<std::byte[]>(bytes)),
        chunk(pool, MutableBytes(memory.get(), bytes), tag) {}

  std::unique_ptr<std::byte[]> memory;
  Chunk chunk;
};

HeapBufferPool::HeapBufferPool(std::size_t chunk_bytes, std::size_t chunks_max)
    : chunk_bytes_(chunk_bytes), chunks_max_(chunks_max) {
  FLYT_ASSERT(chunk_bytes >= wire::kFrameBytesMax && chunks_max >= 1);
}

HeapBufferPool::~HeapBufferPool() { FLYT_ASSERT(chunks_in_use() == 0); }

Chunk* HeapBufferPool::acquire() {
  const Lock lock(mutex_);
  if (!free_.empty()) {
    Chunk* chunk = free_.back();
    free_.pop_back();
    return chunk;
  }
  if (all_.size() == chunks_max_) return nullptr;
  all_.push_back(std::make_unique<Owned>(*this, chunk_bytes_, all_.size()));
  return &all_.back()->chunk;
}

void HeapBufferPool::recycle(Chunk& chunk) {
  const Lock lock(mutex_);
  free_.push_back(&chunk);
}

std::size_t HeapBufferPool::chunks_in_use() const {
  const Lock lock(mutex_);
  return all_.size() - free_.size();
}

}  // namespace flyt::rpc
