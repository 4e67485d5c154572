// UploadRoom: how much of the program's data the server may keep before the GPU has read it.
//
// The server takes in data for streams that stand as far as its memory goes, and then reads no
// more, whoever sends it. So whoever has sent that much waits for the stream first, as natively the
// thread waits that copies from pageable memory. What is counted may have been read long ago: it is
// given back when somebody has waited for the stream.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <thread>
#include <tuple>

#include "base/annotations.h"
#include "base/bytes.h"
#include "cuda/types.h"
#include "wire/limits.h"

namespace flyt::client {

// Safe from any thread.
class UploadRoom {
 public:
  // Two thirds of what the server has room for; the rest is for streams that have nothing there.
  static constexpr std::uint64_t kBytesMax = 64 * kMiB;

  // Of a session's lanes.
  struct LaneRoom {
    unsigned lanes = 0;
    unsigned blocks = 0;  // Of all together that may be under way.
  };

  // Counts `bytes` for a stream of that context, and returns true. False: nothing is counted, as
  // more than `bytes_max` would be under way, and the stream is to be waited for. A stream for
  // which nothing is counted gets a piece anyhow: others may stand while it does not.
  bool take(std::uint64_t context, CUstream stream, std::uint64_t bytes,
            std::uint64_t bytes_max = kBytesMax) EXCLUDES(mutex_);
  // The same for a block that a lane has sent. The server keeps so many of each.
  bool take_block(std::uint64_t context, CUstream stream, std::uint32_t lane, const LaneRoom& room)
      EXCLUDES(mutex_);
  // Whether each lane has room for one block at least. Without it a copy goes another way.
  bool lanes_have_room(const LaneRoom& room) EXCLUDES(mutex_);
  // Blocks that are under way.
  unsigned blocks() EXCLUDES(mutex_);
  // What was sent into the stream has been read, or the stream is gone.
  void give(std::uint64_t context, CUstream stream) EXCLUDES(mutex_);
  void on_context_destroyed(std::uint64_t context) EXCLUDES(mutex_);
  // The calling thread's own default streams are gone.
  void on_thread_ends() EXCLUDES(mutex_);
  // In bytes, blocks of lanes apart.
  std::uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  // Each thread has a default stream of its own.
  using Key = std::tuple<std::uint64_t, CUstream, std::thread::id>;
  using Blocks = std::array<unsigned, wire::kLanesMax>;  // By lane.
  struct Share {
    std::uint64_t bytes = 0;
    Blocks blocks{};
    bool none() const { return bytes == 0 && blocks == Blocks{}; }
  };
  static Key key(std::uint64_t context, CUstream stream);
  unsigned blocks_locked() const REQUIRES(mutex_);
  // Of all whose key `is`.
  template <class Is>
  void give_all(Is is) EXCLUDES(mutex_);
  void give_back(const Share& share) REQUIRES(mutex_);

  Mutex mutex_;
  std::map<Key, Share> shares_ GUARDED_BY(mutex_);
  Blocks blocks_ GUARDED_BY(mutex_){};   // The sum.
  std::atomic<std::uint64_t> taken_{0};  // The same of bytes; written under mutex_.
  std::atomic<bool> any_{false};         // There are shares; written under mutex_.
};

}  // namespace flyt::client
