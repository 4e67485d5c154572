#include "server/gate.h"

#include <gtest/gtest.h>

#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

namespace flyt::server {
namespace {

TEST(Gate, ManyAreInsideOrOneIsAlone) {
  Gate gate;
  std::shared_lock first(gate);
  {
    const std::shared_lock second(gate);
    EXPECT_FALSE(gate.try_lock());
  }
  EXPECT_FALSE(gate.try_lock());
  first.unlock();
  EXPECT_TRUE(gate.try_lock());
  EXPECT_FALSE(gate.try_lock());
  gate.unlock();
  EXPECT_TRUE(gate.try_lock());
  gate.unlock();
}

TEST(Gate, WhoWaitsToBeAloneIsOvertakenAndThenComes) {
  Gate gate;
  std::shared_lock inside(gate);
  bool done = false;
  std::thread other([&] {
    const std::unique_lock alone(gate);
    done = true;
  });
  // However far the other one is: nobody who comes waits for it.
  for (int i = 0; i < 1000; ++i) {
    const std::shared_lock more(gate);
    EXPECT_FALSE(done);
  }
  inside.unlock();
  other.join();
  EXPECT_TRUE(done);
}

TEST(Gate, NobodyIsInsideBesideWhoIsAlone) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  Gate gate;
  // Plain memory: what one writes alone the others see whole.
  int first = 0;
  int second = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        if ((round + i) % 4 == 0) {
          const std::unique_lock alone(gate);
          ++first;
          ++second;
        } else {
          const std::shared_lock inside(gate);
          EXPECT_EQ(first, second);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, kThreads * kRounds / 4);
}

}  // namespace
}  // namespace flyt::server
