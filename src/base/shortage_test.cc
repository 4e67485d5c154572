// Shortage: rests after each failure, and is told once.
#include "base/shortage.h"

#include <gtest/gtest.h>

namespace flyt {
namespace {

constexpr Instant kBegin{5'000'000'000};
constexpr Duration kMoment = std::chrono::milliseconds(1);

TEST(Shortage, LeavesTheLoopAloneUntilSomethingFails) {
  const Shortage shortage;
  EXPECT_FALSE(shortage.resting(kBegin));
  EXPECT_EQ(shortage.limit(-1, kBegin), -1);
  EXPECT_EQ(shortage.limit(7, kBegin), 7);
}

TEST(Shortage, RestsAfterEachFailureAndThenLetsItBeTriedAgain) {
  Shortage shortage;
  shortage.met(kBegin);
  EXPECT_TRUE(shortage.resting(kBegin));
  EXPECT_GT(shortage.limit(-1, kBegin), 1);
  EXPECT_EQ(shortage.limit(1, kBegin), 1);
  const Instant last = kBegin + (Shortage::kRest - kMoment);
  EXPECT_TRUE(shortage.resting(last));
  EXPECT_GE(shortage.limit(-1, last), 1);
  EXPECT_LE(shortage.limit(1000, last), 2);
  EXPECT_FALSE(shortage.resting(kBegin + Shortage::kRest));
  EXPECT_EQ(shortage.limit(-1, kBegin + Shortage::kRest), -1);
}

TEST(Shortage, IsNewsOnceUntilItHasBeenOverForAWhile) {
  Shortage shortage;
  EXPECT_TRUE(shortage.met(kBegin));
  EXPECT_FALSE(shortage.met(kBegin + Shortage::kRest));
  EXPECT_FALSE(shortage.met(kBegin + Shortage::kOver));
  EXPECT_TRUE(shortage.met(kBegin + Shortage::kOver + Shortage::kOver));
}

}  // namespace
}  // namespace flyt
