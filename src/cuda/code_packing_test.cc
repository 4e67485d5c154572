#include "cuda/code_packing.h"

#include <gtest/gtest.h>

#include <string>

#include "base/random.h"

namespace flyt::cuda {
namespace {

std::string text() {
  std::string out;
  for (int i = 0; i < 2000; ++i)
    out += "add.s32 %r" + std::to_string(i * 7919 % 997) + ", %r1, %r2;\n";
  return out;
}

TEST(CodePacking, GivesBackWhatWasPackedWithAZeroByteBehind) {
  const std::string code = text();
  const auto packed = pack_code(bytes_of(code));
  ASSERT_FALSE(packed.empty());
  EXPECT_LT(packed.size(), code.size() / 4);
  const auto back = unpack_code(packed, code.size());
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(text_of(*back), code + '\0');
}

TEST(CodePacking, LeavesAloneWhatDoesNotGetSmaller) {
  Random chance(5);
  std::vector<std::byte> noise(100'000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(chance.below(256));
  EXPECT_TRUE(pack_code(noise).empty());
  EXPECT_TRUE(pack_code({}).empty());
  EXPECT_TRUE(pack_code(std::vector<std::byte>(1 * kMiB)).empty());
}

TEST(CodePacking, RefusesAnotherSizeDamageAndBombs) {
  const std::string code = text();
  auto packed = pack_code(bytes_of(code));
  EXPECT_FALSE(unpack_code(packed, code.size() - 1).ok());
  EXPECT_FALSE(unpack_code(packed, code.size() + 1).ok());
  EXPECT_FALSE(unpack_code(Bytes(packed).first(packed.size() / 2), code.size()).ok());
  EXPECT_FALSE(unpack_code({}, 1).ok());
  EXPECT_FALSE(unpack_code(bytes_of("no zstd frame at all"), 100).ok());
  const auto bomb = unpack_code(packed, kGiB);
  ASSERT_FALSE(bomb.ok());
  EXPECT_EQ(bomb.error().code, ErrorCode::kLimit);
}

}  // namespace
}  // namespace flyt::cuda
