#include "softgpu/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>

namespace flyt::softgpu {
namespace {

TEST(Workers, BeginSoManyJobsAtOnceAndTheOthersBehindThem) {
  constexpr int kThreads = 4;
  constexpr int kJobs = 10;
  // Their threads wait for jobs when the process ends.
  static Workers* const workers = std::make_unique<Workers>(kThreads).release();
  std::latch begun(kThreads);
  std::latch open(1);
  std::latch ended(kJobs);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  for (int i = 0; i < kJobs; ++i) {
    workers->run([&, i] {
      const int now = ++running;
      for (int before = most; before < now && !most.compare_exchange_weak(before, now);) continue;
      if (i < kThreads) begun.count_down();
      open.wait();
      --running;
      ended.count_down();
    });
  }
  // All that may are inside, whatever waits behind them.
  begun.wait();
  open.count_down();
  ended.wait();
  EXPECT_EQ(kThreads, most);
}

}  // namespace
}  // namespace flyt::softgpu
