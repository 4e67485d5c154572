#include "control/cluster/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "control/cluster.pb.h"

namespace flyt::cluster {
namespace {

using ::testing::HasSubstr;

TEST(Roles, EachMayDoWhatThoseBeforeItMay) {
  const auto may = [](Role has, Role wants) { return need({"x", has, ""}, wants).ok(); };
  EXPECT_TRUE(may(Role::kViewer, Role::kViewer));
  EXPECT_FALSE(may(Role::kViewer, Role::kOperator));
  EXPECT_TRUE(may(Role::kOperator, Role::kViewer));
  EXPECT_FALSE(may(Role::kOperator, Role::kAdmin));
  EXPECT_TRUE(may(Role::kAdmin, Role::kOperator));
  // Machines do their own only.
  for (const Role machine : {Role::kNode, Role::kVm}) {
    for (const Role wanted : {Role::kViewer, Role::kOperator, Role::kAdmin}) {
      EXPECT_FALSE(may(machine, wanted));
    }
  }
  EXPECT_FALSE(may(Role::kVm, Role::kNode));
  EXPECT_FALSE(may(Role::kOperator, Role::kVm));
}

TEST(Roles, AMachineSpeaksForItselfAlone) {
  const Caller vm{"vm-7", Role::kVm, ""};
  EXPECT_EQ(*self_of(vm, Role::kVm, ""), "vm-7");
  EXPECT_EQ(*self_of(vm, Role::kVm, "vm-7"), "vm-7");
  EXPECT_EQ(self_of(vm, Role::kVm, "vm-8").error().code, ErrorCode::kDenied);
  // It is not repeated to anybody, and not logged.
  const Status long_one = self_of(vm, Role::kVm, std::string(1 << 20, 'x')).error();
  EXPECT_EQ(long_one.error().code, ErrorCode::kInvalid);
  EXPECT_LT(long_one.error().message.size(), 100u);
  EXPECT_EQ(self_of(vm, Role::kNode, "vm-7").error().code, ErrorCode::kDenied);
  const Caller admin{"root", Role::kAdmin, ""};
  EXPECT_EQ(*self_of(admin, Role::kVm, "vm-8"), "vm-8");
  EXPECT_EQ(self_of(admin, Role::kVm, "").error().code, ErrorCode::kInvalid);
}

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "flyt-gate-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    authority_ = *pki::make_authority("ca", 1);
    config_.ca = folder_ + "/ca.crt";
    std::ofstream(config_.ca) << authority_.certificate;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string certificate(const std::string& name, const std::string& role) {
    return pki::issue(authority_, {name, role, {}, 1})->certificate;
  }

  std::string folder_;
  pki::KeyPair authority_;
  Config config_;
};

TEST_F(GateTest, TheCertificateTellsNameAndRole) {
  Gate gate(config_);
  ASSERT_TRUE(gate.check().ok());
  const auto caller = gate.caller_of(certificate("gpu-1", "node"), "ipv4:1.2.3.4");
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->name, "gpu-1");
  EXPECT_EQ(caller->role, Role::kNode);
  EXPECT_THAT(gate.caller_of(certificate("x", "king"), "").error().message, HasSubstr("no role"));
  EXPECT_FALSE(gate.caller_of("", "").ok());
}

TEST_F(GateTest, ARevokedCertificateIsRefusedFromTheNextCallOn) {
  const std::string pem = certificate("vm-7", "vm");
  config_.crl = folder_ + "/crl.pem";
  std::ofstream(config_.crl) << *pki::revoke(authority_, "", "AB", 1);
  Gate gate(config_);
  ASSERT_TRUE(gate.check().ok());
  ASSERT_TRUE(gate.caller_of(pem, "").ok());
  const std::string before = *control::read_file(config_.crl);
  std::ofstream(config_.crl) << *pki::revoke(authority_, before, pki::facts_of(pem)->serial, 1);
  // A file's time may not have moved in between.
  std::filesystem::last_write_time(
      config_.crl, std::filesystem::last_write_time(config_.crl) + std::chrono::seconds(1));
  EXPECT_THAT(gate.caller_of(pem, "").error().message, HasSubstr("revoked"));
}

TEST_F(GateTest, AnExpiredCertificateIsNobodysAlsoOnAConnectionThatIsOpen) {
  Gate gate(config_);
  const auto over = pki::issue(authority_, {"eve", "viewer", {}, 0});
  ASSERT_TRUE(over.ok());
  const auto caller = gate.caller_of(over->certificate, "");
  ASSERT_FALSE(caller.ok());
  EXPECT_EQ(caller.error().code, ErrorCode::kDenied);
  EXPECT_THAT(caller.error().message, HasSubstr("eve has expired"));
}

TEST_F(GateTest, WithoutItsListNobodyIsLetIn) {
  config_.crl = folder_ + "/crl.pem";
  Gate gate(config_);
  EXPECT_FALSE(gate.check().ok());
  EXPECT_EQ(gate.caller_of(certificate("a", "admin"), "").error().code, ErrorCode::kDenied);
  std::ofstream(config_.crl) << *pki::revoke(*pki::make_authority("ca", 1), "", "AB", 1);
  EXPECT_THAT(gate.caller_of(certificate("a", "admin"), "").error().message,
              HasSubstr("not signed by the authority"));
}

TEST_F(GateTest, UsersOfTheMachineHaveTheirRoles) {
  config_.operators = {"4711"};
  config_.viewers = {"nobody"};
  EXPECT_EQ(Gate::role_of_user(config_, 0), Role::kAdmin);
  EXPECT_EQ(Gate::role_of_user(config_, ::geteuid()), Role::kAdmin);
  EXPECT_EQ(Gate::role_of_user(config_, 4711), Role::kOperator);
  EXPECT_EQ(Gate::role_of_user(config_, 65534), Role::kViewer);
  EXPECT_EQ(Gate::role_of_user(config_, 4712), std::nullopt);
  config_.viewers = {"no-such-user"};
  EXPECT_THAT(Gate(config_).check().error().message, HasSubstr("no-such-user"));
}

TEST(Behalf, IsAnAdminsWordAlone) {
  v1::Behalf said;
  said.set_name("vm-7");
  said.set_role("vm");
  said.set_peer("ipv4:10.0.0.7");
  const std::string bytes = said.SerializeAsString();
  const auto caller = Gate::speaks_for({"m2", Role::kAdmin, "peer"}, bytes);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->name, "vm-7");
  EXPECT_EQ(caller->role, Role::kVm);
  EXPECT_EQ(caller->peer, "ipv4:10.0.0.7");
  for (const Role role : {Role::kViewer, Role::kOperator, Role::kNode, Role::kVm}) {
    EXPECT_EQ(Gate::speaks_for({"eve", role, "peer"}, bytes).error().code, ErrorCode::kDenied);
  }
  for (const std::string& bad :
       {std::string(), std::string("\xff\xff\xff"), bytes.substr(0, bytes.size() / 2)}) {
    EXPECT_FALSE(Gate::speaks_for({"m2", Role::kAdmin, "peer"}, bad).ok());
  }
  said.set_role("emperor");
  EXPECT_FALSE(Gate::speaks_for({"m2", Role::kAdmin, "peer"}, said.SerializeAsString()).ok());
}

}  // namespace
}  // namespace flyt::cluster
