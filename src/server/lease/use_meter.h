// UseMeter: for how long a session has had kernels on the GPU, found by looking now and then.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/random.h"

namespace flyt::server {

// Counts the time before each look by what that look finds. Looks come at moments that have nothing
// to do with those of launches, so that the sum is right in the long run. Not safe from several
// threads.
class UseMeter {
 public:
  // Between two looks, on average; more where looking takes long, so that it costs at most a
  // fiftieth of the time.
  static constexpr Duration kPeriod = std::chrono::milliseconds(5);
  // So long after the last launch nobody looks any more, if nothing was left then.
  static constexpr Duration kQuiet = std::chrono::seconds(1);

  explicit UseMeter(std::uint64_t seed = random_seed()) : random_(seed) {}

  // A kernel or a graph was launched.
  void launched() { launched_ = true; }
  // When to look next; Instant{INT64_MAX}: not before another launch.
  Instant next(Instant now);
  struct Seen {
    bool busy = false;  // Something that was launched, or stands before or behind it, is not done.
    bool queued = false;  // Much waits in one stream.
  };
  // A look that began and ended then.
  void looked(Instant begun, Instant ended, Seen seen);

  Duration busy() const { return busy_; }
  Duration queued() const { return queued_; }

 private:
  void plan(Instant now, Duration cost);

  Random random_;
  bool launched_ = false;  // Since the last look that found nothing.
  bool looking_ = false;
  Instant last_;
  Instant next_;
  Instant quiet_at_;
  Duration busy_{0};
  Duration queued_{0};
};

}  // namespace flyt::server
