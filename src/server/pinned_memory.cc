// PinnedMemory: host memory of this process that the GPU copies from and to directly.
#include "server/pinned_memory.h"

#include <sys/mman.h>

#include <utility>

#include "base/assert.h"
#include "cuda/types.h"

namespace flyt::server {

PinnedMemory PinnedMemory::make(const driver::Table& driver, std::uint64_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return {};
  PinnedMemory memory(&driver, mutable_bytes_at(mapped, bytes));
  memory.pin();
  return memory;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : driver_(other.driver_),
      bytes_(std::exchange(other.bytes_, {})),
      pinned_(std::exchange(other.pinned_, false)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(bytes_, other.bytes_);
  std::swap(pinned_, other.pinned_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (bytes_.empty()) return;
  // The context may be gone, and the registration with it: an error here means nothing.
  if (pinned_) driver_->cuMemHostUnregister(bytes_.data());
  munmap(bytes_.data(), bytes_.size());
}

void PinnedMemory::pin() {
  if (pinned_ || driver_->cuMemHostRegister_v2 == nullptr) return;
  CUcontext context = nullptr;
  if (driver_->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return;
  pinned_ = driver_->cuMemHostRegister_v2(bytes_.data(), bytes_.size(),
                                          CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
}

rpc::Chunk* PinnedBufferPool::acquire() {
  const Lock lock(mutex_);
  if (free_.empty()) {
    if (all_.size() == kChunksMax) return nullptr;
    PinnedMemory memory = PinnedMemory::make(driver_, kChunkBytes);
    if (!memory) return nullptr;
    all_.push_back(std::make_unique<Owned>(*this, std::move(memory), all_.size()));
    return &all_.back()->chunk;
  }
  rpc::Chunk* chunk = free_.back();
  free_.pop_back();
  all_[chunk->tag()]->memory.pin();
  return chunk;
}

void PinnedBufferPool::recycle(rpc::Chunk& chunk) {
  const Lock lock(mutex_);
  free_.push_back(&chunk);
}

Staging::Slot Staging::take(std::size_t bytes, std::size_t bytes_max) {
  FLYT_ASSERT(bytes <= kSlotBytes);
  const bool small = bytes <= kSmallSlotBytes;
  const std::size_t slot_bytes = small ? kSmallSlotBytes : kSlotBytes;
  const Lock lock(mutex_);
  std::vector<std::byte*>& free = small ? small_ : large_;
  if (free.empty()) {
    const std::size_t slab_bytes = small ? kSlotBytes : kSlabBytes;
    std::size_t taken = slab_bytes;
    for (const PinnedMemory& slab : slabs_) taken += slab.bytes().size();
    if (taken > bytes_max) return {};
    PinnedMemory slab = PinnedMemory::make(driver_, slab_bytes);
    if (!slab) return {};
    for (std::size_t at = 0; at < slab_bytes; at += slot_bytes) {
      free.push_back(slab.bytes().data() + at);
    }
    slabs_.push_back(std::move(slab));
  }
  std::byte* data = free.back();
  free.pop_back();
  return {data, slot_bytes};
}

void Staging::give(const Slot& slot) {
  const Lock lock(mutex_);
  (slot.bytes == kSmallSlotBytes ? small_ : large_).push_back(slot.data);
}

}  // namespace flyt::server
