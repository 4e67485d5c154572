#include "server/lease/use_meter.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kBegin{1'000'000'000};

// A program that keeps the GPU busy for `work` in each `period`, and a session that looks when it
// is told to, each look taking `cost`.
struct Program {
  Duration period;
  Duration work;
  Duration cost{0};

  bool busy(Instant at) const { return Duration((at - kBegin).count() % period.count()) < work; }
  // The looks within `time`.
  int run(UseMeter& meter, Duration time, bool queued = false) const {
    int looks = 0;
    Instant now = kBegin;
    Instant launch = kBegin;
    while (now < kBegin + time) {
      for (; launch <= now; launch = launch + period) meter.launched();
      const Instant next = meter.next(now);
      if (next > now) {
        now = std::min(next, launch);
        continue;
      }
      ++looks;
      const Instant ended = now + cost;
      meter.looked(now, ended, {.busy = busy(now), .queued = queued});
      now = ended;
    }
    return looks;
  }
};

double share(Duration part, Duration whole) {
  return static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

TEST(UseMeter, FindsTheShareThatAProgramUses) {
  for (const int percent : {10, 35, 50, 80}) {
    for (const Duration period : {Duration(microseconds(300)), Duration(milliseconds(7)),
                                  Duration(milliseconds(90)), Duration(milliseconds(700))}) {
      UseMeter meter(7);
      const Program program{period, period * percent / 100};
      program.run(meter, seconds(60));
      EXPECT_NEAR(share(meter.busy(), seconds(60)), percent / 100.0, 0.04) << period.count();
      EXPECT_EQ(meter.queued(), Duration{0});
    }
  }
}

TEST(UseMeter, CountsAllOfAProgramThatNeverPauses) {
  UseMeter meter(1);
  Program{milliseconds(10), milliseconds(10)}.run(meter, seconds(10), true);
  EXPECT_GT(share(meter.busy(), seconds(10)), 0.99);
  EXPECT_EQ(meter.queued(), meter.busy());
  EXPECT_LE(meter.busy(), seconds(10));
}

TEST(UseMeter, NobodyLooksAfterAProgramThatIsIdle) {
  UseMeter meter(1);
  EXPECT_EQ(meter.next(kBegin), Instant{INT64_MAX});
  meter.launched();
  Instant now = kBegin;
  int looks = 0;
  while (meter.next(now) != Instant{INT64_MAX}) {
    now = meter.next(now);
    meter.looked(now, now, {});
    ++looks;
  }
  EXPECT_LT(now - kBegin, UseMeter::kQuiet * 2);
  EXPECT_LT(looks, 2 * UseMeter::kQuiet / UseMeter::kPeriod);
  EXPECT_EQ(meter.busy(), Duration{0});
}

TEST(UseMeter, WhatOnlyCopiesIsNotBusy) {
  UseMeter meter(1);
  meter.launched();
  Instant now = kBegin;
  bool first = true;
  while (meter.next(now) != Instant{INT64_MAX}) {
    now = meter.next(now);
    // The kernel is done at the first look; copies go on for ever.
    meter.looked(now, now, {.busy = !first});
    first = false;
  }
  EXPECT_EQ(meter.busy(), Duration{0});
}

TEST(UseMeter, LooksSeldomWhereLookingIsDear) {
  UseMeter meter(3);
  const Program program{milliseconds(20), milliseconds(10), microseconds(400)};
  const int looks = program.run(meter, seconds(60));
  EXPECT_LT(share(looks * program.cost, seconds(60)), 0.025);
  EXPECT_NEAR(share(meter.busy(), seconds(60)), 0.5, 0.05);
}

}  // namespace
}  // namespace flyt::server
