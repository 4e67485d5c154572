// HostCallBook: what is due is run as often as it should be, however often a server says so.
#include "client/streams/host_call_book.h"

#include <gtest/gtest.h>

namespace flyt::client {
namespace {

class HostCallBookTest : public ::testing::Test {
 protected:
  HostCallBook::Body counts() {
    return [this](CUresult) { ++ran_; };
  }
  // Runs what is due; how many functions that were.
  int run() {
    ran_ = 0;
    while (book_.any_due()) {
      const auto [ready, call] = book_.take();
      if (call.body) call.body(ready.status);
    }
    return ran_;
  }

  HostCallBook book_;
  int ran_ = 0;
};

TEST_F(HostCallBookTest, RunsAFunctionOnceHoweverOftenItIsReached) {
  const std::uint64_t token = book_.add(counts(), 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(book_.reached({.token = token}));
  EXPECT_EQ(run(), 1);
  EXPECT_TRUE(book_.reached({.token = token}));
  EXPECT_FALSE(book_.any_due());
}

TEST_F(HostCallBookTest, RunsAFunctionOfGraphsEachTimeAndADestructorOnce) {
  const std::uint64_t function = book_.add_of_graphs(counts(), false);
  const std::uint64_t destructor = book_.add_of_graphs(counts(), true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(book_.reached({.token = 9, .name = function}));
    EXPECT_TRUE(book_.reached({.token = 9, .name = destructor}));
  }
  EXPECT_EQ(run(), 4);
  EXPECT_FALSE(book_.remove_of_graphs(destructor));
  EXPECT_TRUE(book_.remove_of_graphs(function));
}

TEST_F(HostCallBookTest, KnowsNothingOfWhatNobodyAdded) {
  const std::uint64_t token = book_.add(counts(), 0);
  EXPECT_TRUE(book_.reached({.token = token + 1}));
  EXPECT_TRUE(book_.reached({.token = token, .name = token}));
  EXPECT_FALSE(book_.any_due());
}

TEST_F(HostCallBookTest, TakesNoMoreThanTheServerMayHaveComeTo) {
  const std::uint64_t function = book_.add_of_graphs(counts(), false);
  for (std::size_t i = 0; i < wire::kHostCallsMax; ++i) {
    ASSERT_TRUE(book_.reached({.token = i, .name = function}));
  }
  EXPECT_FALSE(book_.reached({.token = 1, .name = function}));
  EXPECT_EQ(run(), static_cast<int>(wire::kHostCallsMax));
  EXPECT_TRUE(book_.reached({.token = 1, .name = function}));
}

TEST_F(HostCallBookTest, ReachesWhatGraphsHaveAnewInASessionThatGoesOn) {
  const std::uint64_t token = book_.add(counts(), 0);
  const std::uint64_t destructor = book_.add_of_graphs(counts(), true);
  EXPECT_TRUE(book_.reached({.token = token}));
  EXPECT_TRUE(book_.reached({.token = 1, .name = destructor}));
  EXPECT_EQ(book_.forget_all(), 1U);
  EXPECT_EQ(run(), 0);
  EXPECT_TRUE(book_.reached({.token = 1, .name = destructor}));
  EXPECT_EQ(run(), 1);
}

}  // namespace
}  // namespace flyt::client
