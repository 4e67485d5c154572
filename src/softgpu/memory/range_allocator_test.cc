#include "softgpu/memory/range_allocator.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace flyt::softgpu {
namespace {

TEST(RangeAllocator, GivesAlignedRangesUntilNoneIsLeft) {
  RangeAllocator ranges(100, 1000);
  EXPECT_EQ(ranges.allocate(10, 64), 128u);
  EXPECT_EQ(ranges.allocate(10, 1), 100u);
  EXPECT_EQ(ranges.allocate(2000, 1), std::nullopt);
}

TEST(RangeAllocator, JoinsWhatComesBack) {
  constexpr std::uint64_t kSize = 1 << 20;
  RangeAllocator ranges(0x1000, kSize);
  Random random(3);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  for (int i = 0; i < 2000; ++i) {
    if (!taken.empty() && random.one_in(2)) {
      const std::size_t at = random.below(taken.size());
      ranges.release(taken[at].first, taken[at].second);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const std::uint64_t size = 1 + random.below(4096);
    const auto base = ranges.allocate(size, std::uint64_t{1} << random.below(10));
    if (!base) continue;
    for (const auto& [other, other_size] : taken) {
      ASSERT_TRUE(*base + size <= other || other + other_size <= *base);
    }
    taken.emplace_back(*base, size);
  }
  for (const auto& [base, size] : taken) ranges.release(base, size);
  EXPECT_EQ(ranges.allocate(kSize, 1), 0x1000u);
}

}  // namespace
}  // namespace flyt::softgpu
