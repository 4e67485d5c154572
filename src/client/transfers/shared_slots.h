// SharedSlots: memory that the program, the server and the GPU share, handed out in slots.
//
// Every context that needs them gets an area of its own: a page of words, which the GPU writes to
// say how far it has come, and slots for data on their way. Only sessions whose two sides share
// memory have them (PinnedHeap::shared()).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "client/context.h"
#include "client/transfers/attempts.h"
#include "cuda/types.h"

namespace flyt::client {

class Session;

// Safe from any thread.
class SharedSlots {
 public:
  static constexpr std::size_t kWords = 512;

  struct Area {
    Area(std::uint64_t area_base, std::size_t slots)
        : base(area_base), taken(slots), tickets(slots) {}
    // The first of the kWords words are the slots', the others the caller's.
    std::atomic<std::uint64_t>& word(std::size_t index) const;

    const std::uint64_t base;
    std::vector<std::atomic<bool>> taken;
    // What a slot's word must say before the slot may be used again.
    std::vector<std::atomic<std::uint64_t>> tickets;
  };

  // `slot_bytes`: whole pages.
  SharedSlots(Session& session, std::size_t slots, std::uint64_t slot_bytes)
      : session_(session), slots_(slots), slot_bytes_(slot_bytes) {}
  SharedSlots(const SharedSlots&) = delete;
  SharedSlots& operator=(const SharedSlots&) = delete;

  // A slot in its holder's hands; it goes back with this object.
  class Slot {
   public:
    Slot(Slot&& other) noexcept
        : area_(std::exchange(other.area_, nullptr)),
          number_(other.number_),
          address_(other.address_) {}
    Slot& operator=(Slot&& other) noexcept {
      give_back();
      area_ = std::exchange(other.area_, nullptr);
      number_ = other.number_;
      address_ = other.address_;
      return *this;
    }
    ~Slot() { give_back(); }
    std::uint64_t address() const { return address_; }
    // Posts the write of the slot's word: what the stream holds up to now has then used the slot.
    CUresult mark(Session& session, CUstream stream);
    // The marked work is done.
    bool reached() const { return reached(*area_, number_); }
    // The GPU may still use it: whoever has it next gets it when what the stream holds now is done,
    // or the context is gone.
    void leave(Session& session, CUstream stream) { static_cast<void>(mark(session, stream)); }

   private:
    friend class SharedSlots;
    Slot(Area& area, std::size_t number, std::uint64_t address)
        : area_(&area), number_(number), address_(address) {}
    void give_back() {
      if (area_ != nullptr) area_->taken[number_].store(false, std::memory_order_release);
    }
    static bool reached(const Area& area, std::size_t number) {
      return area.word(number).load(std::memory_order_acquire) == area.tickets[number].load();
    }

    Area* area_;
    std::size_t number_;
    std::uint64_t address_ = 0;
  };

  // An area that the server has mapped.
  struct Shared {
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    std::uint64_t context = 0;  // Handle.
  };
  std::vector<Shared> shared() EXCLUDES(shared_mutex_);

  // None where nothing is shared, or all are in use.
  std::optional<Slot> take(ContextState& context) EXCLUDES(mutex_);

  // The context's area; null where the server does not share memory with it, or not now.
  Area* area_of(ContextState& context) EXCLUDES(mutex_);

  void on_context_destroyed(std::uint64_t context) EXCLUDES(mutex_);

 private:
  struct Place {
    Area* area = nullptr;
    bool never = false;
    Attempts attempts;
  };

  Area* make() REQUIRES(mutex_);
  // CUDA_ERROR_NOT_SUPPORTED: nor will it ever be.
  CUresult share(Area& area, std::uint64_t context) REQUIRES(mutex_) EXCLUDES(shared_mutex_);
  std::uint64_t area_bytes() const;

  Session& session_;
  const std::size_t slots_;
  const std::uint64_t slot_bytes_;
  Mutex mutex_;
  // By handle of the context or, for a green one, of its primary context. Areas are never unmapped,
  // because some thread may still look at one whose context is gone; they serve another context
  // then.
  std::map<std::uint64_t, Place> places_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Area>> all_ GUARDED_BY(mutex_);
  std::vector<Area*> spare_ GUARDED_BY(mutex_);
  // Never held while the server answers.
  Mutex shared_mutex_;
  std::vector<Shared> shared_ GUARDED_BY(shared_mutex_);
};

}  // namespace flyt::client
