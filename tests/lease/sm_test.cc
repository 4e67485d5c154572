// Multiprocessors: the sessions of a lease run in its groups, and see no others.
#include <set>
#include <sstream>

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

// 28 multiprocessors in two GPCs: a group of 8 in each, and a last one of the 6 that each has left.
class LastGroup : public LeaseTest {
 protected:
  using Numbers = std::set<unsigned>;

  void SetUp() override { ::setenv("FLYT_SOFTGPU_SMS", "28", 1); }
  void TearDown() override { ::unsetenv("FLYT_SOFTGPU_SMS"); }

  std::unique_ptr<kill::Child> mover() {
    auto child = std::make_unique<kill::Child>("mover", 0, server_.url());
    EXPECT_TRUE(child->wrote("ready\n", kSeconds)) << child->output() << server_.log();
    return child;
  }
  // Where its kernels run, which is the same in graphs.
  static Numbers at(const std::unique_ptr<kill::Child>& mover) {
    std::istringstream words(ask(mover, "at"));
    Numbers streams;
    Numbers graphs;
    Numbers* into = &streams;
    for (std::string word; words >> word;) {
      if (word == "|") into = &graphs;
      if (word != "|") into->insert(static_cast<unsigned>(std::stoul(word)));
    }
    EXPECT_EQ(streams, graphs);
    return streams;
  }
};

TEST_F(LastGroup, IsWhatTheChipHasLeftOver) {
  start({"--sms", "20"});
  const auto client = control();
  const auto chip = client->chip();
  ASSERT_TRUE(chip.ok());
  EXPECT_EQ(chip->sms, 28U);
  EXPECT_EQ(chip->group_sms, 8U);
  EXPECT_EQ(chip->groups, 2U);
  EXPECT_EQ(chip->last_sms, 12U);
  EXPECT_EQ(client->describe()->sms_granted, 20U);
  EXPECT_EQ(client->describe()->groups, (std::vector<std::uint32_t>{0, 2}));
  EXPECT_EQ(ask(tenant(), "sms"), "20 20 20");
}

TEST_F(LastGroup, SharesNoMultiprocessorWithOthers) {
  start({"--sm-groups", "0"});
  const auto client = control();
  const auto a = mover();
  const Numbers first = at(a);
  EXPECT_EQ(first.size(), 8U);
  const auto set = client->set_groups({1, 2}, kPatience);
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->granted, 20U);
  EXPECT_EQ(set->behind, 0U);
  const Numbers others = at(a);
  EXPECT_EQ(others.size(), 20U);
  for (const unsigned number : others) EXPECT_EQ(first.count(number), 0U) << number;
}

TEST_F(LastGroup, ComesAndGoesUnderRunningPrograms) {
  start({"--sm-groups", "0,1"});
  const auto client = control();
  const auto a = mover();
  std::size_t moved = 0;
  for (int round = 0; round < 10; ++round) {
    for (const std::vector<std::uint32_t>& groups :
         {std::vector<std::uint32_t>{1, 2}, {0}, {0, 2}, {0, 1, 2}, {1}}) {
      const auto set = client->set_groups(groups, kPatience);
      moved += set.ok() && set->behind == 0 ? 1 : 0;
      EXPECT_EQ(at(a).size(), set->granted);
      EXPECT_EQ(ask(a, "run 2"), "equal");
    }
  }
  EXPECT_EQ(moved, 50U);
  EXPECT_EQ(client->set_sms(21, kPatience)->granted, 28U);
  EXPECT_EQ(at(a).size(), 28U);
}

// A cluster of blocks may fit nowhere in it.
TEST_F(LastGroup, IsNeverGrantedAlone) {
  start({"--sms", "12"});
  const auto client = control();
  EXPECT_EQ(client->describe()->groups, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(client->set_groups({2}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->set_groups({3}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->describe()->sms_granted, 16U);
}

}  // namespace
}  // namespace flyt::tests
