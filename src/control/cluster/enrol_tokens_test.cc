#include "control/cluster/enrol_tokens.h"

#include <gtest/gtest.h>

#include "control/cluster/testing/fake_cluster.h"
#include "control/cluster/wrong_tries.h"

namespace flyt::cluster {
namespace {

constexpr std::int64_t kNow = 1'700'000'000;

v1::CreateEnrolTokenRequest wanted(const std::string& role = "vm", const std::string& name = "a") {
  v1::CreateEnrolTokenRequest request;
  request.set_role(role);
  request.set_name(name);
  return request;
}

class EnrolTokensTest : public ::testing::Test {
 protected:
  EnrolTokens::Made make(const v1::CreateEnrolTokenRequest& request = wanted(),
                         std::int64_t now = kNow) {
    auto made = tokens_.make(request, "anna", 900, now);
    EXPECT_TRUE(made.ok());
    for (const std::string& id : made->outdated) tokens_.forget(id);
    tokens_.set(made->record);
    return std::move(*made);
  }
  // Why it is not admitted; empty: it is.
  std::string why(const EnrolClaim& claim, std::int64_t now = kNow) {
    const auto record = tokens_.use(claim, now);
    return record ? "" : record.error().message;
  }
  static EnrolClaim claim_of(const EnrolTokens::Made& made) {
    return {made.record.id, made.secret, made.record.token.role(), made.record.token.name()};
  }
  EnrolTokens tokens_;
};

TEST_F(EnrolTokensTest, AdmitsItsMachineOnce) {
  const auto made = make();
  const auto used = tokens_.use(claim_of(made), kNow + 899);
  ASSERT_TRUE(used.ok());
  EXPECT_EQ(why(claim_of(made), kNow + 899), "") << "it is not written down yet";
  tokens_.set(*used);
  EXPECT_EQ(why(claim_of(made)), "the token was used already");
  EXPECT_EQ(EnrolTokens::view(*used, kNow).state(), "used");
  EXPECT_EQ(tokens_.revoke(made.record.id).error().code, ErrorCode::kUnsupported);
}

TEST_F(EnrolTokensTest, KeepsNoSecret) {
  const auto made = make();
  EXPECT_EQ(made.record.token.SerializeAsString().find(made.secret), std::string::npos);
  EXPECT_EQ(tokens_.list(kNow).SerializeAsString().find(made.secret), std::string::npos);
}

TEST_F(EnrolTokensTest, TellsWhyOnlyToWhoKnowsTheSecret) {
  const auto made = make();
  EnrolClaim other = claim_of(made);
  other.secret = make().secret;
  EXPECT_EQ(tokens_.use(other, kNow).error().code, ErrorCode::kNotFound);
  const std::string unknown = why(other);
  EXPECT_EQ(why(other, kNow + 10000), unknown);
  other.secret = "";
  EXPECT_EQ(why(other), unknown);
  other = claim_of(made);
  other.id = "0123456789abcdef";
  EXPECT_EQ(why(other), unknown);
  EXPECT_EQ(why(claim_of(made), kNow + 900), "the token has expired");
  for (const auto& [role, name] :
       {std::pair("vm", "b"), std::pair("node", "a"), std::pair("admin", "a"), std::pair("", "")}) {
    EnrolClaim named = claim_of(made);
    named.role = role;
    named.name = name;
    EXPECT_EQ(why(named), "the token is for vm a") << role << name;
  }
  tokens_.set(*tokens_.revoke(made.record.id));
  EXPECT_EQ(why(claim_of(made)), "the token was revoked");
}

TEST_F(EnrolTokensTest, RefusesRequestsThatMakeNoSense) {
  const auto is_made = [this](const v1::CreateEnrolTokenRequest& request) {
    return tokens_.make(request, "anna", 900, kNow).ok();
  };
  for (const char* role : {"", "admin", "operator", "viewer", "cluster", "VM"}) {
    EXPECT_FALSE(is_made(wanted(role))) << role;
  }
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\nb"),
                                  std::string("-a"), std::string(41, 'a')}) {
    EXPECT_FALSE(is_made(wanted("vm", name))) << name;
  }
  for (const std::string& host : {std::string(), std::string("a,DNS:b"), std::string(65, 'a')}) {
    auto request = wanted("node");
    request.add_hosts(host);
    EXPECT_FALSE(is_made(request)) << host;
  }
  auto request = wanted("node");
  for (int i = 0; i <= kEnrolHostsMax; ++i) request.add_hosts("h");
  EXPECT_FALSE(is_made(request));
  request = wanted();
  request.set_seconds(kEnrolSecondsMax + 1);
  EXPECT_FALSE(is_made(request));
}

TEST_F(EnrolTokensTest, AreLimitedAndSpentOnesMakeRoom) {
  const auto first = make();
  for (std::size_t i = 1; i < kEnrolTokensMax; ++i) make();
  EXPECT_EQ(tokens_.make(wanted(), "anna", 900, kNow).error().code, ErrorCode::kLimit);
  tokens_.set(*tokens_.revoke(first.record.id));
  make();
  EXPECT_EQ(tokens_.revoke(first.record.id).error().code, ErrorCode::kNotFound);
  make(wanted(), kNow + 60 * 86400);
  EXPECT_EQ(tokens_.list(kNow).tokens_size(), 1) << "what is long over goes";
}

TEST(EnrolTokens, OutliveAManagerAndAreSpentOnDisk) {
  testing::FakeCluster cluster;
  cluster.start();
  const auto token = cluster.manager().new_enrol_token(wanted(), "anna");
  ASSERT_TRUE(token.ok());
  const EnrolClaim claim{token->id(), token->token().substr(token->id().size() + 1), "vm", "a"};
  cluster.start();
  ASSERT_TRUE(cluster.manager().look_at(claim).ok());
  ASSERT_TRUE(cluster.manager().spend(claim, "AB", "ipv4:10.0.0.7").ok());
  EXPECT_FALSE(cluster.manager().spend(claim, "AC", "ipv4:10.0.0.7").ok());
  cluster.start();
  EXPECT_EQ(cluster.manager().look_at(claim).error().message, "the token was used already");
  const auto list = cluster.manager().enrol_tokens();
  ASSERT_EQ(list.tokens_size(), 1);
  EXPECT_EQ(list.tokens(0).serial(), "AB");
  EXPECT_EQ(list.tokens(0).used_from(), "ipv4:10.0.0.7");
  EXPECT_EQ(list.tokens(0).token(), "");
}

TEST(WrongTries, AreLimitedForEachAddressAndComeBack) {
  WrongTries tries;
  Instant now{1};
  for (unsigned i = 0; i < WrongTries::kTriesMost; ++i) {
    EXPECT_TRUE(tries.may_try("a", now)) << i;
    tries.wrong("a", now);
  }
  EXPECT_FALSE(tries.may_try("a", now));
  EXPECT_TRUE(tries.may_try("b", now));
  now = now + WrongTries::kTryBack;
  EXPECT_TRUE(tries.may_try("a", now));
  tries.wrong("a", now);
  EXPECT_FALSE(tries.may_try("a", now));
}

TEST(WrongTries, AreANetworksWhereOneMachineHasItsAddresses) {
  EXPECT_EQ(origin_of("ipv4:10.0.0.7:4711"), "ipv4:10.0.0.7");
  const std::string network = origin_of("ipv6:[2001:db8:1:2:3:4:5:6]:4711");
  EXPECT_EQ(network, "ipv6:2001:db8:1:2::/64");
  EXPECT_EQ(origin_of("ipv6:%5B2001:db8:1:2:ffff::1%5D:1"), network);
  EXPECT_EQ(origin_of("ipv6:%5Bfe80::1%25eth0%5D:1"), "ipv6:fe80::/64");
  EXPECT_NE(origin_of("ipv6:[2001:db8:1:3:3:4:5:6]:4711"), network);
  EXPECT_NE(origin_of("ipv6:[::ffff:10.0.0.7]:1"), origin_of("ipv6:[::ffff:10.0.0.8]:1"));
  EXPECT_NE(origin_of("ipv6:[::1]:1"), origin_of("ipv6:[::2]:1"));
  // What is none is as it is.
  for (const char* other : {"unix", "", "ipv6:", "ipv6:x:1", "ipv6:[:1", "ipv6:%5B:1"}) {
    EXPECT_EQ(origin_of(other), std::string(other).substr(0, std::string(other).rfind(':')));
  }
}

TEST(WrongTries, OfMoreAddressesThanAreRememberedShareTheirTries) {
  WrongTries tries;
  const Instant now{1};
  for (std::size_t i = 0; i < 2 * WrongTries::kAddressesMost; ++i) {
    tries.wrong(std::to_string(i), now);
  }
  EXPECT_TRUE(tries.may_try("1", now)) << "it is remembered by itself";
  EXPECT_FALSE(tries.may_try("somebody", now));
  EXPECT_TRUE(tries.may_try("somebody", now + std::chrono::hours(2)));
}

}  // namespace
}  // namespace flyt::cluster
