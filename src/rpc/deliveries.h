// Deliveries: the memory of the application that the server's data may go to, by delivery id.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "base/result.h"
#include "rpc/channel.h"

namespace flyt::rpc {

// Ids are never used twice. A delivery's data comes in the order of its offsets, without gaps; what
// comes by lanes may come earlier, and counts when the main connection comes to it. Safe from any
// thread; begin(), finish(), drop() and await() belong to the reader of the main connection, each
// by_lane() and its end_by_lane() to one lane's.
class Deliveries {
 public:
  // Pieces of one delivery that have come by lanes ahead of their turn, neighbours taken together.
  static constexpr std::size_t kPiecesAheadMax = 1024;

  std::uint64_t expect(const Destination& destination, bool detached);

  // The session goes on here: names that `before` gave away are none of these.
  void go_on_behind(const Deliveries& before);

  // Returns once the reader does not write to its memory (any more).
  void forget(std::uint64_t id);

  bool complete(std::uint64_t id) const;

  std::uint32_t detached_count() const { return detached_.load(std::memory_order_acquire); }

  // What is to be done with `size` bytes that have arrived for offset `offset` of `id`.
  struct Incoming {
    // Where they go; no destination: the delivery was forgotten and they are thrown away.
    std::optional<Destination> destination;
  };
  // An error if the server sends what it was not asked for. Otherwise finish() follows.
  Result<Incoming> begin(std::uint64_t id, std::uint64_t offset, std::uint64_t size);

  // The bytes have been written. True if a detached delivery has ended with them.
  bool finish(std::uint64_t id, std::uint64_t size);

  // Lanes are about to be made: until then nothing may come by one.
  void allow_lanes() { lanes_allowed_.store(true); }
  // The same two for what comes by a lane: it may be ahead of its turn, but nothing comes twice.
  Result<Incoming> by_lane(std::uint64_t id, std::uint64_t offset, std::uint64_t size)
      EXCLUDES(mutex_);
  void end_by_lane(std::uint64_t id, std::uint64_t offset, bool arrived) EXCLUDES(mutex_);
  // It is the turn of a range that comes by lanes: waits until it is there. True if a detached
  // delivery has ended with it. kLost once wake_all() was called.
  Result<bool> await(std::uint64_t id, std::uint64_t offset, std::uint64_t size) EXCLUDES(mutex_);
  // The session is lost: nothing more comes.
  void wake_all() EXCLUDES(mutex_);

  // Nothing more will come. True if it was a detached delivery.
  Result<bool> drop(std::uint64_t id);

  // The parts of the destination's memory that hold the bytes [offset, offset + size) of the
  // packed data, appended to `out` until it holds `most`; returns how many bytes they hold.
  static std::uint64_t pieces(const Destination& destination, std::uint64_t offset,
                              std::uint64_t size, std::size_t most, std::vector<MutableBytes>& out);

 private:
  struct Ahead {
    std::uint64_t end = 0;  // Offset behind it.
    bool there = false;
  };
  struct Entry {
    Destination destination;
    std::uint64_t received = 0;
    bool detached = false;
    std::uint32_t busy = 0;                // Readers that write to the memory.
    std::map<std::uint64_t, Ahead> ahead;  // What came, or is coming, by lanes: by offset.
  };

  // Waits until nobody writes to its memory; null if it is gone by then.
  Entry* idle(std::uint64_t id) REQUIRES(mutex_);
  static void merge(Entry& entry, std::map<std::uint64_t, Ahead>::iterator at);
  static bool arrived(const Entry& entry, std::uint64_t offset, std::uint64_t size);
  static void take(Entry& entry, std::uint64_t offset, std::uint64_t size);
  bool end_if_whole(std::uint64_t id, Entry& entry) REQUIRES(mutex_);
  void erase(std::uint64_t id) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Condition idle_;
  Condition ahead_;  // Something has arrived by a lane.
  bool lost_ GUARDED_BY(mutex_) = false;
  std::unordered_map<std::uint64_t, Entry> entries_ GUARDED_BY(mutex_);
  std::uint64_t next_id_ GUARDED_BY(mutex_) = 1;
  std::atomic<std::uint32_t> detached_{0};
  std::atomic<bool> lanes_allowed_{false};
};

}  // namespace flyt::rpc
