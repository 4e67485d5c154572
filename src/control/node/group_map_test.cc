#include "control/node/group_map.h"

#include <gtest/gtest.h>

namespace flyt::node {
namespace {

using Groups = std::vector<std::uint32_t>;

// As an H200 is cut: 15 groups of 8, and 12.
Groups h200() {
  Groups sizes(15, 8);
  sizes.push_back(12);
  return sizes;
}

TEST(GroupMap, RoundsUpToWholeGroups) {
  const GroupMap map(Groups(4, 8));
  EXPECT_EQ(map.choose(1), (Groups{0}));
  EXPECT_EQ(map.choose(8), (Groups{0}));
  EXPECT_EQ(map.choose(9), (Groups{0, 1}));
  EXPECT_EQ(map.choose(33), std::nullopt);
  EXPECT_EQ(map.choose(0), std::nullopt);
}

TEST(GroupMap, GivesTheOddGroupWithTheWholeGpuOnly) {
  GroupMap map(h200());
  EXPECT_EQ(map.choose(12), (Groups{0, 1}));
  EXPECT_EQ(map.choose(120)->size(), 15u);
  EXPECT_EQ(map.choose(121)->size(), 16u);
  EXPECT_EQ(map.choose(132)->size(), 16u);
  EXPECT_EQ(map.choose(133), std::nullopt);
  ASSERT_TRUE(map.take({7}));
  EXPECT_EQ(map.choose(121), std::nullopt);
  EXPECT_EQ(map.choose(112)->size(), 14u);
}

TEST(GroupMap, GivesALargerLastGroupLikeTheOthersButNeverAlone) {
  GroupMap map(h200(), 100, true);
  EXPECT_EQ(map.choose(64), (Groups{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(map.choose(68), (Groups{8, 9, 10, 11, 12, 13, 14, 15})) << "exactly, side by side";
  EXPECT_EQ(map.choose(12), (Groups{0, 1}));
  EXPECT_EQ(map.choose(132)->size(), 16u);
  ASSERT_TRUE(map.take({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(map.choose(56), (Groups{8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(map.choose(64), (Groups{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(map.choose(69), std::nullopt);
  EXPECT_EQ(map.free_text(), "7 groups of 8 and one of 12");
  EXPECT_EQ(map.sms_free(), 68u);
  ASSERT_TRUE(map.take({8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(map.choose(8), std::nullopt);
}

TEST(GroupMap, HasFourQuartersOfAnH200) {
  GroupMap map(h200(), 100, true);
  std::uint32_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    const auto groups = map.choose(32);
    ASSERT_TRUE(groups);
    EXPECT_EQ(groups->size(), 4u);
    sum += map.sms_of(*groups);
    ASSERT_TRUE(map.take(*groups));
  }
  EXPECT_EQ(sum, 132u);
}

TEST(GroupMap, GivesTheLargerGroupUpForAnExactOne) {
  GroupMap map(h200(), 100, true);
  ASSERT_TRUE(map.take({0, 1, 2, 3}));
  const Groups own = {8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(map.choose_again(64, own), (Groups{4, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(map.choose_again(32, own), (Groups{8, 9, 10, 11}));
  EXPECT_EQ(map.choose_again(76, own), (Groups{4, 8, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(GroupMap, WithoutItsRestGivesThatWithTheWholeGpuOnly) {
  GroupMap map(h200(), 100, true);
  map.keep_rest();
  EXPECT_EQ(map.choose(68)->size(), 9u);
  EXPECT_EQ(map.choose(121)->size(), 16u);
}

TEST(GroupMap, PrefersAFreeLargerGroupToOneThatHasAHolder) {
  GroupMap map(h200(), 200, true);
  ASSERT_TRUE(map.take({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(map.choose(64), (Groups{8, 9, 10, 11, 12, 13, 14, 15}));
  ASSERT_TRUE(map.take({8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(map.choose(64)->size(), 8u);
  EXPECT_EQ(map.sms_of(*map.choose(64)), 64u);
}

TEST(GroupMap, PrefersTheSmallestGapThatIsLargeEnough) {
  GroupMap map(Groups(8, 8));
  // Free: 0-2, 4-5, 7
  ASSERT_TRUE(map.take({3, 6}));
  EXPECT_EQ(map.choose(8), (Groups{7}));
  EXPECT_EQ(map.choose(16), (Groups{4, 5}));
  EXPECT_EQ(map.choose(24), (Groups{0, 1, 2}));
  EXPECT_EQ(map.choose(32), (Groups{0, 1, 2, 7}));
}

TEST(GroupMap, TakesNothingTwiceAndNothingThatIsNotThere) {
  GroupMap map(Groups(4, 8));
  ASSERT_TRUE(map.take({1, 2}));
  EXPECT_FALSE(map.take({0, 4}));
  EXPECT_FALSE(map.take({0, 0}));
  EXPECT_EQ(map.sms_free(), 16u);
  // What two have already is counted, and nobody gets it.
  EXPECT_TRUE(map.take({2}));
  EXPECT_EQ(map.sms_free(), 8u);
  EXPECT_EQ(map.choose(8), (Groups{0}));
  EXPECT_EQ(map.choose(16), std::nullopt);
}

TEST(GroupMap, GivesOutMoreThanThereIsToThoseWithTheFewestNeighbours) {
  GroupMap map(Groups(4, 8), 150);
  EXPECT_EQ(map.sms_free(), 48u);
  EXPECT_EQ(map.choose(33), std::nullopt) << "nobody has more than all of them";
  ASSERT_TRUE(map.take({0, 1, 2}));
  EXPECT_EQ(map.choose(8), (Groups{3}));
  EXPECT_EQ(map.choose(16), (Groups{0, 3}));
  EXPECT_EQ(map.choose(24), (Groups{0, 1, 3}));
  EXPECT_EQ(map.choose(32), std::nullopt);
  ASSERT_TRUE(map.take({0, 3}));
  EXPECT_EQ(map.choose(8), (Groups{1}));
  EXPECT_EQ(map.choose(16), std::nullopt);
  EXPECT_EQ(map.free_text(), "1 groups of 8");
  // Who has some keeps them.
  EXPECT_EQ(map.choose_again(8, {0}), (Groups{0}));
}

TEST(GroupMap, GivesTheOddGroupOutAsOftenAsAllOthers) {
  GroupMap map(h200(), 200);
  const auto all = map.choose(132);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->size(), 16u);
  ASSERT_TRUE(map.take(*all));
  EXPECT_EQ(map.choose(132), all);
  ASSERT_TRUE(map.take({0}));
  EXPECT_EQ(map.choose(132), std::nullopt);
  EXPECT_EQ(map.choose(112)->size(), 14u);
}

TEST(GroupMap, KeepsWhatALeaseHasWhenItGrowsOrShrinks) {
  GroupMap map(Groups(8, 8));
  ASSERT_TRUE(map.take({0, 1}));
  EXPECT_EQ(map.choose_again(32, {4, 5}), (Groups{2, 3, 4, 5}));
  EXPECT_EQ(map.choose_again(8, {4, 5}), (Groups{4}));
  EXPECT_EQ(map.choose_again(56, {4, 5}), std::nullopt);
}

}  // namespace
}  // namespace flyt::node
