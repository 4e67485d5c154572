// Multiprocessors: the sessions of a lease run in its groups, and see no others.
#include "tests/lease/tenant.h"

namespace flyt::tests {
namespace {

// That sessions have for moving, however busy the machine is.
constexpr Duration kPatience = std::chrono::seconds(20);

class Sms : public LeaseTest {
 protected:
  void SetUp() override { ::setenv("FLYT_SOFTGPU_SMS", "48", 1); }
  void TearDown() override { ::unsetenv("FLYT_SOFTGPU_SMS"); }
};

TEST_F(Sms, AreThoseThatWereGranted) {
  start({"--sms", "12"});
  const auto state = control()->describe();
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->gpu_sms, 48U);
  EXPECT_EQ(state->sms_asked, 12U);
  EXPECT_EQ(state->sms_granted, 16U);
  EXPECT_EQ(state->group_sms, 8U);
  EXPECT_EQ(state->groups, (std::vector<std::uint32_t>{0, 1}));
  const auto a = tenant();
  EXPECT_EQ(ask(a, "sms"), "16 16 16");
}

TEST_F(Sms, AreAllWithoutALease) {
  start({});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "sms"), "48 48 48");
  EXPECT_EQ(control()->describe()->sms_granted, 48U);
}

// Kernels tell on which multiprocessors their blocks ran.
TEST_F(Sms, AreWhereKernelsRun) {
  start({"--sm-groups", "1,3"});
  const auto groups = control()->describe()->groups;
  EXPECT_EQ(groups, (std::vector<std::uint32_t>{1, 3}));
  const auto a = tenant();
  for (const char* stream : {"legacy", "thread", "own"}) {
    const std::string used = ask(a, std::string("where ") + stream);
    EXPECT_EQ(used, "0") << stream << ": a block ran outside of the lease";
  }
}

TEST_F(Sms, Change) {
  start({"--gpu", "0"});
  const auto client = control();
  const auto before = tenant();
  EXPECT_EQ(client->describe()->group_sms, 8U);
  auto set = client->set_sms(20, kPatience);
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->granted, 24U);
  EXPECT_EQ(set->groups, (std::vector<std::uint32_t>{0, 1, 2}));
  const auto after = tenant();
  EXPECT_EQ(ask(before, "sms"), "48 24 24");
  EXPECT_EQ(ask(after, "sms"), "24 24 24");
  set = client->set_groups({3, 1}, kPatience);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->granted, 16U);
  EXPECT_EQ(ask(tenant(), "where own"), "0");
  EXPECT_EQ(client->set_sms(49).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->set_groups({6}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->describe()->sms_granted, 16U);
  EXPECT_TRUE(client->set_sms(0, kPatience).ok());
  EXPECT_EQ(client->describe()->sms_granted, 48U);
}

TEST_F(Sms, BoundCooperativeLaunches) {
  start({"--sms", "8"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "cooperative 8"), "0");
  EXPECT_EQ(ask(a, "cooperative 4096"), "720");
}

TEST_F(Sms, StayAfterThePrimaryContextIsReset) {
  start({"--sms", "8"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "alloc", 2), "0");
  EXPECT_EQ(ask(a, "reset"), "0");
  EXPECT_EQ(ask(a, "alloc", 2), "0");
  EXPECT_EQ(ask(a, "sms"), "8 8 8");
}

TEST_F(Sms, ArePartOfWhatAGreenContextGets) {
  start({"--sms", "16"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "green"), "8");
}

TEST_F(Sms, ThatThereAreNotAreRefused) {
  using Arguments = std::vector<std::string>;
  for (const Arguments& arguments :
       {Arguments{"--sms", "49"}, Arguments{"--sm-groups", "6"}, Arguments{"--sm-groups", "1,1"},
        Arguments{"--sms", "17", "--sm-groups", "1,2"}}) {
    ServerProcess server;
    EXPECT_FALSE(
        server.start({.program = server_program(), .listen = "", .arguments = arguments}).ok())
        << arguments[0] << arguments[1];
  }
}

}  // namespace
}  // namespace flyt::tests
