// HandleTable: the client's objects of one kind, by the handle values that the program holds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/annotations.h"
#include "base/assert.h"
#include "wire/handle.h"

namespace flyt::client {

// Gives out handle values and keeps one State for each. Safe from any thread. find() takes no lock
// and a few nanoseconds. A State stays at its address until its slot is used again, so a program
// that uses a handle while it destroys it reads a stale State, never freed memory. State must be
// default-constructible and have `void reset()`, which readies it for the next user. Whoever has
// tables names their kinds in its constructor, in a .cc: beside the member, making and ending one
// would be compiled in every file.
template <class State>
class HandleTable {
 public:
  struct Made {
    std::uint64_t handle = 0;  // 0: no slot is left.
    State* state = nullptr;
    explicit operator bool() const { return handle != 0; }
  };

  explicit HandleTable(wire::HandleKind kind)
      : kind_(kind), directory_(std::make_unique<Directory>()) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    for (auto& entry : *directory_) std::unique_ptr<Chunk>(entry.load(std::memory_order_relaxed));
  }

  // A fresh handle, whose State has been reset; found by others from publish() on.
  Made make() EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    const std::uint32_t index = free_.size() > kReuseAfter ? take_free() : take_new();
    if (index == 0) return {};
    Slot& slot = at(index);
    slot.state.reset();
    slot.generation = wire::next_generation(slot.generation);
    return {wire::Handle::make(kind_, slot.generation, index).value, &slot.state};
  }

  // Makes a handle of make() findable.
  void publish(std::uint64_t handle) {
    at(wire::Handle{handle}.index()).handle.store(handle, std::memory_order_release);
  }

  // Gives back a handle that was never published, because its creation failed.
  void discard(std::uint64_t handle) EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    free_.push_back(wire::Handle{handle}.index());
  }

  // Null for anything that is not a live handle of this kind.
  State* find(std::uint64_t handle) const {
    const std::uint32_t index = wire::Handle{handle}.index();
    const Chunk* chunk = (*directory_)[index / kChunkSlots].load(std::memory_order_acquire);
    if (chunk == nullptr || handle == 0) return nullptr;
    const Slot& slot = chunk->slots[index % kChunkSlots];
    if (slot.handle.load(std::memory_order_acquire) != handle) return nullptr;
    return const_cast<State*>(&slot.state);
  }

  // Ends a handle; false if it was not live, or another thread ended it first.
  bool drop(std::uint64_t handle) EXCLUDES(mutex_) {
    if (find(handle) == nullptr) return false;
    const std::uint32_t index = wire::Handle{handle}.index();
    std::uint64_t expected = handle;
    if (!at(index).handle.compare_exchange_strong(expected, 0)) return false;
    const Lock lock(mutex_);
    free_.push_back(index);
    return true;
  }

  // Calls visit(handle, state) for every live handle. Handles that come or go meanwhile may or may
  // not be seen.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& entry : *directory_) {
      Chunk* chunk = entry.load(std::memory_order_acquire);
      if (chunk == nullptr) return;
      for (Slot& slot : chunk->slots) {
        const std::uint64_t handle = slot.handle.load(std::memory_order_acquire);
        if (handle != 0) visit(handle, slot.state);
      }
    }
  }

 private:
  static constexpr std::uint32_t kChunkSlots = 256;
  static constexpr std::uint32_t kChunks = (wire::kHandleIndexMax + 1) / kChunkSlots;
  // Slots rest for a while, so that a stale handle stays recognisable.
  static constexpr std::size_t kReuseAfter = 64;

  struct Slot {
    std::atomic<std::uint64_t> handle{0};
    std::uint32_t generation = 0;
    State state{};
  };
  struct Chunk {
    std::array<Slot, kChunkSlots> slots;
  };
  using Directory = std::array<std::atomic<Chunk*>, kChunks>;

  Slot& at(std::uint32_t index) const {
    Chunk* chunk = (*directory_)[index / kChunkSlots].load(std::memory_order_acquire);
    FLYT_ASSERT(chunk != nullptr);
    return chunk->slots[index % kChunkSlots];
  }
  std::uint32_t take_free() REQUIRES(mutex_) {
    const std::uint32_t index = free_.front();
    free_.pop_front();
    return index;
  }
  // Index 0 stays unused: it means "none" on the wire.
  std::uint32_t take_new() REQUIRES(mutex_) {
    if (used_ >= wire::kHandleIndexMax) return free_.empty() ? 0 : take_free();
    const std::uint32_t index = ++used_;
    auto& entry = (*directory_)[index / kChunkSlots];
    if (entry.load(std::memory_order_relaxed) == nullptr) {
      entry.store(std::make_unique<Chunk>().release(), std::memory_order_release);
    }
    return index;
  }

  const wire::HandleKind kind_;
  std::unique_ptr<Directory> directory_;
  Mutex mutex_;
  std::uint32_t used_ GUARDED_BY(mutex_) = 0;
  std::deque<std::uint32_t> free_ GUARDED_BY(mutex_);
};

}  // namespace flyt::client
