#include "base/sm_cut.h"

#include <gtest/gtest.h>

#include <vector>

namespace flyt {
namespace {

// 132 multiprocessors as an H200's: 15 groups of 8, and 12.
constexpr SmCut kHopper{8, 15, 12, true};

TEST(SmCut, GivesTheLeastThatSuffices) {
  EXPECT_EQ(kHopper.share(1), (SmShare{1, false}));
  EXPECT_EQ(kHopper.share(8), (SmShare{1, false}));
  EXPECT_EQ(kHopper.share(9), (SmShare{2, false}));
  EXPECT_EQ(kHopper.share(17), (SmShare{1, true}));
  EXPECT_EQ(kHopper.share(20), (SmShare{1, true}));
  EXPECT_EQ(kHopper.share(21), (SmShare{3, false}));
  EXPECT_EQ(kHopper.share(64), (SmShare{8, false}));
  EXPECT_EQ(kHopper.share(68), (SmShare{7, true}));
  EXPECT_EQ(kHopper.share(120), (SmShare{15, false}));
  EXPECT_EQ(kHopper.share(121), (SmShare{14, true}));
  EXPECT_EQ(kHopper.share(125), (SmShare{15, true}));
  EXPECT_EQ(kHopper.share(132), (SmShare{15, true}));
  EXPECT_EQ(kHopper.share(133), std::nullopt);
  EXPECT_EQ(kHopper.share(~0ull), std::nullopt);
  EXPECT_EQ(kHopper.share(0), std::nullopt);
}

TEST(SmCut, HasTwoHalvesAndFourQuarters) {
  EXPECT_EQ(kHopper.share(64, 7, true), (SmShare{7, true}));
  EXPECT_EQ(kHopper.share(64, 7, false), std::nullopt);
  EXPECT_EQ(kHopper.share(32, 3, true), (SmShare{3, true}));
  EXPECT_EQ(kHopper.sms_of({7, true}), 68u);
  EXPECT_EQ(kHopper.sms_of({3, true}), 36u);
}

TEST(SmCut, NeverGivesTheRestAlone) {
  EXPECT_EQ(kHopper.share(8, 0, true), std::nullopt);
  EXPECT_EQ(kHopper.share(12, 1, true), (SmShare{1, true}));
}

TEST(SmCut, GivesWhatIsNoGroupOnlyWithEverything) {
  const SmCut cut{8, 15, 12, false};
  EXPECT_EQ(cut.share(68), (SmShare{9, false}));
  EXPECT_EQ(cut.share(121), (SmShare{15, true}));
  EXPECT_EQ(cut.share(64, 7, true), std::nullopt);
  EXPECT_EQ(cut.share(121, 14, true), std::nullopt);
  EXPECT_EQ(cut.share(121, 15, false), std::nullopt);
}

TEST(SmCut, IsReadFromTheSizesOfGroups) {
  std::vector<std::uint32_t> sizes(15, 8);
  EXPECT_EQ(cut_of(sizes, false), (SmCut{8, 15, 0, false}));
  sizes.push_back(12);
  EXPECT_EQ(cut_of(sizes, false), (SmCut{8, 15, 12, false}));
  EXPECT_EQ(cut_of(sizes, true), kHopper);
  EXPECT_EQ(cut_of(std::vector<std::uint32_t>{8, 8, 8}, true), (SmCut{8, 2, 8, true}));
  EXPECT_EQ(cut_of(std::vector<std::uint32_t>{20}, true), (SmCut{20, 1, 0, false}));
  EXPECT_EQ(cut_of({}, false), SmCut{});
}

// Whatever is free, and whatever is asked for.
TEST(SmCut, HasNoSmallerAnswer) {
  for (const bool is_group : {false, true}) {
    for (std::uint32_t rest = 0; rest <= 17; ++rest) {
      const SmCut cut{8, 5, rest, is_group};
      for (std::uint32_t free = 0; free <= 5; ++free) {
        for (std::uint32_t asked = 1; asked <= cut.sms() + 1; ++asked) {
          const auto share = cut.share(asked, free, true);
          std::uint32_t least = 0;
          for (std::uint32_t groups = 1; groups <= free; ++groups) {
            for (const bool with : {false, true}) {
              if (with && (rest == 0 || (!is_group && groups != 5))) continue;
              if (with && !is_group && asked <= 40) continue;
              const std::uint32_t sum = cut.sms_of({groups, with});
              if (sum >= asked && (least == 0 || sum < least)) least = sum;
            }
          }
          ASSERT_EQ(share ? cut.sms_of(*share) : 0, least) << rest << " " << free << " " << asked;
        }
      }
    }
  }
}

}  // namespace
}  // namespace flyt
