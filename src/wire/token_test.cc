#include "wire/token.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace flyt::wire {
namespace {

TokenKey key_of(unsigned char first) {
  TokenKey key{};
  key[0] = std::byte{first};
  return key;
}

Token sample() {
  Token token{.lease = "vm-7", .expiry = 1800000000, .sessions = 12};
  token.nonce[0] = std::byte{0xab};
  return token;
}

TEST(Token, IsReadAsItWasSigned) {
  const std::string text = sign(sample(), key_of(1));
  EXPECT_TRUE(text.starts_with("flyt1:vm-7:1800000000:12:ab000000000000000000000000000000:"));
  const auto token = verify(text, key_of(1));
  ASSERT_TRUE(token.ok()) << token.error().message;
  EXPECT_EQ(*token, sample());
  EXPECT_LE(text.size(), kTokenTextBytesMax);
}

TEST(Token, OfAnotherKeyIsDenied) {
  const auto token = verify(sign(sample(), key_of(1)), key_of(2));
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code, ErrorCode::kDenied);
}

// Nothing of it can be changed.
TEST(Token, ThatWasTouchedIsRefused) {
  const std::string good = sign(sample(), key_of(1));
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char other : {'0', '9', 'a', ':', ' ', '\0', '\xff'}) {
      if (good[i] == other) continue;
      std::string bad = good;
      bad[i] = other;
      EXPECT_FALSE(verify(bad, key_of(1)).ok()) << bad;
    }
    EXPECT_FALSE(verify(good.substr(0, i), key_of(1)).ok());
    EXPECT_FALSE(verify(good.substr(i + 1), key_of(1)).ok());
  }
  EXPECT_FALSE(verify(good + "0", key_of(1)).ok());
  EXPECT_FALSE(verify(good + "\n", key_of(1)).ok());
}

TEST(Token, ThatNobodyWouldSignIsRefusedEvenSigned) {
  for (const auto& change :
       {+[](Token& token) { token.lease = ""; },
        +[](Token& token) { token.lease = std::string(65, 'x'); },
        +[](Token& token) { token.lease = "a:b"; }, +[](Token& token) { token.expiry = -5; },
        +[](Token& token) { token.expiry = 0; }, +[](Token& token) { token.sessions = 0; },
        +[](Token& token) { token.sessions = kTokenSessionsMax + 1; }}) {
    Token token = sample();
    change(token);
    EXPECT_FALSE(verify(sign(token, key_of(1)), key_of(1)).ok());
  }
}

TEST(Token, ReadsAnyBytes) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string text(random.below(300), '\0');
    for (char& letter : text) letter = static_cast<char>(random.below(256));
    if (random.one_in(2)) text = "flyt1:" + text;
    EXPECT_FALSE(verify(text, key_of(1)).ok());
  }
}

}  // namespace
}  // namespace flyt::wire
