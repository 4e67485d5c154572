#include "server/uploads.h"

#include <gtest/gtest.h>

#include <array>

#include "wire/handle.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t upload(std::uint32_t index) {
  return wire::Handle::make(wire::HandleKind::kUpload, 1, index).value;
}

class UploadsTest : public testing::Test {
 protected:
  static constexpr std::array<std::byte, 4> kPiece{std::byte{1}, std::byte{2}, std::byte{3},
                                                   std::byte{4}};
  Uploads uploads_;
};

TEST_F(UploadsTest, PiecesBecomeOneWithAZeroByteBehind) {
  ASSERT_TRUE(uploads_.add_piece(upload(1), 8, 0, kPiece));
  ASSERT_TRUE(uploads_.add_piece(upload(1), 8, 4, kPiece));
  const auto taken = uploads_.take(upload(1));
  ASSERT_TRUE(taken);
  ASSERT_EQ(taken->size(), 9U);
  EXPECT_EQ((*taken)[7], std::byte{4});
  EXPECT_EQ((*taken)[8], std::byte{0});
  EXPECT_FALSE(uploads_.take(upload(1)));
}

TEST_F(UploadsTest, RefusesGapsRepetitionsAndAnotherTotal) {
  EXPECT_FALSE(uploads_.add_piece(upload(1), 8, 4, kPiece));
  ASSERT_TRUE(uploads_.add_piece(upload(1), 8, 0, kPiece));
  EXPECT_FALSE(uploads_.add_piece(upload(1), 8, 0, kPiece));
  EXPECT_FALSE(uploads_.add_piece(upload(1), 9, 4, kPiece));
  EXPECT_FALSE(uploads_.add_piece(upload(1), 8, ~std::uint64_t{0} - 1, kPiece));
}

TEST_F(UploadsTest, AnIncompleteOneIsNothing) {
  ASSERT_TRUE(uploads_.add_piece(upload(1), 8, 0, kPiece));
  EXPECT_FALSE(uploads_.take(upload(1)));
}

TEST_F(UploadsTest, RefusesMoreBytesThanTheLimits) {
  EXPECT_FALSE(uploads_.add_piece(upload(1), Uploads::kBytesMax + 1, 0, kPiece));
  EXPECT_TRUE(uploads_.add_piece(upload(1), Uploads::kBytesMax, 0, kPiece));
  EXPECT_TRUE(uploads_.add_piece(upload(2), Uploads::kBytesMax, 0, kPiece));
  EXPECT_FALSE(uploads_.add_piece(upload(3), 4, 0, kPiece));
  EXPECT_FALSE(uploads_.take(upload(1)));
  EXPECT_TRUE(uploads_.add_piece(upload(3), 4, 0, kPiece));
}

TEST_F(UploadsTest, RefusesMoreUploadsThanTheLimitEvenEmptyOnes) {
  for (std::uint32_t i = 1; i <= Uploads::kCountMax; ++i) {
    ASSERT_TRUE(uploads_.add_piece(upload(i), 0, 0, {}));
  }
  EXPECT_FALSE(uploads_.add_piece(upload(Uploads::kCountMax + 1), 0, 0, {}));
  EXPECT_TRUE(uploads_.take(upload(1)));
  EXPECT_TRUE(uploads_.add_piece(upload(Uploads::kCountMax + 1), 0, 0, {}));
}

}  // namespace
}  // namespace flyt::server
