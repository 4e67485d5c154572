// Box: extents that cannot overflow, and pieces that cover every byte once.
#include "server/transfers/box.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kHuge = ~std::uint64_t{0};

TEST(Box, ExtentReachesBehindTheLastByte) {
  EXPECT_EQ((Box{0, 100, 0, 10, 10, 1}.extent()), 910U);
  EXPECT_EQ((Box{0, 10, 50, 10, 5, 20}.extent()), 1000U);
  EXPECT_EQ((Box{0, 0, 0, 7, 1, 1}.extent()), 7U);
  EXPECT_EQ((Box{0, 0, 0, 0, 5, 5}.extent()), 0U);
}

TEST(Box, RefusesWhatOverlapsOrOverflows) {
  EXPECT_FALSE((Box{0, 9, 0, 10, 2, 1}.extent()).has_value());
  EXPECT_FALSE((Box{0, 10, 19, 10, 2, 2}.extent()).has_value());
  EXPECT_FALSE((Box{0, kHuge, 0, 1, 3, 1}.extent()).has_value());
  EXPECT_FALSE((Box{0, kHuge, 0, kHuge, kHuge, 1}.extent()).has_value());
  EXPECT_FALSE((Box{0, 1, kHuge / 2, 1, 1, 4}.extent()).has_value());
  EXPECT_FALSE((Box{0, 1ULL << 40, 1ULL << 60, 1ULL << 40, 1ULL << 20, 16}.extent()).has_value());
}

TEST(Box, FlattensWhatHasNoGaps) {
  const Box flat = Box{0x1000, 10, 50, 10, 5, 20}.flattened();
  EXPECT_EQ(flat.width, 1000U);
  EXPECT_EQ(flat.rows, 1U);
  EXPECT_EQ(flat.slices, 1U);
  const Box gaps = Box{0x1000, 16, 80, 10, 5, 20}.flattened();
  EXPECT_EQ(gaps.rows, 100U);
  EXPECT_EQ(gaps.width, 10U);
}

TEST(BoxCursor, AnEmptyBoxHasNoPieces) {
  EXPECT_TRUE(BoxCursor(Box{0x1000, 0, 0, 0, 5, 5}, 16).done());
  EXPECT_TRUE(BoxCursor(Box{0x1000, 8, 0, 8, 0, 1}, 16).done());
}

TEST(BoxCursor, PiecesVisitEveryByteOnceInPackedOrder) {
  constexpr std::uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  for (int round = 0; round < 300; ++round) {
    Box box;
    box.width = 1 + random.below(40);
    box.rows = 1 + random.below(6);
    box.slices = 1 + random.below(4);
    box.pitch = box.width + random.below(3);
    box.slice_pitch = box.pitch * box.rows + random.below(2) * 5;
    std::vector<std::uint64_t> wanted;
    for (std::uint64_t slice = 0; slice < box.slices; ++slice) {
      for (std::uint64_t row = 0; row < box.rows; ++row) {
        for (std::uint64_t byte = 0; byte < box.width; ++byte) {
          wanted.push_back(slice * box.slice_pitch + row * box.pitch + byte);
        }
      }
    }
    const std::uint64_t piece_bytes = 1 + random.below(64);
    std::vector<std::uint64_t> seen;
    BoxCursor cursor(box, piece_bytes);
    while (!cursor.done()) {
      const BoxCursor::Piece piece = cursor.next();
      ASSERT_EQ(piece.offset, seen.size());
      ASSERT_LE(piece.bytes(), piece_bytes);
      for (std::uint64_t row = 0; row < piece.rows; ++row) {
        for (std::uint64_t byte = 0; byte < piece.width; ++byte) {
          seen.push_back(piece.address + row * piece.pitch + byte);
        }
      }
    }
    ASSERT_EQ(seen, wanted);
  }
}

}  // namespace
}  // namespace flyt::server
