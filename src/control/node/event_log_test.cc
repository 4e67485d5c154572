#include "control/node/event_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace flyt::node {
namespace {

Event numbered(std::uint64_t number) { return {.number = number, .kind = "test"}; }

TEST(EventLog, ForgetsTheOldestBeyondItsBound) {
  EventLog log(3);
  for (std::uint64_t i = 1; i <= 5; ++i) log.add(numbered(i));
  const auto events = log.after(0, 0);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events.front().number, 3u);
  EXPECT_EQ(log.next_number(), 6u);
}

TEST(EventLog, GoesOnWithTheNumbersThatItLoaded) {
  EventLog log(10);
  log.load({numbered(41), numbered(42)});
  EXPECT_EQ(log.next_number(), 43u);
  EXPECT_EQ(log.after(41, 0).size(), 1u);
  EXPECT_TRUE(log.after(42, 0).empty());
}

TEST(EventLog, WakesWhoeverWaits) {
  EventLog log(10);
  std::vector<Event> got;
  std::thread reader([&] { got = log.after(0, 60'000); });
  log.add(numbered(1));
  reader.join();
  EXPECT_EQ(got.size(), 1u);
}

TEST(EventLog, LetsNobodyWaitOnceItIsClosed) {
  EventLog log(10);
  std::thread reader([&] { EXPECT_TRUE(log.after(0, 60'000).empty()); });
  log.close();
  reader.join();
  EXPECT_TRUE(log.closed());
}

}  // namespace
}  // namespace flyt::node
