#include "control/pki/enrol_token.h"

#include <gtest/gtest.h>

namespace flyt::pki {
namespace {

const std::string kPin(64, 'a');

TEST(EnrolToken, IsReadAsItWasWritten) {
  const EnrolTokenText token = new_enrol_token(kPin);
  const std::string text = to_string(token);
  EXPECT_EQ(text.size(), kEnrolTokenBytes);
  const auto read = parse_enrol_token(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->id, token.id);
  EXPECT_EQ(read->secret, token.secret);
  EXPECT_EQ(read->pin, kPin);
  EXPECT_NE(new_enrol_token(kPin).secret, token.secret);
  EXPECT_NE(new_enrol_token(kPin).id, token.id);
}

TEST(EnrolToken, WhatIsNoneIsRefusedAndNotRepeated) {
  const std::string good = to_string(new_enrol_token(kPin));
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(parse_enrol_token(good.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(parse_enrol_token(good + "0").ok());
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string other = good;
    other[at] = 'G';
    const auto read = parse_enrol_token(other);
    ASSERT_FALSE(read.ok()) << at;
    EXPECT_EQ(read.error().message.find(good.substr(30, 8)), std::string::npos);
    other[at] = '\0';
    EXPECT_FALSE(parse_enrol_token(other).ok()) << at;
  }
}

TEST(EnrolToken, ADigestTellsSecretsApart) {
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(same_digests(digest_of("a"), digest_of("a")));
  EXPECT_FALSE(same_digests(digest_of("a"), digest_of("b")));
  EXPECT_FALSE(same_digests("", ""));
  EXPECT_FALSE(same_digests(digest_of("a"), ""));
}

}  // namespace
}  // namespace flyt::pki
