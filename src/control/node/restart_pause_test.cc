#include "control/node/restart_pause.h"

#include <gtest/gtest.h>

namespace flyt::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RestartPause, GrowsWithFailedStartsAndIsBounded) {
  EXPECT_EQ(pause_after_failures(1), milliseconds(200));
  EXPECT_EQ(pause_after_failures(3), milliseconds(800));
  EXPECT_EQ(pause_after_failures(8), milliseconds(25600));
  EXPECT_EQ(pause_after_failures(1000), milliseconds(25600));
}

TEST(RestartPause, LeavesTheNextServerTimeToStartBeforeSessionsAreLost) {
  EXPECT_EQ(pause_after_ends(1, seconds(10)), Duration(0));
  EXPECT_EQ(pause_after_ends(2, seconds(10)), milliseconds(400));
  for (const unsigned ends : {7u, 8u, 1000u}) {
    EXPECT_EQ(pause_after_ends(ends, seconds(10)), seconds(2));
    EXPECT_EQ(pause_after_ends(ends, seconds(1)), milliseconds(200));
  }
}

TEST(RestartPause, GrowsWhereThereAreNoSessionsToLose) {
  EXPECT_EQ(pause_after_ends(7, Duration(0)), milliseconds(12800));
}

}  // namespace
}  // namespace flyt::node
