#include "control/pki/certificate.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/wall_clock.h"
#include "control/pki/expiry.h"

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

TEST(Certificate, SaysWhereItsHolderIs) {
  const KeyPair ca = authority();
  const auto of = [&](std::vector<std::string> hosts) {
    return issue(ca, {"n1", "node", std::move(hosts), 1})->certificate;
  };
  const std::string one = of({"10.0.0.7", "fd00::7", "gpu-1.example.org"});
  for (const char* host : {"10.0.0.7", "fd00:0::7", "gpu-1.example.org", "GPU-1.example.org"}) {
    EXPECT_TRUE(*may_serve_at(one, host)) << host;
  }
  for (const char* host : {"10.0.0.8", "gpu-2.example.org", "example.org", "n1", ""}) {
    EXPECT_FALSE(*may_serve_at(one, host)) << host;
  }
  EXPECT_FALSE(*may_serve_at(one, std::string("gpu-1.example.org\0x", 19)));
  // Its name is none of a machine, and who names no machine may be anywhere.
  EXPECT_FALSE(*may_serve_at(of({"10.0.0.7"}), "n1"));
  EXPECT_TRUE(*may_serve_at(of({}), "gpu-2.example.org"));
  EXPECT_FALSE(may_serve_at("nothing", "gpu-1.example.org").ok());
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

// What somebody else made: with other keys than ours, and with wishes that nobody grants.
constexpr const char* kOfRsa = R"(-----BEGIN CERTIFICATE REQUEST-----
MIICbTCCAVUCAQAwKDENMAsGA1UECgwEZmx5dDELMAkGA1UECwwCdm0xCjAIBgNV
BAMMAWEwggEiMA0GCSqGSIb3DQEBAQUAA4IBDwAwggEKAoIBAQCKB5+EDck5cg9x
yfxr+wSufsHCWrhjVUpKbJaz2MCZK3+SB8AbyUYcQsfbA+gxkxEP1f1f6xacrqHu
Fm6PCorSlmpBchdcI9xxp4Zxlg2zykiMUOUJQZWZohxy4KO/YDuU6uuyy1vmC0S5
pikcfVsdgfjnijFxiT/Q99nnXPuoXikwrRwSeFTfrl/RXS4SMC0F5qaYgc9Psdgc
XahOuVJjzbcM7nKRz1UvCK1iiTXdSLd05zS6TOpPDqjxgFNTDzCrObIAM5Z3hWIZ
zA4ocxkb6Guz1ioieWmIfoFfT2kpqkZCeaZ10d7EnAG5gevwfALCPXzmYHt6oQZB
XPUKzTa/AgMBAAGgADANBgkqhkiG9w0BAQsFAAOCAQEABKrznz81wRBpx/2tfKt0
djthnmLmo7PMEEMNKsJHVHxhIw+HXxLCkzrWfT8uQFjsbnmBvCP+gRBgY8p3uZ+F
ckimfQyyDoqiaoF+RNpgYk02NEyzSFkdwJyo4Xvg8vcuWmdtwqPjA7UQEtV7F1YV
Og/Df3H2Kg4N7g5KmZq9KhShl/P4GQxPKrpzcJdPH6T6lpnqsJxFI3LRBv+IcodA
cnVNkVoTlpqPblzjaMyd3F+9J3QfXNupD3IeFf0Gd+tKmX72YGkxjj4i3kuRjbIw
C3Qm1fDwsq2NIzTYUlupmniBCMtV0r+rWSeZueUoumzeq5CF8Td+GAY3cZedpLF/
WA==
-----END CERTIFICATE REQUEST-----
)";
constexpr const char* kOfEd25519 = R"(-----BEGIN CERTIFICATE REQUEST-----
MIGnMFsCAQAwKDENMAsGA1UECgwEZmx5dDELMAkGA1UECwwCdm0xCjAIBgNVBAMM
AWEwKjAFBgMrZXADIQCRWVARQP6cANpdS4z1P23P0cld8CMnr8wIMuAhxGYFaqAA
MAUGAytlcANBAMUk7yMiMi9NUAXcCmn+kgTaRZmTA6NBaX+jL/5hLjhoKr593jMc
QT2GDwkA21pfioPK1Uy/4u4l0xY3DfcPBwk=
-----END CERTIFICATE REQUEST-----
)";
constexpr const char* kOfP192 = R"(-----BEGIN CERTIFICATE REQUEST-----
MIHBMHoCAQAwKDENMAsGA1UECgwEZmx5dDELMAkGA1UECwwCdm0xCjAIBgNVBAMM
AWEwSTATBgcqhkjOPQIBBggqhkjOPQMBAQMyAASZk90rvHwZSSIE7y99nHidmluf
7JqR2MS5PlHoBACwZZTOZ77Pl/o9T3rmqxJvqZugADAKBggqhkjOPQQDAgM3ADA0
AhgGJN+iQOW8A8cG7EGNhxlnSQCf1QpbWtICGFg3CwWW5Y5h/mqKbWZ1h3G7xZ1Z
zC3GBQ==
-----END CERTIFICATE REQUEST-----
)";
// Of P-384; it would like to be an authority, and cluster.example.org.
constexpr const char* kOfP384 = R"(-----BEGIN CERTIFICATE REQUEST-----
MIIBXjCB5gIBADAoMQ0wCwYDVQQKDARmbHl0MQswCQYDVQQLDAJ2bTEKMAgGA1UE
AwwBYTB2MBAGByqGSM49AgEGBSuBBAAiA2IABGzvG+yag5Q9oKtLi3TI42UISVqf
vLUIoL0C8ucN1IysW2f7SyyL1Hp0yW0W6k4l1TzvWUvq9k5Ddv7y0xDHxzNvCW4o
dKxpChy91fp/r+GbDryv9ke1HDuqQJxfgIwHSqA/MD0GCSqGSIb3DQEJDjEwMC4w
HgYDVR0RBBcwFYITY2x1c3Rlci5leGFtcGxlLm9yZzAMBgNVHRMEBTADAQH/MAoG
CCqGSM49BAMCA2cAMGQCMGQWwZTRnYejLaM23JMkG96OFNTmhBtixPm5+L7+1VFh
EMZpRfo9A4lW/qZfh1+2rwIwPPRzoO2FCMCSqvQW6Z6+amUJsdBilYYezaf5eNFG
MR3pFMtZyWvfavGRKUW0dDYi
-----END CERTIFICATE REQUEST-----
)";

TEST(SigningRequest, BecomesACertificateOfItsKey) {
  const KeyPair ca = authority();
  const auto request = make_request("a", "vm");
  ASSERT_TRUE(request.ok()) << request.error().message;
  const auto made = sign(ca, request->request, {"a", "vm", {"10.0.0.7"}, 30});
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(facts_of(*made)->name, "a");
  EXPECT_EQ(facts_of(*made)->role, "vm");
  // It cannot sign others, but not because its key would be another one.
  const auto other = issue({*made, request->key}, {"b", "vm", {}, 1});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message.find("not that of its certificate"), std::string::npos);
  const auto foreign = issue({*made, ca.key}, {"b", "vm", {}, 1});
  EXPECT_NE(foreign.error().message.find("not that of its certificate"), std::string::npos);
}

TEST(SigningRequest, OnlyItsKeyIsTaken) {
  const KeyPair ca = authority();
  const auto made = sign(ca, kOfP384, {"a", "vm", {}, 30});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto issued = issue(ca, {"a", "vm", {}, 30});
  // A larger key is the only difference.
  EXPECT_LT(made->size(), issued->certificate.size() + 64);
}

TEST(SigningRequest, ForAnotherNameOrRoleIsRefused) {
  const KeyPair ca = authority();
  const std::string request = make_request("a", "vm")->request;
  EXPECT_EQ(sign(ca, request, {"b", "vm", {}, 1}).error().code, ErrorCode::kDenied);
  EXPECT_EQ(sign(ca, request, {"a", "node", {}, 1}).error().code, ErrorCode::kDenied);
  EXPECT_FALSE(make_request("a,OU=admin", "vm").ok());
}

TEST(SigningRequest, OfAnotherKindOfKeyIsRefused) {
  for (const char* request : {kOfRsa, kOfEd25519, kOfP192}) {
    const auto made = sign(authority(), request, {"a", "vm", {}, 1});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message, "a key of the curve P-256 or P-384 is needed");
  }
}

TEST(SigningRequest, WhatIsNoneIsRefused) {
  const KeyPair ca = authority();
  const std::string good = make_request("a", "vm")->request;
  const CertificateRequest wanted{"a", "vm", {}, 1};
  EXPECT_FALSE(sign(ca, "", wanted).ok());
  EXPECT_FALSE(sign(ca, ca.certificate, wanted).ok());
  EXPECT_FALSE(sign(ca, std::string(kSigningRequestBytesMax + 1, 'x'), wanted).ok());
  EXPECT_TRUE(sign(ca, std::string(1000, '\n') + good, wanted).ok());
  EXPECT_FALSE(sign(ca, std::string(kSigningRequestBytesMax, '\n') + good, wanted).ok());
  // Whatever is changed, it is not what its key has signed; or it is the same as before.
  int signed_ones = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string other = good;
    other[at] = other[at] == 'A' ? 'B' : 'A';
    if (sign(ca, other, wanted).ok()) ++signed_ones;
    EXPECT_FALSE(sign(ca, good.substr(0, at), wanted).ok() && at + 2 < good.size()) << at;
  }
  EXPECT_LE(signed_ones, 3);
}

// A daemon would wait at its terminal for ever.
TEST(SigningRequest, NobodyIsAskedForThePasswordOfAnEncryptedOne) {
  const std::string good = make_request("a", "vm")->request;
  const std::size_t line = good.find('\n') + 1;
  const std::string encrypted = good.substr(0, line) +
                                "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC," +
                                std::string(32, '0') + "\n\n" + good.substr(line);
  const KeyPair ca = authority();
  const auto made = sign(ca, encrypted, {"a", "vm", {}, 1});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("password"), std::string::npos) << made.error().message;
}

TEST(Certificate, ItsFingerprintIsThatOfItsBytes) {
  const KeyPair ca = authority();
  const auto print = fingerprint_of(ca.certificate);
  ASSERT_TRUE(print.ok());
  EXPECT_EQ(print->size(), 64u);
  EXPECT_EQ(*fingerprint_of("text before\n" + ca.certificate + authority().certificate), *print);
  EXPECT_NE(*fingerprint_of(authority().certificate), *print);
  EXPECT_FALSE(fingerprint_of("").ok());
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

TEST(Expiry, IsToldInTimeOfEachCertificate) {
  std::string folder = std::filesystem::temp_directory_path() / "flyt-expiry-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const KeyPair ca = authority();
  const auto file = [&](const std::string& name, std::uint32_t days) {
    std::ofstream(folder + "/" + name) << issue(ca, {"a", "vm", {}, days})->certificate;
    return folder + "/" + name;
  };
  const std::string soon = file("soon", 20);
  const std::string late = file("late", 40);
  std::ofstream(folder + "/none") << "no certificate";
  const Expiry expiry({soon, late, soon, "", folder + "/none", folder + "/nowhere"});
  std::filesystem::remove_all(folder);
  constexpr std::int64_t kDay = 86400;
  // However long it took to make them, it was less than an hour.
  const std::int64_t now = unix_seconds() + kDay / 24;
  EXPECT_TRUE(expiry.problems(now).empty());
  ASSERT_EQ(expiry.problems(now + 7 * kDay).size(), 1u);
  EXPECT_TRUE(
      expiry.problems(now + 7 * kDay)[0].starts_with("the certificate " + soon + " ends in 12d"));
  EXPECT_TRUE(
      expiry.problems(now + 21 * kDay)[0].starts_with("the certificate " + soon + " has ended"));
  EXPECT_EQ(expiry.problems(now + 41 * kDay).size(), 2u);
}

}  // namespace
}  // namespace flyt::pki
