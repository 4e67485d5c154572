// The time of day, for what several machines agree about; all else takes a Clock.
#pragma once

#include <cstdint>

namespace flyt {

// Seconds since 1970 in UTC, as this machine has it: it may jump.
std::int64_t unix_seconds();
std::int64_t unix_milliseconds();

}  // namespace flyt
