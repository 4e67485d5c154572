// The multiprocessors of a lease change while its programs run: nothing fails, nothing is out of
// order, and what is launched from then on runs where it shall.
#include <signal.h>

#include <atomic>
#include <thread>

#include "tests/lease/tenant.h"

namespace flyt::tests {
namespace {

// That sessions have for moving, however busy the machine is.
constexpr Duration kPatience = std::chrono::seconds(20);

class Resize : public LeaseTest {
 protected:
  void SetUp() override {
    ::setenv("FLYT_SOFTGPU_SMS", "48", 1);
    ::signal(SIGPIPE, SIG_IGN);  // Of programs that were killed.
  }
  void TearDown() override { ::unsetenv("FLYT_SOFTGPU_SMS"); }

  // In four streams and two graphs.
  static std::string everywhere(const std::string& groups) {
    std::string all = groups;
    for (int i = 1; i < 6; ++i) all += " " + groups;
    return all;
  }
  std::unique_ptr<kill::Child> mover() {
    auto child = std::make_unique<kill::Child>("mover", 0, server_.url());
    EXPECT_TRUE(child->wrote("ready\n", kSeconds)) << child->output() << server_.log();
    return child;
  }
};

TEST_F(Resize, MovesRunningSessions) {
  start({"--sm-groups", "1,3"});
  const auto client = control();
  const auto a = mover();
  const auto b = mover();
  EXPECT_EQ(ask(a, "groups"), everywhere("1,3"));
  auto set = client->set_groups({0, 4}, kPatience);  // Others of the same number.
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_EQ(set->behind, 0U);
  EXPECT_EQ(ask(a, "groups"), everywhere("0,4"));
  EXPECT_EQ(ask(b, "groups"), everywhere("0,4"));
  ASSERT_TRUE(client->set_groups({0, 2, 4, 5}, kPatience).ok());  // More.
  EXPECT_EQ(ask(a, "groups"), everywhere("0,2,4,5"));
  ASSERT_TRUE(client->set_groups({5}, kPatience).ok());  // Fewer.
  EXPECT_EQ(ask(a, "groups"), everywhere("5"));
  ASSERT_TRUE(client->set_sms(0, kPatience).ok());  // All.
  EXPECT_EQ(ask(b, "groups"), everywhere("0,1,2,3,4,5"));
  ASSERT_TRUE(client->set_sms(16, kPatience).ok());
  EXPECT_EQ(ask(b, "groups"), everywhere("0,1"));
  EXPECT_EQ(ask(a, "run 5"), "equal");
  const auto state = client->describe();
  EXPECT_EQ(state->behind, 0U);
  EXPECT_EQ(state->fixed, 0U);
  EXPECT_EQ(state->moves, 5U);
  EXPECT_GT(state->last_move.count(), 0);
  EXPECT_EQ(ask(a, "run 20"), "equal");
}

TEST_F(Resize, MovesASessionOfAServerWithoutGroups) {
  start({"--gpu", "0"});
  const auto a = mover();
  EXPECT_EQ(ask(a, "groups"), everywhere("0,1,2,3,4,5"));
  ASSERT_TRUE(control()->set_groups({2}, kPatience).ok());
  EXPECT_EQ(ask(a, "groups"), everywhere("2"));
}

TEST_F(Resize, TellsTheAttributeOfTheBeginning) {
  start({"--sms", "16"});
  const auto a = mover();
  EXPECT_EQ(ask(a, "sms"), "16 16");
  ASSERT_TRUE(control()->set_sms(32, kPatience).ok());
  EXPECT_EQ(ask(a, "sms"), "16 32");
  EXPECT_EQ(ask(mover(), "sms"), "32 32");
}

TEST_F(Resize, FiveHundredTimesUnderLoadChangesNoResult) {
  start({"--sm-groups", "4"});
  const auto client = control();
  const auto a = mover();
  const auto b = mover();
  const std::vector<std::vector<std::uint32_t>> shapes = {
      {0, 1}, {2, 3}, {1, 2, 4}, {5}, {0, 1, 2, 3, 4, 5}, {3}};
  std::atomic<bool> over{false};
  const auto keep_running = [&](const std::unique_ptr<kill::Child>& child, std::string& said) {
    do {
      said = ask(child, "run 40");
    } while (said == "equal" && !over.load());
  };
  std::string said_a;
  std::string said_b;
  std::thread first([&] { keep_running(a, said_a); });
  std::thread second([&] { keep_running(b, said_b); });
  unsigned moved = 0;
  for (unsigned i = 0; i < 500; ++i) {
    const auto set = client->set_groups(shapes[i % shapes.size()], kPatience);
    if (!set.ok() || set->behind != 0) break;
    ++moved;
  }
  over.store(true);
  first.join();
  second.join();
  EXPECT_EQ(moved, 500U);
  EXPECT_EQ(said_a, "equal") << server_.log();
  EXPECT_EQ(said_b, "equal") << server_.log();
  EXPECT_EQ(client->describe()->moves, 500U);
  ASSERT_TRUE(client->set_groups({4}, kPatience).ok());
  EXPECT_EQ(ask(a, "groups"), everywhere("4"));
}

TEST_F(Resize, WaitsForTheEndOfACapture) {
  start({"--sm-groups", "1"});
  const auto client = control();
  const auto a = mover();
  EXPECT_EQ(ask(a, "begin"), "begun");
  const auto set = client->set_groups({2}, std::chrono::milliseconds(50));
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->behind, 1U);
  EXPECT_EQ(client->describe()->behind, 1U);
  // What was captured in the old groups runs in the new ones as soon as the session has moved.
  const std::string first = ask(a, "end");
  EXPECT_TRUE(first == "1" || first == "2") << first;
  EXPECT_TRUE(client->set_groups({2}, kPatience).ok());
  EXPECT_EQ(ask(a, "groups"), everywhere("2"));
  EXPECT_EQ(client->describe()->behind, 0U);
}

TEST_F(Resize, LeavesAProgramsOwnGreenContextsWhereTheyAre) {
  start({"--sm-groups", "1,2"});
  const auto client = control();
  const auto a = mover();
  const std::string own = ask(a, "green");
  EXPECT_TRUE(own == "1" || own == "2") << own;
  ASSERT_TRUE(client->set_groups({4, 5}, kPatience).ok());
  EXPECT_EQ(ask(a, "green"), own);
  EXPECT_GE(client->describe()->fixed, 1U);
}

TEST_F(Resize, NeverWaitsForWorkThatWaitsForWorkToCome) {
  start({"--sm-groups", "1"});
  const auto client = control();
  const auto a = mover();
  EXPECT_EQ(ask(a, "groups"), everywhere("1"));
  EXPECT_EQ(ask(a, "held"), "held");
  ASSERT_TRUE(client->set_groups({3}, std::chrono::milliseconds(50)).ok());
  EXPECT_EQ(ask(a, "freed"), "freed");
  EXPECT_EQ(client->set_groups({3}, kPatience)->behind, 0U);
  EXPECT_EQ(ask(a, "groups"), everywhere("3"));
  EXPECT_EQ(ask(a, "run 3"), "equal");
}

TEST_F(Resize, OutlivesProgramsThatEnd) {
  start({"--sm-groups", "0"});
  const auto client = control();
  for (unsigned i = 0; i < 10; ++i) {
    const auto a = mover();
    std::thread busy([&] { ask(a, "run 100000"); });
    for (std::uint32_t k = 0; k < 5; ++k) {
      EXPECT_TRUE(client->set_groups({k}, std::chrono::milliseconds(i)).ok());
      if (k == 3) ::kill(a->pid(), SIGKILL);
    }
    busy.join();
  }
  const auto set = client->set_groups({1, 2}, kPatience);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->behind, 0U);
  EXPECT_EQ(ask(mover(), "groups"), everywhere("1,2"));
}

TEST_F(Resize, RefusesWhatThereIsNot) {
  start({"--sms", "16"});
  const auto client = control();
  const auto a = mover();
  EXPECT_FALSE(client->set_groups({}).ok());
  EXPECT_FALSE(client->set_groups({6}).ok());
  EXPECT_FALSE(client->set_groups({1, 1}).ok());
  EXPECT_FALSE(client->set_sms(49).ok());
  EXPECT_EQ(ask(a, "groups"), everywhere("0,1"));
  EXPECT_EQ(client->describe()->moves, 0U);
}

}  // namespace
}  // namespace flyt::tests
