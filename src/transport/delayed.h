// Delayed: a connection whose peer seems further away, to see at home what a network would do.
#pragma once

#include "base/clock.h"
#include "transport/transport.h"

namespace flyt::transport {

// Longer delays are refused: a session's hello would hardly get through.
inline constexpr Duration kDelayMax = std::chrono::seconds(10);

// What either end sends arrives that much later, in order; a round trip takes twice as long. Up to
// DelayLine::kBytesMax bytes are under way at once in each direction, so the rate stays what two
// more copies in memory leave of it. Two threads of this process carry the bytes, so what was sent
// less than `delay` before the process ended never arrives.
Result<std::unique_ptr<Connection>> delayed(std::unique_ptr<Connection> connection, Duration delay);

}  // namespace flyt::transport
