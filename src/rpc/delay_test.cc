// A Channel whose server is far away.
#include <gtest/gtest.h>

#include "rpc/testing/session.h"
#include "transport/delayed.h"

namespace flyt::rpc {
namespace {

using namespace testing;

constexpr Duration kDelay = std::chrono::milliseconds(25);

transport::ConnectionPair far_apart() {
  Result<transport::ConnectionPair> pair = transport::connection_pair();
  FLYT_ASSERT(pair.ok());
  auto client = transport::delayed(std::move(pair->first), kDelay);
  FLYT_ASSERT(client.ok());
  return {std::move(*client), std::move(pair->second)};
}

// Were posts to wait for the distance, they would take 25 s.
TEST(FarServer, AThousandPostsAndACallCostAboutOneRoundTrip) {
  Session session(far_apart());
  ASSERT_NE(session.channel, nullptr) << session.open_error;
  const Instant start = system_clock().now();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(post_note(*session.channel, "launch"));
  EXPECT_TRUE(echo(*session.channel, "sync").ok());
  const Duration took = system_clock().now() - start;
  EXPECT_GE(took, 2 * kDelay);
  EXPECT_LT(took, 500 * kDelay);
  ASSERT_TRUE(session.channel->close(soon()).ok());
  EXPECT_TRUE(session.server.stop_in_order());
  EXPECT_EQ(session.server.notes.size(), 1000U);
}

}  // namespace
}  // namespace flyt::rpc
