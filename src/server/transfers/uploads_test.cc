#include "server/transfers/uploads.h"

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
  ASSERT_TRUE(taken && taken->complete);
  ASSERT_EQ(taken->bytes.size(), 9U);
  EXPECT_EQ(taken->bytes[7], std::byte{4});
  EXPECT_EQ(taken->bytes[8], std::byte{0});
  EXPECT_FALSE(taken->facts.digest);
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
  const auto taken = uploads_.take(upload(1));
  EXPECT_TRUE(taken && !taken->complete);
  EXPECT_FALSE(uploads_.take(upload(1)));
}

TEST_F(UploadsTest, RefusesMoreBytesThanTheLimits) {
  EXPECT_FALSE(uploads_.add_piece(upload(1), Uploads::kBytesMax + 1, 0, kPiece));
  EXPECT_TRUE(uploads_.add_piece(upload(1), Uploads::kBytesMax, 0, kPiece));
  EXPECT_TRUE(uploads_.add_piece(upload(2), Uploads::kBytesMax, 0, kPiece));
  EXPECT_FALSE(uploads_.add_piece(upload(3), 4, 0, kPiece));
  EXPECT_TRUE(uploads_.take(upload(1)));
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

TEST_F(UploadsTest, OneThatWasOnlyNamedWaitsForItsPieces) {
  const Digest digest = sha256(kPiece);
  ASSERT_TRUE(uploads_.describe(upload(1), {.total = 4, .digest = digest}));
  const auto named = uploads_.unsent(upload(1));
  ASSERT_TRUE(named);
  EXPECT_EQ(named->total, 4U);
  EXPECT_EQ(named->digest, digest);
  EXPECT_TRUE(uploads_.unsent(upload(1)));
  ASSERT_TRUE(uploads_.add_piece(upload(1), 4, 0, kPiece));
  EXPECT_FALSE(uploads_.unsent(upload(1)));
  const auto taken = uploads_.take(upload(1));
  ASSERT_TRUE(taken && taken->complete);
  EXPECT_EQ(taken->facts.digest, digest);
}

TEST_F(UploadsTest, PackedPiecesAreAsManyAsWasSaid) {
  ASSERT_TRUE(uploads_.describe(upload(1), {.total = 100, .packed = 4}));
  EXPECT_FALSE(uploads_.add_piece(upload(1), 100, 0, kPiece));
  ASSERT_TRUE(uploads_.add_piece(upload(1), 4, 0, kPiece));
  const auto taken = uploads_.take(upload(1));
  ASSERT_TRUE(taken && taken->complete);
  EXPECT_EQ(taken->facts.total, 100U);
}

TEST_F(UploadsTest, RefusesADescriptionThatContradictsOrComesTooLate) {
  const Digest digest = sha256(kPiece);
  EXPECT_FALSE(uploads_.describe(7, {.total = 4}));
  EXPECT_FALSE(uploads_.describe(upload(1), {.total = 4, .packed = 5}));
  EXPECT_FALSE(uploads_.describe(upload(1), {.total = Uploads::kBytesMax + 1}));
  ASSERT_TRUE(uploads_.describe(upload(1), {.total = 8, .digest = digest}));
  EXPECT_FALSE(uploads_.describe(upload(1), {.total = 9, .digest = digest}));
  EXPECT_FALSE(uploads_.describe(upload(1), {.total = 8}));
  ASSERT_TRUE(uploads_.describe(upload(1), {.total = 8, .packed = 8, .digest = digest}));
  ASSERT_TRUE(uploads_.add_piece(upload(1), 8, 0, kPiece));
  EXPECT_FALSE(uploads_.describe(upload(1), {.total = 8, .digest = digest}));
}

TEST_F(UploadsTest, DescriptionsCountAgainstTheLimits) {
  ASSERT_TRUE(uploads_.describe(upload(1), {.total = Uploads::kBytesMax}));
  ASSERT_TRUE(uploads_.describe(upload(2), {.total = Uploads::kBytesMax}));
  EXPECT_FALSE(uploads_.describe(upload(3), {.total = 4}));
  EXPECT_FALSE(uploads_.add_piece(upload(3), 4, 0, kPiece));
  EXPECT_TRUE(uploads_.take(upload(2)));
  EXPECT_TRUE(uploads_.describe(upload(3), {.total = 4}));
}

}  // namespace
}  // namespace flyt::server
