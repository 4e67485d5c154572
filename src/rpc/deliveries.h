// Deliveries: the memory of the application that the server's data may go to, by delivery id.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/annotations.h"
#include "base/result.h"
#include "rpc/channel.h"

namespace flyt::rpc {

// Ids are never used twice. A delivery's data comes in the order of its offsets, without gaps.
// Safe from any thread; begin() and finish() belong to the reader.
class Deliveries {
 public:
  std::uint64_t expect(const Destination& destination, bool detached);

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

  // Nothing more will come. True if it was a detached delivery.
  Result<bool> drop(std::uint64_t id);

  // The parts of the destination's memory that hold the bytes [offset, offset + size) of the
  // packed data, appended to `out` until it holds `most`; returns how many bytes they hold.
  static std::uint64_t pieces(const Destination& destination, std::uint64_t offset,
                              std::uint64_t size, std::size_t most, std::vector<MutableBytes>& out);

 private:
  struct Entry {
    Destination destination;
    std::uint64_t received = 0;
    bool detached = false;
    bool busy = false;  // The reader writes to the memory.
  };

  void erase(std::uint64_t id) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Condition idle_;
  std::unordered_map<std::uint64_t, Entry> entries_ GUARDED_BY(mutex_);
  std::uint64_t next_id_ GUARDED_BY(mutex_) = 1;
  std::atomic<std::uint32_t> detached_{0};
};

}  // namespace flyt::rpc
