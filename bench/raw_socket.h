// Raw sockets: what the same machine does without us, as the measure of our own cost.
#pragma once

#include "base/result.h"
#include "bench/figures.h"

namespace flyt::bench {

enum class SocketKind { kUnix, kTcp };

// Measures against a forked peer: "rtt_us" (64 bytes there, 64 back, both ends in blocking read
// and write) and bulk_name(n) for every copy size.
Result<Figures> measure_raw_socket(SocketKind kind);

}  // namespace flyt::bench
