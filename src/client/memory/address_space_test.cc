// AddressSpace: ranges that never overlap and come back whole.
#include "client/memory/address_space.h"

#include <gtest/gtest.h>

namespace flyt::client {
namespace {

constexpr std::uint64_t kBase = 0x340000000000;

TEST(AddressSpace, GivesTheLowestAlignedRange) {
  AddressSpace space(kBase, 1 << 20);
  EXPECT_EQ(space.take(100, 1, 0), kBase);
  EXPECT_EQ(space.take(4096, 4096, 0), kBase + 4096);
  EXPECT_EQ(space.take(50, 1, 0), kBase + 100);
}

TEST(AddressSpace, FollowsAHintWhereItCan) {
  AddressSpace space(kBase, 1 << 20);
  EXPECT_EQ(space.take(4096, 4096, kBase + 8192), kBase + 8192);
  EXPECT_EQ(space.take(4096, 4096, kBase + 8192), kBase);
  EXPECT_EQ(space.take(4096, 4096, kBase + (1 << 20)), kBase + 4096);
  EXPECT_EQ(space.take(4096, 4096, 0x1000), kBase + 12288);
}

TEST(AddressSpace, HasNoRoomForMoreThanItsWindow) {
  AddressSpace space(kBase, 8192);
  EXPECT_EQ(space.take(8193, 1, 0), 0U);
  EXPECT_EQ(space.take(~std::uint64_t{0}, 1, 0), 0U);
  EXPECT_EQ(space.take(8192, 1, 0), kBase);
  EXPECT_EQ(space.take(1, 1, 0), 0U);
}

TEST(AddressSpace, JoinsWhatComesBack) {
  AddressSpace space(kBase, 3 * 4096);
  const std::uint64_t first = space.take(4096, 4096, 0);
  const std::uint64_t second = space.take(4096, 4096, 0);
  const std::uint64_t third = space.take(4096, 4096, 0);
  space.give(first, 4096);
  space.give(third, 4096);
  EXPECT_EQ(space.take(8192, 4096, 0), 0U);
  space.give(second, 4096);
  EXPECT_EQ(space.take(3 * 4096, 4096, 0), kBase);
}

TEST(AddressSpace, AnEmptyWindowGivesNothing) {
  AddressSpace space(0, 0);
  EXPECT_EQ(space.take(1, 1, 0), 0U);
}

}  // namespace
}  // namespace flyt::client
