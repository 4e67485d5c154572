#include "client/transfers/attempts.h"

#include <gtest/gtest.h>

namespace flyt::client {
namespace {

TEST(Attempts, AreLessAndLessFrequentButNeverEnd) {
  Attempts attempts;
  EXPECT_TRUE(attempts.due());
  EXPECT_TRUE(attempts.due());
  std::uint32_t apart = 1;
  for (int failures = 0; failures < 20; ++failures) {
    attempts.failed();
    for (std::uint32_t i = 0; i < apart; ++i) EXPECT_FALSE(attempts.due()) << failures;
    EXPECT_TRUE(attempts.due()) << failures;
    apart = std::min(2 * apart, Attempts::kApartMax);
  }
}

}  // namespace
}  // namespace flyt::client
