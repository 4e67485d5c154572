// Killed at random moments: clients, the processes that serve them, whole servers. Nothing is left
// behind, nobody else notices, and who has lost its server is told so by every call.
//   FLYT_KILLS=N how often each (default 40)      FLYT_KILL_SEED=S (printed when a test fails)
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/random.h"
#include "control/client/server_info.h"
#include "tests/kill/child.h"
#include "tests/kill/client.h"
#include "tests/support/server_process.h"

namespace flyt::kill {
namespace {

// Seconds that nothing here takes, however busy the machine is.
constexpr double kSlow = 60;

int kills() {
  const char* given = std::getenv("FLYT_KILLS");
  return given ? std::atoi(given) : 40;
}

std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_KILL_SEED");
  static const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : random_seed();
  return seed;
}

// The field "name=NUMBER" of a line.
long long field(const std::string& line, const std::string& name) {
  const std::size_t at = line.find(name + "=");
  return at == std::string::npos ? -1 : std::atoll(line.c_str() + at + name.size() + 1);
}

class KillTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { start(); }
  void TearDown() override {
    if (HasFailure()) std::printf("FLYT_KILL_SEED=%llu\n", seed());
  }
  static unsigned long long seed() { return first_seed(); }

  void start(const std::vector<std::string>& arguments = {}) {
    server = std::make_unique<tests::ServerProcess>();
    tests::ServerOptions options;
    options.arguments = arguments;
    options.program = tests::server_program();
    options.listen = GetParam();
    const auto started = server->start(options);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  std::unique_ptr<Child> client(const char* job) {
    return std::make_unique<Child>(job, random.next(), server->url());
  }
  bool children_are(std::size_t count) const {
    return tests::eventually(kSlow, [&] { return server->children().size() == count; });
  }
  static std::string said(Child& child) {
    child.wrote("\n\n", 0.1);
    return "the witness said: " + child.output();
  }
  std::size_t free_memory() {
    auto info = client("info");
    EXPECT_EQ(0, info->wait(kSlow));
    info->wrote("\n", kSlow);
    return std::strtoull(info->output().c_str(), nullptr, 10);
  }

  Random random{first_seed()};
  std::unique_ptr<tests::ServerProcess> server;
};

TEST_P(KillTest, ClientsKilledAtRandomMomentsLeaveNothingBehind) {
  const std::size_t memory = free_memory();
  auto witness = client("witness");
  ASSERT_TRUE(witness->wrote("ready", kSlow)) << witness->output() << server->log();
  ASSERT_TRUE(children_are(1));
  const std::size_t descriptors = server->open_descriptors();
  for (int i = 0; i < kills(); ++i) {
    auto victim = client("busy");
    // Some die before they have connected, some long after.
    const std::size_t moment = random.below(200);
    const bool alive = moment < 10 || victim->wrote_bytes(moment - 9, kSlow);
    ASSERT_TRUE(alive) << victim->output() << server->log();
    victim->kill();
    ASSERT_TRUE(children_are(1)) << "kill " << i << ": " << server->children().size()
                                 << " processes are left\n"
                                 << server->log() << said(*witness);
  }
  EXPECT_TRUE(tests::eventually(kSlow, [&] { return server->zombies().empty(); }));
  // The last one's connection may still be on its way out.
  EXPECT_TRUE(tests::eventually(kSlow, [&] { return server->open_descriptors() <= descriptors; }))
      << descriptors << " files were open, and now " << server->open_descriptors();
  witness->close_stdin();
  EXPECT_EQ(0, witness->wait(kSlow)) << witness->output();
  EXPECT_TRUE(children_are(0));
  EXPECT_GE(free_memory() + (1 << 20), memory);
}

// What a bereaved client reported, judged.
void judge(Child& bereaved, int number) {
  ASSERT_EQ(0, bereaved.wait(kSlow)) << "kill " << number << ": " << bereaved.output();
  bereaved.wrote("\n", kSlow);
  while (bereaved.wrote("waiter_late_us=", kSlow) && !bereaved.output().ends_with("\n")) {
    if (!bereaved.wrote_bytes(bereaved.output().size() + 1, kSlow)) break;
  }
  const std::string& text = bereaved.output();
  EXPECT_EQ(0, field(text, "successes")) << text;
  // Both are a thousand times less on a machine that has nothing else to do; a wait would be for
  // ever.
  EXPECT_LT(field(text, "slowest_us"), 30'000'000) << text;
  EXPECT_LT(field(text, "waiter_late_us"), 30'000'000) << text;
}

TEST_P(KillTest, AClientWhoseSessionProcessDiesGetsErrorsForEver) {
  auto witness = client("witness");
  ASSERT_TRUE(witness->wrote("ready", kSlow)) << witness->output() << server->log();
  const std::vector<pid_t> others = server->children();
  for (int i = 0; i < kills(); ++i) {
    auto bereaved = client("bereaved");
    ASSERT_TRUE(bereaved->wrote("ready", kSlow)) << bereaved->output() << server->log();
    for (const pid_t process : server->children()) {
      if (std::find(others.begin(), others.end(), process) == others.end()) {
        ::kill(process, SIGKILL);
      }
    }
    judge(*bereaved, i);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(children_are(others.size())) << server->log() << said(*witness);
  }
  EXPECT_TRUE(tests::eventually(kSlow, [&] { return server->zombies().empty(); }));
  witness->close_stdin();
  EXPECT_EQ(0, witness->wait(kSlow)) << witness->output();
}

TEST_P(KillTest, AClientWhoseWholeServerDiesGetsErrorsForEver) {
  for (int i = 0; i < kills(); ++i) {
    auto bereaved = client("bereaved");
    ASSERT_TRUE(bereaved->wrote("ready", kSlow)) << bereaved->output() << server->log();
    const std::vector<pid_t> processes = server->children();
    server->kill();
    for (const pid_t process : processes) ::kill(process, SIGKILL);
    judge(*bereaved, i);
    if (HasFatalFailure()) return;
    start();
    if (HasFatalFailure()) return;
  }
}

TEST_P(KillTest, ThreadsWithStreamsOfTheirOwnEndThoughTheServerIsLost) {
  for (int i = 0; i < std::max(1, kills() / 4); ++i) {
    auto deserted = client("deserted");
    ASSERT_TRUE(deserted->wrote("ready", kSlow)) << deserted->output() << server->log();
    for (const pid_t process : server->children()) ::kill(process, SIGKILL);
    ASSERT_EQ(0, deserted->wait(kSlow)) << deserted->output();
    ASSERT_TRUE(deserted->wrote(".\n", kSlow)) << deserted->output();
    EXPECT_LT(field(deserted->output(), "ended_us"), 30'000'000) << deserted->output();
    ASSERT_TRUE(children_are(0)) << server->log();
  }
}

TEST_P(KillTest, AProgramsOwnStreamIsThereUntilItHasExited) {
  for (int i = 0; i < std::max(1, kills() / 4); ++i) {
    auto leaving = client("leaving");
    ASSERT_EQ(0, leaving->wait(kSlow)) << leaving->output() << server->log();
    ASSERT_TRUE(leaving->wrote("ok", kSlow)) << leaving->output();
    ASSERT_TRUE(children_are(0)) << server->log();
  }
}

TEST_P(KillTest, AnInterruptedServerEndsItsSessionsAndItself) {
  auto bereaved = client("bereaved");
  ASSERT_TRUE(bereaved->wrote("ready", kSlow)) << bereaved->output() << server->log();
  const std::vector<pid_t> processes = server->children();
  // SIGINT does not wait for sessions to finish, as SIGTERM does for a while.
  EXPECT_EQ(0, server->stop(SIGINT, kSlow)) << server->log();
  judge(*bereaved, 0);
  for (const pid_t process : processes) {
    EXPECT_TRUE(tests::eventually(kSlow, [&] { return ::kill(process, 0) != 0; }));
  }
}

TEST_P(KillTest, AServerWithWarmSessionsServesKillsAndReplacesThem) {
  start({"--warm", "2", "--warm-pause", "0"});
  if (HasFatalFailure()) return;
  ASSERT_TRUE(children_are(2)) << server->log();
  for (int i = 0; i < std::max(1, kills() / 4); ++i) {
    auto witness = client("witness");
    ASSERT_TRUE(witness->wrote("ready", kSlow)) << witness->output() << server->log();
    // Those that wait for a client are killed too.
    const std::vector<pid_t> processes = server->children();
    const pid_t killed = processes[random.below(processes.size())];
    ::kill(killed, SIGKILL);
    witness->kill();
    ASSERT_TRUE(tests::eventually(kSlow, [&] {
      const std::vector<pid_t> left = server->children();
      return left.size() == 2 && std::find(left.begin(), left.end(), killed) == left.end();
    })) << server->log();
  }
  EXPECT_TRUE(tests::eventually(kSlow, [&] { return server->zombies().empty(); }));
}

TEST_P(KillTest, AWarmProcessIsForASession) {
  start({"--warm", "1", "--warm-pause", "600000"});
  if (HasFatalFailure()) return;
  ASSERT_TRUE(children_are(1)) << server->log();
  const std::vector<pid_t> warm = server->children();
  // Whoever just asks what the server is does not get it.
  for (int i = 0; i < 3; ++i) {
    const auto told = control::greet(server->url());
    ASSERT_TRUE(told.ok()) << told.error().message;
    EXPECT_FALSE(told->driver.empty());
  }
  ASSERT_TRUE(children_are(1)) << server->log();
  EXPECT_EQ(warm, server->children());
  auto witness = client("witness");
  ASSERT_TRUE(witness->wrote("ready", kSlow)) << witness->output() << server->log();
  EXPECT_EQ(warm, server->children());
}

INSTANTIATE_TEST_SUITE_P(Shm, KillTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Unix, KillTest, ::testing::Values("unix"));
INSTANTIATE_TEST_SUITE_P(Tcp, KillTest, ::testing::Values("tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(Lanes, KillTest, ::testing::Values("tcp://127.0.0.1:0?lanes=2"));

int run_client(const std::string& job, std::uint64_t seed) {
  const char* given = std::getenv("FLYT_TEST_CLIENT");
  const std::string library = given ? given : tests::built_library("client/libcuda.so.1");
  if (job == "busy") return run_busy(library, seed);
  if (job == "witness") return run_witness(library, seed);
  if (job == "bereaved") return run_bereaved(library, seed);
  if (job == "deserted") return run_deserted(library, seed);
  if (job == "leaving") return run_leaving(library, seed);
  return run_info(library);
}

}  // namespace
}  // namespace flyt::kill

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--client") {
    return flyt::kill::run_client(argv[2], std::strtoull(argv[3], nullptr, 10));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
