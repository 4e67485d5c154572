#include "softgpu/memory/regions.h"

#include <gtest/gtest.h>

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kBase = 0x10'0000'0000;

class RegionsTest : public testing::Test {
 protected:
  Region region(RegionKind kind, std::uint64_t base, std::uint64_t size, DeviceSet devices = 1) {
    Region made;
    made.kind = kind;
    made.base = base;
    made.size = size;
    made.readers = devices;
    made.writers = devices;
    return made;
  }
  ptx::MemoryMap first_;
  ptx::MemoryMap second_;
  Regions regions_{{&first_, &second_}};
};

TEST_F(RegionsTest, KeepsTheMapsOfTheDevicesThatMayTouchIt) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kDevice, kBase, 4096)));
  EXPECT_TRUE(first_.valid(kBase + 4088, 8, true));
  EXPECT_FALSE(first_.valid(kBase + 4096, 8, false));
  EXPECT_FALSE(second_.valid(kBase, 8, false));
  regions_.set_peer(1, 0, true);
  EXPECT_TRUE(second_.valid(kBase, 8, true));
  regions_.set_peer(1, 0, false);
  EXPECT_FALSE(second_.valid(kBase, 8, false));
  ASSERT_TRUE(regions_.remove(kBase, RegionKind::kDevice));
  EXPECT_FALSE(first_.valid(kBase, 8, false));
}

TEST_F(RegionsTest, RefusesRegionsThatOverlap) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kDevice, kBase, 4096)));
  EXPECT_FALSE(regions_.add(region(RegionKind::kHost, kBase + 4000, 10)));
  EXPECT_FALSE(regions_.add(region(RegionKind::kHost, kBase - 10, 11)));
  EXPECT_TRUE(regions_.add(region(RegionKind::kHost, kBase + 4096, 10)));
  EXPECT_TRUE(regions_.overlaps(kBase - 1, 2));
  EXPECT_FALSE(regions_.overlaps(kBase - 1, 1));
}

TEST_F(RegionsTest, CoversNeighboursOnlyWhereTheyAreMapped) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kMapped, kBase, 4096)));
  ASSERT_TRUE(regions_.add(region(RegionKind::kMapped, kBase + 4096, 4096)));
  EXPECT_TRUE(regions_.covers(kBase + 4000, 200, true));
  EXPECT_FALSE(regions_.covers(kBase + 8000, 200, true));
  constexpr std::uint64_t kOther = kBase + 0x10000;
  ASSERT_TRUE(regions_.add(region(RegionKind::kDevice, kOther, 4096)));
  ASSERT_TRUE(regions_.add(region(RegionKind::kDevice, kOther + 4096, 4096)));
  EXPECT_FALSE(regions_.covers(kOther + 4000, 200, true));
  EXPECT_FALSE(regions_.covers(~std::uint64_t{0} - 4, 200, true));
}

TEST_F(RegionsTest, ReadOnlyMemoryIsNotWritten) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kMapped, kBase, 4096, 0)));
  EXPECT_FALSE(regions_.covers(kBase, 8, false));
  regions_.set_access(kBase, 1, true, false);
  EXPECT_TRUE(regions_.covers(kBase, 8, false));
  EXPECT_FALSE(regions_.covers(kBase, 8, true));
  EXPECT_TRUE(first_.valid(kBase, 8, false));
  EXPECT_FALSE(first_.valid(kBase, 8, true));
}

TEST_F(RegionsTest, FindsExactlyWhatCoversARange) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kMapped, kBase, 4096)));
  ASSERT_TRUE(regions_.add(region(RegionKind::kMapped, kBase + 4096, 4096)));
  EXPECT_EQ(regions_.exactly(kBase, 8192, RegionKind::kMapped).size(), 2u);
  EXPECT_TRUE(regions_.exactly(kBase, 6000, RegionKind::kMapped).empty());
  EXPECT_TRUE(regions_.exactly(kBase, 12288, RegionKind::kMapped).empty());
}

TEST_F(RegionsTest, UnregisteringLeavesANeighbourOfTheSameGranule) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kRegistered, kBase + 3, 10)));
  ASSERT_TRUE(regions_.add(region(RegionKind::kRegistered, kBase + 20, 10)));
  ASSERT_TRUE(regions_.remove(kBase + 3, RegionKind::kRegistered));
  EXPECT_TRUE(first_.valid(kBase + 20, 1, false));
}

TEST_F(RegionsTest, AFreedAllocationIsFreedOnce) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kPool, kBase, 4096)));
  EXPECT_TRUE(regions_.mark_freed(kBase));
  EXPECT_FALSE(regions_.mark_freed(kBase));
}

TEST_F(RegionsTest, MemoryThatIsInUseAgainStaysInReachOfKernelsThatStillRun) {
  ASSERT_TRUE(regions_.add(region(RegionKind::kPool, kBase, 500)));
  ASSERT_TRUE(regions_.mark_freed(kBase));
  regions_.revive(kBase, 20);
  EXPECT_TRUE(first_.valid(kBase + 448, 8, true)) << "a kernel of before has it whole";
  EXPECT_FALSE(regions_.covers(kBase, 21, true));
  ASSERT_TRUE(regions_.remove(kBase, RegionKind::kPool));
  EXPECT_FALSE(first_.valid(kBase + 448, 8, false));
}

}  // namespace
}  // namespace flyt::softgpu
