#include "softgpu/interpreter/memory_map.h"

#include "gtest/gtest.h"

namespace flyt::ptx {
namespace {

constexpr std::uint64_t kBase = 0x300000000000;
constexpr std::uint64_t kPage = MemoryMap::kPageBytes;

TEST(MemoryMap, KnowsNothingAtFirst) {
  const MemoryMap map;
  EXPECT_FALSE(map.valid(0, 1, false));
  EXPECT_FALSE(map.valid(kBase, 8, false));
  EXPECT_FALSE(map.valid(~std::uint64_t{7}, 8, false));
}

TEST(MemoryMap, EndsRangesAtGranules) {
  MemoryMap map;
  ASSERT_TRUE(map.add(kBase + 4096, 100));
  EXPECT_FALSE(map.valid(kBase + 4095, 1, false));
  EXPECT_TRUE(map.valid(kBase + 4096, 16, true));
  EXPECT_TRUE(map.valid(kBase + 4096 + 124, 4, true));
  EXPECT_FALSE(map.valid(kBase + 4096 + 128, 4, false));
}

TEST(MemoryMap, CoversWholePagesAndTheirNeighbours) {
  MemoryMap map;
  ASSERT_TRUE(map.add(kBase + kPage - 256, 2 * kPage));
  EXPECT_TRUE(map.whole_page(kBase + kPage, true));
  EXPECT_FALSE(map.whole_page(kBase, true));
  EXPECT_TRUE(map.valid_range(kBase + kPage - 256, 2 * kPage, true));
  EXPECT_FALSE(map.valid_range(kBase + kPage - 257, 2 * kPage, true));
  EXPECT_FALSE(map.valid_range(kBase + kPage - 256, 2 * kPage + 1, true));
}

TEST(MemoryMap, RemovesPartsOfAPage) {
  MemoryMap map;
  ASSERT_TRUE(map.add(kBase, kPage));
  map.remove(kBase + 512, 512);
  EXPECT_TRUE(map.valid(kBase + 508, 4, true));
  EXPECT_FALSE(map.valid(kBase + 512, 4, false));
  EXPECT_TRUE(map.valid(kBase + 1024, 4, true));
  map.remove(kBase, kPage);
  EXPECT_FALSE(map.valid(kBase, 4, false));
}

TEST(MemoryMap, TellsReadingFromWriting) {
  MemoryMap map;
  ASSERT_TRUE(map.add(kBase, 4 * kPage, false));
  ASSERT_TRUE(map.add(kBase + kPage + 64, 64, true));
  EXPECT_TRUE(map.valid(kBase, 8, false));
  EXPECT_FALSE(map.valid(kBase, 8, true));
  EXPECT_TRUE(map.valid(kBase + kPage + 64, 8, true));
  EXPECT_FALSE(map.valid(kBase + kPage + 128, 8, true));
  EXPECT_TRUE(map.valid(kBase + kPage + 128, 8, false));
}

TEST(MemoryMap, RefusesItsOwnWindowsAndTheEndOfTheAddressSpace) {
  MemoryMap map;
  EXPECT_FALSE(map.add(kSharedWindow, 64));
  EXPECT_FALSE(map.add(kSharedWindow - 64, 128));
  EXPECT_FALSE(map.add((1ull << 47) - 64, 128));
  EXPECT_FALSE(map.add(~std::uint64_t{0} - 10, 100));
}

TEST(MemoryMap, MeasuresReadableRuns) {
  MemoryMap map;
  ASSERT_TRUE(map.add(kBase, 192));
  EXPECT_EQ(map.readable(kBase + 10, 1000), 182u);
  EXPECT_EQ(map.readable(kBase + 10, 20), 20u);
  EXPECT_EQ(map.readable(kBase + 192, 20), 0u);
}

}  // namespace
}  // namespace flyt::ptx
