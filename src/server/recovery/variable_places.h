// VariablePlaces: before the code of a session is loaded again in another process, the driver is
// brought to put its variables where they were.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "base/bytes.h"
#include "driver/table.h"
#include "server/recovery/snapshot.h"

namespace flyt::server {

// A driver that puts variables into chunks takes the first that is free, and which that is depends
// on all that it was asked for before. So in a context that is new, code of our own, each with one
// variable that fills a chunk, takes places until it has those that are wanted; just before the
// session's code comes to need one, that one is given back. Whether it went well is seen by the
// variables' addresses. Where it cannot, nothing is lost but some milliseconds.
// Safe from any thread, on which another context may be current afterwards.
class VariablePlaces {
 public:
  static constexpr std::uint64_t kChunkBytes = 2 * kMiB;
  // Memory that all of it takes at a time, and never more than half of what is free.
  static constexpr std::uint64_t kBytesMax = 576 * kChunkBytes;
  // Modules in all.
  static constexpr std::uint32_t kModulesMax = 1024;
  static constexpr std::size_t kPlacesMax = 64;

  // Makes the context of a handle index current.
  using Enter = std::function<CUresult(std::uint32_t context)>;

  VariablePlaces(const driver::Table& driver, Enter enter)
      : driver_(driver), enter_(std::move(enter)) {}
  ~VariablePlaces() { static_cast<void>(let_go()); }
  VariablePlaces(const VariablePlaces&) = delete;
  VariablePlaces& operator=(const VariablePlaces&) = delete;

  // A context is there, and as little as possible else: takes the places in which variables of it
  // were. The same `saved` each time.
  void hold(std::uint32_t context, const std::vector<SavedVariable>& saved) EXCLUDES(mutex_);
  // Code is about to be loaded. `context`: a handle index; 0: of none. `code`: its handle; 0: not
  // needed yet. Gives back the first place of the context, and those whose first variable it has.
  // Returns whether another context may be current now.
  bool aim(std::uint32_t context, std::uint64_t code) EXCLUDES(mutex_);
  // Whether places may be held now.
  bool holding() const { return holding_.load(std::memory_order_acquire); }
  // A context ends, and can still be entered; no other one is.
  void forget_context(std::uint32_t context) EXCLUDES(mutex_);

  struct Outcome {
    std::size_t wanted = 0;  // Places.
    std::size_t found = 0;   // Those that the driver was about to take when they were given back.
    std::uint32_t modules = 0;
  };
  // All code has been loaded, or will not be. For good.
  Outcome let_go() EXCLUDES(mutex_);

 private:
  // What was taken at once, for one variable or many.
  struct Place {
    std::uint32_t context = 0;
    std::uint64_t owner = 0;  // Handle of the code whose variable there is the first.
    bool first = false;       // Of its context.
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
    bool aimed = false;  // It was given back, or nobody could.
  };
  struct Filler {
    CUmodule module = nullptr;
    std::uint32_t context = 0;
    std::uint64_t base = 0;
    std::uint64_t bytes = 0;
  };

  bool plan(const std::vector<SavedVariable>& saved) REQUIRES(mutex_);
  bool plan_one(const SavedVariable& variable) REQUIRES(mutex_);
  bool held(const Place& place) const REQUIRES(mutex_);
  bool missing(std::uint32_t context) const REQUIRES(mutex_);
  // In the context that is current, which is that. Null: there is no room, or the driver refuses.
  const Filler* load(std::uint32_t context, std::uint64_t bytes) REQUIRES(mutex_);
  bool aim_at(Place& place) REQUIRES(mutex_);
  template <class Goes>
  void unload_if(Goes&& goes) REQUIRES(mutex_);
  void end() REQUIRES(mutex_);

  const driver::Table& driver_;
  const Enter enter_;
  std::atomic<bool> holding_{false};
  Mutex mutex_;
  bool planned_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
  bool aimed_ GUARDED_BY(mutex_) = false;         // Code has been loaded.
  std::vector<Place> places_ GUARDED_BY(mutex_);  // As their variables came to be.
  std::vector<Filler> fillers_ GUARDED_BY(mutex_);
  std::uint64_t bytes_ GUARDED_BY(mutex_) = 0;  // Of fillers.
  std::uint64_t bytes_max_ GUARDED_BY(mutex_) = 0;
  Outcome outcome_ GUARDED_BY(mutex_);
};

}  // namespace flyt::server
