#include "softgpu/multiprocessors.h"

#include <gtest/gtest.h>

namespace flyt::softgpu {
namespace {

constexpr cuda::ComputeCapability kHopper = {9, 0};

TEST(Multiprocessors, OfALargeChipAreInGroupsOfEight) {
  const Multiprocessors chip(132, kHopper);
  const auto groups = chip.split(chip.all(), 8, chip.grain());
  ASSERT_EQ(groups.size(), 15u);
  SmSet all;
  for (const SmSet& group : groups) {
    EXPECT_EQ(group.size(), 8u);
    EXPECT_TRUE(Multiprocessors::without(group, all) == group);
    all = Multiprocessors::united(all, group);
  }
  EXPECT_EQ(Multiprocessors::without(chip.all(), all).size(), 12u) << "as an H200's";
}

TEST(Multiprocessors, AGroupOfOneStepStandsTogether) {
  const Multiprocessors chip(132, kHopper);
  for (const SmSet& group : chip.split(chip.all(), 8, chip.grain())) {
    for (const std::uint16_t sm : group) {
      EXPECT_EQ(chip.gpc_of_tpc(sm / 2), chip.gpc_of_tpc(group[0] / 2));
    }
  }
}

TEST(Multiprocessors, FineGroupsLeaveNothingOver) {
  const Multiprocessors chip(132, kHopper);
  EXPECT_EQ(chip.split(chip.all(), 2, chip.fine_grain()).size(), 66u);
}

TEST(Multiprocessors, GroupsMayBeLargerThanAStep) {
  const Multiprocessors chip(132, kHopper);
  const auto groups = chip.split(chip.all(), 48, chip.grain());
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].size(), 48u);
}

TEST(Multiprocessors, OlderChipsHaveSmallerSteps) {
  EXPECT_EQ(Multiprocessors(80, {7, 0}).grain().least, 2u);
  EXPECT_EQ(Multiprocessors(108, {8, 0}).grain().least, 4u);
  EXPECT_EQ(Multiprocessors(108, {8, 0}).grain().step, 2u);
  EXPECT_EQ(Multiprocessors(56, {6, 0}).grain().least, 1u);
}

TEST(Multiprocessors, TooFewMakeNoGroup) {
  const Multiprocessors chip(7, kHopper);
  EXPECT_TRUE(chip.split(chip.all(), 8, chip.grain()).empty());
  const Multiprocessors one(1, kHopper);
  EXPECT_EQ(one.all().size(), 1u);
  EXPECT_EQ(one.tpcs(), 1u);
}

TEST(Multiprocessors, EqualSetsHaveOneNumber) {
  Multiprocessors chip(16, kHopper);
  const std::uint32_t number = chip.number_of({1, 2, 3});
  EXPECT_EQ(chip.number_of({1, 2, 3}), number);
  EXPECT_NE(chip.number_of({1, 2}), number);
  ASSERT_NE(chip.find(number), nullptr);
  EXPECT_EQ(*chip.find(number), (SmSet{1, 2, 3}));
  EXPECT_EQ(chip.find(0), nullptr);
  EXPECT_EQ(chip.find(number + 2), nullptr);
}

}  // namespace
}  // namespace flyt::softgpu
