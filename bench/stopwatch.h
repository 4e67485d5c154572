// Stopwatch: medians of repeated work.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace flyt::bench {

class Stopwatch {
 public:
  double us() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

// Processor time of this process so far, all its threads together.
inline double process_cpu_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

inline double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median over `samples` of the mean time of `count` runs of `work`, in microseconds, after one run
// that is not counted. `work` says whether it succeeded; 0 when it once did not.
template <class Work>
double median_us(int samples, int count, Work work) {
  if (!work()) return 0;
  std::vector<double> times;
  for (int s = 0; s < samples; ++s) {
    const Stopwatch watch;
    for (int i = 0; i < count; ++i) {
      if (!work()) return 0;
    }
    times.push_back(watch.us() / count);
  }
  return median_of(std::move(times));
}

}  // namespace flyt::bench
