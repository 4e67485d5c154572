#include "cuda/md2.h"

#include <gtest/gtest.h>

#include <string>

namespace flyt::cuda {
namespace {

std::string hex(const Md2Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte value : digest) {
    text.push_back(kDigits[static_cast<unsigned>(value) >> 4]);
    text.push_back(kDigits[static_cast<unsigned>(value) & 15]);
  }
  return text;
}

// RFC 1319, appendix A.5.
TEST(Md2, GivesTheDigestsOfTheRfc) {
  EXPECT_EQ(hex(md2(bytes_of(""))), "8350e5a3e24c153df2275c9f80692773");
  EXPECT_EQ(hex(md2(bytes_of("a"))), "32ec01ec4a6dac72c0ab96fb34c0b5d1");
  EXPECT_EQ(hex(md2(bytes_of("abc"))), "da853b0d3f88d99b30283a69e6ded6bb");
  EXPECT_EQ(hex(md2(bytes_of("message digest"))), "ab4f496bfb2a530b219ff33031fe06b0");
  EXPECT_EQ(hex(md2(bytes_of("abcdefghijklmnopqrstuvwxyz"))), "4e8ddff3650292ab5a4108c3aa47940b");
  EXPECT_EQ(hex(md2(bytes_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"))),
            "da33def2a42df13975352846c30338cd");
  EXPECT_EQ(hex(md2(bytes_of("1234567890123456789012345678901234567890"
                             "1234567890123456789012345678901234567890"))),
            "d5976f79d83d3a0dc9806c3c66f3efd8");
}

TEST(HmacMd2, DependsOnKeyAndMessage) {
  const auto digest = hmac_md2(bytes_of("0123456789abcdef"), bytes_of("message"));
  EXPECT_NE(hex(digest), hex(hmac_md2(bytes_of("0123456789abcdeg"), bytes_of("message"))));
  EXPECT_NE(hex(digest), hex(hmac_md2(bytes_of("0123456789abcdef"), bytes_of("messagf"))));
}

}  // namespace
}  // namespace flyt::cuda
