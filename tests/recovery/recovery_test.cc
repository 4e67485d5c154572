// Sessions whose process is killed: they go on in another one, or fail as they say.
//   FLYT_KILLS=N how often at random moments (default 40)   FLYT_KILL_SEED=S (printed on failure)
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "control/lease/control_client.h"

#include "tests/kill/child.h"
#include "tests/support/server_process.h"

namespace flyt::tests {
namespace {

// Nothing here takes so long, however busy the machine is.
constexpr double kSeconds = 60;
// Longer than a session takes to notice that all work is done.
constexpr double kSettled = 0.1;
constexpr const char* kLaunchFailed = "719";
constexpr const char* kUnavailable = "46";

int kills() {
  const char* given = std::getenv("FLYT_KILLS");
  return given != nullptr ? std::atoi(given) : 40;
}

std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_KILL_SEED");
  static const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : random_seed();
  return seed;
}

// Open files of the process of that name, whose parent is `parent`; -1: there is none.
std::ptrdiff_t open_files_of(const std::string& name, pid_t parent) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (!std::getline(file, line)) continue;
    const std::size_t end = line.rfind(')');
    if (end == line.npos || line.find("(" + name + ")") == line.npos) continue;
    if (std::atoi(line.c_str() + end + 4) != parent) continue;
    std::filesystem::directory_iterator files(entry.path() / "fd", error);
    return error ? -1 : std::distance(begin(files), std::filesystem::directory_iterator());
  }
  return -1;
}

class RecoveryTest : public ::testing::TestWithParam<const char*> {
 protected:
  ~RecoveryTest() override {
    server_.reset();
    if (HasFailure()) {
      std::printf("FLYT_KILL_SEED=%llu\n", static_cast<unsigned long long>(first_seed()));
    }
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void start(std::vector<std::string> arguments = {"--recover", "10"}) {
    server_ = std::make_unique<ServerProcess>();
    std::string pattern = "/tmp/flyt-recovery-XXXXXX";
    if (folder_.empty() && ::mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
    arguments.insert(arguments.end(), {"--control", control_url()});
    ServerOptions options;
    options.arguments = std::move(arguments);
    options.program = server_program();
    options.listen = GetParam();
    const Status started = server_->start(options);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  std::unique_ptr<kill::Child> client(const std::string& options = "") {
    std::string url = server_->url();
    if (!options.empty()) url += (url.find('?') == url.npos ? "?" : "&") + options;
    auto child = std::make_unique<kill::Child>("survivor", ++seed_, url);
    EXPECT_TRUE(child->wrote("ready\n", kSeconds)) << child->output() << server_->log();
    return child;
  }
  static std::string ask(const std::unique_ptr<kill::Child>& child, const std::string& line) {
    return child->ask(line, kSeconds);
  }
  // The process of the only session.
  pid_t session() {
    pid_t found = -1;
    EXPECT_TRUE(eventually(kSeconds, [&] {
      const std::vector<pid_t> children = server_->children();
      if (children.size() != 1) return false;
      found = children.front();
      return true;
    })) << server_->log();
    return found;
  }
  // Kills it when it has had time to notice that nothing is under way.
  void kill_idle() {
    settle();
    kill_now();
  }
  static void settle() {
    static_cast<void>(eventually(kSettled, [] { return false; }));
  }
  void kill_now() { ASSERT_EQ(0, ::kill(session(), SIGKILL)); }
  // start() makes the folder if there is none yet.
  std::string keeper_path() {
    std::string pattern = "/tmp/flyt-recovery-XXXXXX";
    if (folder_.empty() && ::mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
    return folder_ + "/keeper";
  }
  std::string control_url() const { return "unix://" + folder_ + "/control"; }
  // What the lease has in use.
  std::uint64_t used() const {
    auto client = control::ControlClient::connect(control_url());
    if (!client) return ~std::uint64_t{0};
    const auto told = (*client)->describe();
    return told ? told->memory_used : ~std::uint64_t{0};
  }

  std::unique_ptr<ServerProcess> server_;
  std::string folder_;
  std::uint64_t seed_ = 0;
};

TEST_P(RecoveryTest, AnIdleProgramGoesOnAndNeverKnows) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "use"));
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

TEST_P(RecoveryTest, WorkUnderWayIsAnErrorAndMemoryStays) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "hang"));
  kill_idle();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync"));
  EXPECT_EQ("failed 719", ask(child, "info"));
  EXPECT_EQ("ok", ask(child, "rescue")) << server_->log();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync"));
  EXPECT_EQ("ok", ask(child, "reset")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  kill_idle();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, WorkUnderWayIsDoneAgainWhereThatIsWished) {
  start();
  const auto child = client("recover=replay");
  ASSERT_EQ("ok", ask(child, "use"));
  settle();
  ASSERT_EQ("0", ask(child, "hang"));
  ASSERT_EQ("0", ask(child, "paint"));
  kill_idle();
  EXPECT_EQ("0", ask(child, "release")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, AProgramMayDoWithout) {
  start();
  const auto child = client("recover=off");
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
}

TEST_P(RecoveryTest, WhatCannotBeMadeAgainIsALostServer) {
  for (const char* what : {"variable", "array"}) {
    start();
    const auto child = client();
    ASSERT_EQ("0", ask(child, what));
    ASSERT_EQ("0", ask(child, "sync"));
    kill_idle();
    EXPECT_EQ(kUnavailable, ask(child, "sync")) << what << server_->log();
    EXPECT_EQ(kUnavailable, ask(child, "sync"));
  }
}

TEST_P(RecoveryTest, ASessionThatIsEndedOnPurposeDoesNotGoOn) {
  start();
  const auto child = client();
  auto control = control::ControlClient::connect(control_url());
  ASSERT_TRUE(control.ok());
  const auto sessions = (*control)->sessions();
  ASSERT_TRUE(sessions.ok());
  ASSERT_EQ(1U, sessions->size());
  const auto process = static_cast<pid_t>(sessions->front().server_process);
  ASSERT_TRUE((*control)->end_session(sessions->front().number).ok());
  // The server's parent kills it a moment later.
  ASSERT_TRUE(eventually(kSeconds, [&] { return ::kill(process, 0) != 0; }));
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; })) << used();
}

TEST_P(RecoveryTest, WithoutAKeeperTheServerIsLost) {
  start({});
  const auto child = client();
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
}

TEST_P(RecoveryTest, WhenTheWholeServerIsGoneItIsLost) {
  start();
  const auto child = client();
  server_->kill();
  EXPECT_EQ(kUnavailable, ask(child, "sync"));
}

TEST_P(RecoveryTest, AServerThatIsToBeReplacedStaysWhileWorkIsUnderWay) {
  start({"--recover", "10", "--keeper", keeper_path(), "--handover-seconds", "1"});
  const auto child = client();
  ASSERT_EQ("0", ask(child, "hang"));
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  EXPECT_TRUE(eventually(kSeconds, [&] {
    return server_->log().find("the server stays") != std::string::npos;
  })) << server_->log();
  EXPECT_EQ("0", ask(child, "release")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, AServerThatIsToBeReplacedEndsBetweenTwoCalls) {
  // The keeper waits no longer for another one.
  start({"--recover", "1", "--keeper", keeper_path()});
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "use"));
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  EXPECT_TRUE(eventually(kSeconds, [&] {
    return server_->log().find("the next server may take over") != std::string::npos;
  })) << server_->log();
}

TEST_P(RecoveryTest, AWarmProcessTakesOver) {
  start({"--recover", "10", "--warm", "1", "--warm-pause", "0"});
  const auto child = client();
  std::vector<pid_t> all;
  ASSERT_TRUE(eventually(kSeconds, [&] {
    all = server_->children();
    return all.size() == 2;
  }));
  ASSERT_EQ("ok", ask(child, "use"));
  settle();
  for (const pid_t process : all) ::kill(process, SIGKILL);
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

// It counts once, also while one process has it no more and the other one not yet.
TEST_P(RecoveryTest, TheQuotaHoldsAndNothingIsLeft) {
  start({"--recover", "10", "--memory", "64M"});
  auto child = client();
  const std::uint64_t before = used();
  EXPECT_LT(before, 64 * kMiB);
  kill_idle();
  EXPECT_EQ("ok", ask(child, "verify")) << server_->log();
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == before; })) << used() << " " << before;
  child->kill();
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; })) << used();
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_->children().empty(); }));
}

TEST_P(RecoveryTest, WhoseClientIsGoneIsForgottenAfterAWhile) {
  start({"--recover", "1"});
  const auto child = client();
  const pid_t process = session();
  EXPECT_NE(0U, used());
  // Whichever dies first.
  ::kill(process, SIGSTOP);
  child->kill();
  ::kill(process, SIGKILL);
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; })) << used();
}

TEST_P(RecoveryTest, KillsAtRandomMomentsAreNeverWrongAndLeaveNothing) {
  start({"--recover", "10", "--warm", "1", "--warm-pause", "0"});
  Random random(first_seed());
  const std::ptrdiff_t files = open_files_of("flyt-keeper", server_->pid());
  int went_on = 0;
  int failed = 0;
  for (int i = 0; i < kills();) {
    auto child = client();
    // A session goes on so often; then the next one.
    for (int times = 0; times < 20 && i < kills(); ++times, ++i) {
      std::thread killer([&] {
        const double after = static_cast<double>(random.below(20'000)) * 1e-6;
        static_cast<void>(eventually(after, [] { return false; }));
        for (const pid_t process : server_->children()) ::kill(process, SIGKILL);
      });
      const std::string answer = ask(child, "use");
      killer.join();
      if (answer == "ok") {
        ++went_on;
        continue;
      }
      ++failed;
      ASSERT_NE(answer.find(kLaunchFailed), answer.npos) << answer << server_->log();
      // The kill may have come to the work of this one, or not.
      std::string again = ask(child, "reset");
      if (again.find(kLaunchFailed) != again.npos) again = ask(child, "reset");
      ASSERT_EQ("ok", again) << server_->log();
    }
    child->kill();
  }
  std::printf("%d went on, %d failed as they should\n", went_on, failed);
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; })) << used();
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_->children().size() <= 1; }));
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_->zombies().empty(); }));
  EXPECT_TRUE(eventually(kSeconds,
                         [&] {
                           // The warm one has no line yet.
                           return open_files_of("flyt-keeper", server_->pid()) <= files;
                         }))
      << files << " files were open, and now " << open_files_of("flyt-keeper", server_->pid());
}

INSTANTIATE_TEST_SUITE_P(Shm, RecoveryTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Unix, RecoveryTest, ::testing::Values("unix"));
INSTANTIATE_TEST_SUITE_P(Tcp, RecoveryTest, ::testing::Values("tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(Lanes, RecoveryTest, ::testing::Values("tcp://127.0.0.1:0?lanes=2"));

}  // namespace
}  // namespace flyt::tests
