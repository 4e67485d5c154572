#include "base/wall_clock.h"

#include <time.h>

namespace flyt {

std::int64_t unix_seconds() {
  timespec at{};
  // lint: allow(time): several machines agree about it, as no Clock could.
  ::clock_gettime(CLOCK_REALTIME, &at);
  return at.tv_sec;
}

}  // namespace flyt
