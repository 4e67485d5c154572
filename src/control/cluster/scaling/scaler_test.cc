#include "control/cluster/scaling/scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flyt::scaling {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Step = Decision::Step;

constexpr Size kSize{.asked = 16, .granted = 16, .group = 8, .least = 8, .most = 64};

// A virtual GPU whose node reports every two seconds.
struct Lease {
  Rules rules;
  Scaler scaler;
  Sample sample{.measured_us = 1};
  Instant now{1'000'000'000'000};

  Lease() { scaler.settle(now); }
  void live(Duration time, unsigned busy, unsigned queued = 0) {
    for (Duration passed{0}; passed < time; passed += seconds(2)) {
      now = now + seconds(2);
      sample.measured_us += 2'000'000;
      sample.busy_us += 20'000ull * busy;
      sample.queued_us += 20'000ull * queued;
      scaler.take(rules, sample, now);
    }
  }
  Decision decide(const Size& size = kSize) const { return scaler.decide(rules, size, now); }
};

TEST(Scaler, GrowsByHalfWhatIsBusy) {
  Lease lease;
  lease.live(seconds(80), 95);
  const Decision decision = lease.decide();
  EXPECT_EQ(decision.step, Step::kGrow);
  EXPECT_EQ(decision.sms, 24u);
  EXPECT_THAT(decision.why, HasSubstr("busy for 95 % of 16s, more than 80 %"));
}

TEST(Scaler, DoublesWhatHasMuchWaiting) {
  Lease lease;
  lease.live(seconds(80), 100, 70);
  const Decision decision = lease.decide();
  EXPECT_EQ(decision.sms, 32u);
  EXPECT_THAT(decision.why, HasSubstr("launches waiting for 70 %"));
}

TEST(Scaler, ShrinksWhatIsIdleByHalfAtMost) {
  Lease lease;
  lease.live(seconds(80), 0);
  const Size size{.asked = 64, .granted = 64, .group = 8, .least = 8, .most = 64};
  EXPECT_EQ(lease.decide(size).step, Step::kShrink);
  EXPECT_EQ(lease.decide(size).sms, 32u);
  lease.live(seconds(80), 35);
  // 64 * 36 / 60, in whole groups.
  EXPECT_EQ(lease.decide(size).sms, 40u);
}

TEST(Scaler, HoldsBetweenTheLimitsAndWhereLessWouldBeTooBusy) {
  Lease lease;
  lease.live(seconds(80), 60);
  EXPECT_EQ(lease.decide().step, Step::kHold);
  EXPECT_THAT(lease.decide().why, HasSubstr("busy for 60 %"));
  lease.live(seconds(80), 35);
  EXPECT_EQ(lease.decide().step, Step::kHold);
  EXPECT_THAT(lease.decide().why, HasSubstr("with less it would be too busy"));
}

TEST(Scaler, HoldsAtItsLeastAndItsMost) {
  Lease lease;
  lease.live(seconds(80), 100);
  EXPECT_THAT(lease.decide({64, 64, 8, 8, 64}).why, HasSubstr("it has its most"));
  // Rounded up to whole groups it has more already than it may ask for.
  EXPECT_EQ(lease.decide({10, 16, 8, 8, 12}).step, Step::kHold);
  lease.live(seconds(80), 0);
  EXPECT_THAT(lease.decide({8, 8, 8, 8, 64}).why, HasSubstr("it has its least"));
  // Less would be rounded up to the same.
  EXPECT_EQ(lease.decide({8, 8, 8, 4, 64}).step, Step::kHold);
}

// A group of 8 and the last one of 12, where no other was free.
TEST(Scaler, AsksForNothingTwiceWhereItGotMore) {
  Lease lease;
  lease.live(seconds(80), 20);
  EXPECT_EQ(lease.decide({20, 20, 8, 8, 64}).sms, 16u);
  EXPECT_EQ(lease.decide({16, 20, 8, 8, 64}).step, Step::kHold);
  EXPECT_THAT(lease.decide({16, 20, 8, 8, 64}).why, HasSubstr("it has asked for no more"));
}

TEST(Scaler, BringsASizeIntoItsRange) {
  Lease lease;
  lease.live(seconds(80), 60);
  EXPECT_EQ(lease.decide({8, 8, 8, 16, 64}).sms, 16u);
  EXPECT_EQ(lease.decide({8, 8, 8, 16, 64}).step, Step::kGrow);
  EXPECT_EQ(lease.decide({96, 96, 8, 16, 64}).sms, 64u);
  EXPECT_EQ(lease.decide({96, 96, 8, 16, 64}).step, Step::kShrink);
}

TEST(Scaler, WaitsForTheCoolDownAndThenForAWholeWindow) {
  Lease lease;
  lease.rules.window = seconds(30);
  lease.rules.cool_down = seconds(20);
  lease.live(seconds(18), 100);
  EXPECT_EQ(lease.decide().step, Step::kHold);
  EXPECT_THAT(lease.decide().why, HasSubstr("may change again in 3s"));
  lease.live(seconds(4), 100);
  EXPECT_THAT(lease.decide().why, HasSubstr("not known for long enough"));
  lease.live(seconds(12), 100);
  EXPECT_EQ(lease.decide().step, Step::kGrow);
  lease.scaler.settle(lease.now);
  EXPECT_EQ(lease.decide().step, Step::kHold);
  lease.live(seconds(28), 100);
  EXPECT_EQ(lease.decide().step, Step::kHold);
}

TEST(Scaler, WhatIsNotHeardOfIsNotChanged) {
  Lease lease;
  lease.live(seconds(80), 100);
  lease.now = lease.now + seconds(16);
  EXPECT_EQ(lease.decide().step, Step::kHold);
  // The same figures again are no news.
  lease.scaler.take(lease.rules, lease.sample, lease.now);
  EXPECT_EQ(lease.decide().step, Step::kHold);
}

TEST(Scaler, AnotherServerBeginsAtNothing) {
  Lease lease;
  lease.live(seconds(80), 0);
  lease.sample = {.measured_us = 1};
  lease.live(seconds(10), 100);
  EXPECT_FALSE(lease.scaler.use(lease.rules, lease.now));
  lease.live(seconds(10), 100);
  ASSERT_TRUE(lease.scaler.use(lease.rules, lease.now));
  EXPECT_EQ(lease.scaler.use(lease.rules, lease.now)->busy_percent, 100u);
}

TEST(Scaler, SeveralSessionsTogetherAreNeverBusierThanAlways) {
  Lease lease;
  lease.live(seconds(80), 250, 120);
  EXPECT_EQ(lease.scaler.use(lease.rules, lease.now)->busy_percent, 100u);
  EXPECT_EQ(lease.scaler.use(lease.rules, lease.now)->queued_percent, 100u);
}

TEST(Scaler, DoesNotBelieveWhatCannotBe) {
  for (const Sample bad : {Sample{}, Sample{UINT64_MAX, 0, 0}, Sample{1000, UINT64_MAX, 0},
                           Sample{1000, 1, 2}, Sample{0, 5, 5}}) {
    Lease lease;
    lease.live(seconds(80), 100);
    lease.scaler.take(lease.rules, bad, lease.now);
    EXPECT_FALSE(lease.scaler.use(lease.rules, lease.now));
    EXPECT_EQ(lease.decide().step, Step::kHold);
  }
}

TEST(Scaler, FewSamplesDoForManyReports) {
  Lease lease;
  for (int i = 0; i < 2000; ++i) {
    lease.now = lease.now + milliseconds(50);
    lease.sample.measured_us += 50'000;
    lease.sample.busy_us += 25'000;
    lease.scaler.take(lease.rules, lease.sample, lease.now);
  }
  const auto use = lease.scaler.use(lease.rules, lease.now);
  ASSERT_TRUE(use);
  EXPECT_EQ(use->busy_percent, 50u);
  EXPECT_LE(use->seconds, 17u);
}

TEST(Scaler, RulesThatWouldSwingAreRefused) {
  EXPECT_TRUE(check(Rules{}));
  EXPECT_FALSE(check({.grow_above = 80, .shrink_below = 41}));
  EXPECT_FALSE(check({.grow_above = 100, .shrink_below = 10}));
  EXPECT_FALSE(check({.window = milliseconds(500)}));
  EXPECT_FALSE(check({.cool_down = milliseconds(500)}));
}

}  // namespace
}  // namespace flyt::scaling
