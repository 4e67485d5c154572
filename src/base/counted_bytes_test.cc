#include "base/counted_bytes.h"

#include <gtest/gtest.h>

namespace flyt {
namespace {

TEST(CountedBytes, AreGivenBackAtTheirEnd) {
  const auto total = std::make_shared<std::atomic<std::uint64_t>>(0);
  CountedBytes one;
  EXPECT_TRUE(one.take(total, 60, 100));
  {
    CountedBytes two;
    EXPECT_FALSE(two.take(total, 41, 100));
    EXPECT_FALSE(two.take(total, ~std::uint64_t{0}, 100));
    EXPECT_TRUE(two.take(total, 40, 100));
    CountedBytes moved = std::move(two);
    EXPECT_EQ(100U, total->load());
  }
  EXPECT_EQ(60U, total->load());
  // What was taken before is not in the way.
  EXPECT_TRUE(one.take(total, 100, 100));
  EXPECT_FALSE(one.take(total, 101, 100));
  EXPECT_EQ(0U, total->load());
}

}  // namespace
}  // namespace flyt
