#include "rpc/backlog.h"

#include <gtest/gtest.h>

#include <array>

namespace flyt::rpc {
namespace {

TEST(Backlog, KeepsTheOrder) {
  Backlog backlog;
  EXPECT_TRUE(backlog.empty());
  backlog.add(bytes_of("abc"));
  backlog.add(bytes_of("def"));
  EXPECT_EQ(text_of(backlog.rest()), "abcdef");
  backlog.sent(4);
  EXPECT_EQ(text_of(backlog.rest()), "ef");
  EXPECT_EQ(backlog.size(), 2U);
  backlog.add(bytes_of("g"));
  EXPECT_EQ(text_of(backlog.rest()), "efg");
  EXPECT_FALSE(backlog.empty());
  backlog.sent(3);
  EXPECT_TRUE(backlog.empty());
  EXPECT_EQ(backlog.size(), 0U);
}

// A peer that takes as much as comes, and never all of it.
TEST(Backlog, HoldsNoMoreWhereSomethingAlwaysWaits) {
  constexpr std::size_t kWaiting = 500 * kKiB;
  std::array<std::byte, 1000> piece{};
  Backlog backlog;
  std::uint8_t added = 0;
  std::uint8_t taken = 0;
  const auto add = [&] {
    piece.front() = std::byte{added++};
    backlog.add(piece);
  };
  while (backlog.size() < kWaiting) add();
  for (int i = 0; i < 100'000; ++i) {
    add();
    ASSERT_EQ(backlog.rest().front(), std::byte{taken++});
    backlog.sent(piece.size());
    ASSERT_LE(backlog.held(), 3 * kWaiting);
  }
}

}  // namespace
}  // namespace flyt::rpc
