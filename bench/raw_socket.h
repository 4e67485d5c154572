// Raw sockets: what the same machine does without us, as the measure of our own cost.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "bench/figures.h"

namespace flyt::bench {

enum class SocketKind { kUnix, kTcp };

// Measures against a forked peer: "rtt_us" (64 bytes there, 64 back, both ends in blocking read
// and write) and bulk_name(n) for every copy size.
Result<Figures> measure_raw_socket(SocketKind kind);

// What one round of a comparison has beside it: "rtt_us" alone of the above.
Result<Figures> measure_raw_round_trip(SocketKind kind, Duration delay = {});

// "streams_N_us": 256 MiB in equal parts over N connections at once, each with a forked peer and a
// thread of its own; for N of kStreamCounts. With a delay the peers seem that far away, by the same
// means as servers do (?delay= of a URL).
inline constexpr std::size_t kStreamCounts[] = {1, 2, 4, 8};
Result<Figures> measure_raw_streams(SocketKind kind, Duration delay = {});

}  // namespace flyt::bench
