#include "control/cli/cluster/authority.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "control/pki/certificate.h"
#include "control/settings/settings.h"

namespace flyt::cli {
namespace {

class AuthorityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "flyt-ca-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    options_.folder = name + "/ca";
    options_.json = true;
  }
  void TearDown() override {
    std::filesystem::remove_all(std::filesystem::path(options_.folder).parent_path());
  }
  AuthorityOptions with(const std::string& name, const std::string& role = "") const {
    AuthorityOptions options = options_;
    options.name = name;
    options.role = role;
    return options;
  }
  std::string file(const std::string& name) const {
    const auto text = control::read_file(options_.folder + "/" + name);
    return text ? *text : "";
  }

  AuthorityOptions options_;
};

TEST_F(AuthorityTest, IssuesCertificatesWhoseKeysAreTheirOwnersAlone) {
  ASSERT_TRUE(ca_init(with("site")).ok());
  ASSERT_TRUE(ca_issue(with("gpu-1", "node")).ok());
  const auto facts = pki::facts_of(file("gpu-1.crt"));
  ASSERT_TRUE(facts.ok());
  EXPECT_EQ(facts->role, "node");
  for (const char* key : {"/ca.key", "/gpu-1.key"}) {
    struct stat found {};
    ASSERT_EQ(::stat((options_.folder + key).c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u) << key;
  }
}

// What it signed ends with it, and so would a cluster.
TEST_F(AuthorityTest, LastsLongerThanItsCertificates) {
  ASSERT_TRUE(ca_init(with("site")).ok());
  ASSERT_TRUE(ca_issue(with("a", "vm")).ok());
  const auto years = [&](const std::string& name) {
    const auto facts = pki::facts_of(file(name));
    return facts ? (facts->expires_at - facts->begins_at) / (365 * 86400) : -1;
  };
  EXPECT_EQ(years("ca.crt"), 10);
  EXPECT_EQ(years("a.crt"), 1);
}

TEST_F(AuthorityTest, NeverWritesOverAKey) {
  ASSERT_TRUE(ca_init(with("site")).ok());
  const std::string before = file("ca.key");
  EXPECT_EQ(ca_init(with("site")).error().code, ErrorCode::kDenied);
  EXPECT_EQ(file("ca.key"), before);
  ASSERT_TRUE(ca_issue(with("a", "vm")).ok());
  const std::string key = file("a.key");
  EXPECT_EQ(ca_issue(with("a", "vm")).error().code, ErrorCode::kDenied);
  EXPECT_EQ(file("a.key"), key);
  EXPECT_FALSE(ca_issue(with("ca", "vm")).ok());
}

TEST_F(AuthorityTest, RevokesByNameAndByNumber) {
  ASSERT_TRUE(ca_init(with("site")).ok());
  ASSERT_TRUE(ca_issue(with("a", "vm")).ok());
  ASSERT_TRUE(ca_issue(with("b", "vm")).ok());
  const std::string b = pki::facts_of(file("b.crt"))->serial;
  ASSERT_TRUE(ca_revoke(with("a")).ok());
  ASSERT_TRUE(ca_revoke(with(b)).ok());
  const auto list = pki::RevocationList::parse(file("crl.pem"), file("ca.crt"));
  ASSERT_TRUE(list.ok());
  EXPECT_TRUE(list->has(pki::facts_of(file("a.crt"))->serial));
  EXPECT_TRUE(list->has(b));
  EXPECT_FALSE(ca_revoke(with("nobody")).ok());
}

TEST_F(AuthorityTest, WithoutAnAuthoritySaysHowToMakeOne) {
  const Status status = ca_issue(with("a", "vm"));
  ASSERT_FALSE(status.ok());
  // A file that cannot be read: flytctl tells that from a VM or node that there is not.
  EXPECT_EQ(status.error().code, ErrorCode::kSystem);
  EXPECT_NE(status.error().message.find("ca init"), std::string::npos);
}

}  // namespace
}  // namespace flyt::cli
