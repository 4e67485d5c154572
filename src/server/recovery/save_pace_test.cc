#include "server/recovery/save_pace.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

using std::chrono::milliseconds;

TEST(SavePaceTest, ATenthOfTheTimeIsSaving) {
  SavePace pace;
  Instant now{1};
  EXPECT_TRUE(pace.due(now));
  Duration saving{0};
  for (Instant end = now + std::chrono::seconds(10); now < end; now = now + milliseconds(1)) {
    if (!pace.due(now)) continue;
    pace.saved(now, now + milliseconds(20));
    now = now + milliseconds(20);
    saving += milliseconds(20);
  }
  EXPECT_LE(saving, std::chrono::seconds(1));
  EXPECT_GE(saving, milliseconds(900));
}

TEST(SavePaceTest, WhatIsQuickIsSavedAtNearlyEachRest) {
  SavePace pace;
  pace.saved({0}, Instant{0} + std::chrono::microseconds(50));
  EXPECT_TRUE(pace.due(Instant{0} + milliseconds(1)));
}

// A process that was stopped meanwhile, or a machine, has not saved all the time.
TEST(SavePaceTest, NoRestIsLongerThanThat) {
  SavePace pace;
  const Instant ended = Instant{0} + std::chrono::hours(1);
  pace.saved({0}, ended);
  EXPECT_FALSE(pace.due(ended + milliseconds(1)));
  EXPECT_TRUE(pace.due(ended + SavePace::kRestMax));
}

}  // namespace
}  // namespace flyt::server
