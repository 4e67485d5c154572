#include "server/memory/regions.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

TEST(Regions, AllowsWhatLiesInside) {
  Regions regions;
  regions.add({0x1000, 0x100, Regions::Kind::kDevice});
  EXPECT_TRUE(regions.allowed(0x1000, 0x100));
  EXPECT_TRUE(regions.allowed(0x10ff, 1));
  EXPECT_FALSE(regions.allowed(0x1100, 1));
  EXPECT_FALSE(regions.allowed(0xfff, 2));
  EXPECT_FALSE(regions.allowed(0x1000, 0x101));
}

TEST(Regions, AllowsARangeOverNeighbours) {
  Regions regions;
  regions.add({0x1000, 0x100, Regions::Kind::kDevice});
  regions.add({0x1100, 0x100, Regions::Kind::kDevice});
  regions.add({0x1300, 0x100, Regions::Kind::kDevice});
  EXPECT_TRUE(regions.allowed(0x1080, 0x100));
  EXPECT_FALSE(regions.allowed(0x1180, 0x200));
}

TEST(Regions, RefusesARangeThatWraps) {
  Regions regions;
  regions.add({0x1000, ~0ULL - 0x1000, Regions::Kind::kWindow});
  EXPECT_FALSE(regions.allowed(0x2000, ~0ULL));
}

TEST(Regions, ForgetsWhatIsRemoved) {
  Regions regions;
  regions.add({0x1000, 0x100, Regions::Kind::kGlobal});
  ASSERT_TRUE(regions.around(0x1001).has_value());
  regions.remove(0x1000);
  EXPECT_FALSE(regions.around(0x1001).has_value());
  EXPECT_FALSE(regions.allowed(0x1000, 1));
}

TEST(Regions, TellThoseOfAKind) {
  Regions regions;
  regions.add({0x3000, 0x100, Regions::Kind::kPinned});
  regions.add({0x1000, 0x200, Regions::Kind::kPinned});
  regions.add({0x2000, 0x100, Regions::Kind::kDevice});
  const auto pinned = regions.all(Regions::Kind::kPinned);
  ASSERT_EQ(pinned.size(), 2U);
  EXPECT_EQ(pinned[0].base, 0x1000U);
  EXPECT_EQ(pinned[0].size, 0x200U);
  EXPECT_EQ(pinned[1].base, 0x3000U);
  EXPECT_TRUE(regions.all(Regions::Kind::kGlobal).empty());
}

}  // namespace
}  // namespace flyt::server
