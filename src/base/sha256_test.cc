#include "base/sha256.h"

#include <gtest/gtest.h>

#include <vector>

namespace flyt {
namespace {

// FIPS 180-4's examples, as published by NIST.
TEST(Sha256, AgreesWithTheStandardsExamples) {
  const std::string million(1'000'000, 'a');
  for (const auto& [text, hex] : std::vector<std::pair<std::string, std::string>>{
           {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
           {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
           {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
           {million, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}}) {
    EXPECT_EQ(to_hex(sha256(bytes_of(text))), hex);
    EXPECT_EQ(to_hex(sha256_portable(bytes_of(text))), hex);
  }
}

TEST(Sha256, IsTheSameWithAndWithoutInstructions) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(sha256(bytes_of(text)), sha256_portable(bytes_of(text))) << i;
    text += static_cast<char>(i * 37);
  }
}

}  // namespace
}  // namespace flyt
