#include "base/clock.h"

#include <time.h>

#include <cerrno>

namespace flyt {
namespace {

class SystemClock final : public Clock {
 public:
  Instant now() const override {
    timespec at{};
    ::clock_gettime(CLOCK_MONOTONIC, &at);
    return {at.tv_sec * 1'000'000'000LL + at.tv_nsec};
  }
  void sleep_for(Duration duration) const override {
    timespec left{static_cast<time_t>(duration.count() / 1'000'000'000LL),
                  static_cast<long>(duration.count() % 1'000'000'000LL)};
    while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
  }
};

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

}  // namespace flyt
