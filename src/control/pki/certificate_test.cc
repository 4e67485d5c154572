#include "control/pki/certificate.h"

#include <gtest/gtest.h>

#include "base/wall_clock.h"

namespace flyt::pki {
namespace {

KeyPair authority(const std::string& name = "flyt-ca") {
  auto made = make_authority(name, 10);
  EXPECT_TRUE(made.ok());
  return *made;
}

TEST(Certificate, SaysWhoItIsOfAndUntilWhen) {
  const auto issued = issue(authority(), {"vm-7", "vm", {"10.0.0.7", "vm-7.example.org"}, 30});
  ASSERT_TRUE(issued.ok()) << issued.error().message;
  const auto facts = facts_of(issued->certificate);
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->name, "vm-7");
  EXPECT_EQ(facts->role, "vm");
  EXPECT_EQ(facts->serial.size(), 32u);
  EXPECT_NEAR(static_cast<double>(facts->expires_at - unix_seconds()), 30 * 86400.0, 5);
}

TEST(Certificate, NoTwoHaveTheSameNumber) {
  const KeyPair ca = authority();
  EXPECT_NE(facts_of(issue(ca, {"a", "vm", {}, 1})->certificate)->serial,
            facts_of(issue(ca, {"a", "vm", {}, 1})->certificate)->serial);
}

TEST(Certificate, RefusesNamesThatWouldMeanSomethingElse) {
  const KeyPair ca = authority();
  EXPECT_FALSE(issue(ca, {"", "vm", {}, 1}).ok());
  EXPECT_FALSE(issue(ca, {"a,OU=admin", "vm", {}, 1}).ok());
  EXPECT_FALSE(issue(ca, {"a", "vm", {"b,DNS:c"}, 1}).ok());
  EXPECT_FALSE(make_authority(std::string(65, 'a'), 1).ok());
}

TEST(Certificate, RefusesAKeyOfAnotherAuthority) {
  const KeyPair mixed{authority().certificate, authority().key};
  EXPECT_FALSE(issue(mixed, {"a", "vm", {}, 1}).ok());
  EXPECT_FALSE(revoke(mixed, "", "01", 1).ok());
}

TEST(Certificate, WhatIsNoneIsRefused) {
  EXPECT_FALSE(facts_of("").ok());
  EXPECT_FALSE(facts_of("-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n").ok());
}

TEST(RevocationList, HasWhatWasRevokedAndNothingElse) {
  const KeyPair ca = authority();
  const std::string a = facts_of(issue(ca, {"a", "vm", {}, 1})->certificate)->serial;
  const std::string b = facts_of(issue(ca, {"b", "vm", {}, 1})->certificate)->serial;
  const std::string c = facts_of(issue(ca, {"c", "vm", {}, 1})->certificate)->serial;
  auto list = revoke(ca, "", a, 5);
  ASSERT_TRUE(list.ok()) << list.error().message;
  list = revoke(ca, *list, b, 5);
  ASSERT_TRUE(list.ok()) << list.error().message;
  // Twice is as good as once.
  list = revoke(ca, *list, b, 5);
  ASSERT_TRUE(list.ok()) << list.error().message;
  const auto parsed = RevocationList::parse(*list, ca.certificate);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(parsed->has(a));
  EXPECT_TRUE(parsed->has(b));
  EXPECT_FALSE(parsed->has(c));
}

TEST(RevocationList, OfAnotherAuthorityIsRefused) {
  const auto list = revoke(authority(), "", "AB", 5);
  ASSERT_TRUE(list.ok());
  EXPECT_FALSE(RevocationList::parse(*list, authority("flyt-ca").certificate).ok());
  EXPECT_FALSE(RevocationList::parse("", authority().certificate).ok());
}

TEST(RevocationList, RefusesWhatIsNoSerialNumber) {
  for (const char* bad : {"", "xyz", "12 34", "-"}) {
    EXPECT_FALSE(revoke(authority(), "", bad, 5).ok()) << bad;
  }
}

}  // namespace
}  // namespace flyt::pki
