// Which streams a wait for a whole context would have to look at.
//
// What is in the legacy default stream comes behind all streams that are not
// CU_STREAM_NON_BLOCKING, and every other of theirs behind it. So one that is watched from this
// side costs them their independence, and they are left to the server, as is what this side cannot
// name: threads' own default streams, streams of green contexts, and ended ones, whose work goes
// on. Programs that have none of these are the ordinary ones.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/annotations.h"
#include "cuda/types.h"

namespace flyt::client {

// Safe from any thread.
class ContextStreams {
 public:
  // With more of them asking the server costs less.
  static constexpr std::size_t kIndependentMax = 3;

  // A stream has come to be, or ends.
  void add(CUstream stream, unsigned int flags);
  void end(CUstream stream) REQUIRES(mutex_);
  // There are streams now, and from now on, that this side cannot name.
  void note_unnamed() {
    if (!unnamed_.load(std::memory_order_relaxed)) unnamed_.store(true);
  }

  // All that can be busy, the legacy default stream last; none: the server has to be asked.
  // They stay as long as the caller holds mutex(), as does who ends one until the server is told.
  using Room = std::array<CUstream, kIndependentMax + 1>;
  std::span<const CUstream> all(Room& room) const REQUIRES(mutex_);
  Mutex& mutex() RETURN_CAPABILITY(mutex_) { return mutex_; }

  // How many streams have ended; and that the work of the first so many is done.
  std::uint64_t ended() const { return ended_.load(); }
  void note_done(std::uint64_t ended);

  // The context comes alive again, without any.
  void reset();

 private:
  Mutex mutex_;
  std::array<std::atomic<CUstream>, kIndependentMax> independent_{};
  std::atomic<std::int64_t> others_{0};
  std::atomic<bool> unnamed_{false};
  std::atomic<std::uint64_t> ended_{0};
  std::atomic<std::uint64_t> known_done_{0};
};

}  // namespace flyt::client
