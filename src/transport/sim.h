// Sim: an in-process connection that misbehaves by a seed: short reads and writes at any byte,
// delays, a cut at a chosen byte.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "transport/transport.h"

namespace flyt::transport {

inline constexpr std::uint64_t kNoCut = UINT64_MAX;

// What happens to the bytes that one end sends.
struct SimDirection {
  // The connection breaks right after this many bytes: they arrive, nothing more does.
  std::uint64_t cut_after = kNoCut;
  // Each read by the other end may be preceded by a pause of up to this long.
  Duration delay_max{0};
  // Reads and writes move a random part of what they could, 1 byte at the least.
  bool fragment = true;
};

struct SimOptions {
  std::uint64_t seed = 1;
  SimDirection to_second;  // Bytes written by the first end of the pair.
  SimDirection to_first;
  // Delays sleep on it. Connections that share a clock but not a seed are reordered against each
  // other; within one connection order is kept.
  const Clock* clock = &system_clock();
};

Result<ConnectionPair> sim_pair(const SimOptions& options);

// Time that passes only when somebody sleeps on it or moves it. Safe from any thread.
class SimClock final : public Clock {
 public:
  Instant now() const override;
  void sleep_for(Duration duration) const override;

 private:
  mutable std::atomic<std::int64_t> now_ns_{0};
};

}  // namespace flyt::transport
