#include "base/wall_clock.h"

#include <time.h>

namespace flyt {

std::int64_t unix_seconds() { return unix_milliseconds() / 1000; }

std::int64_t unix_milliseconds() {
  timespec at{};
  // lint: allow(time): several machines agree about it, as no Clock could.
  ::clock_gettime(CLOCK_REALTIME, &at);
  return at.tv_sec * 1000LL + at.tv_nsec / 1'000'000;
}

}  // namespace flyt
