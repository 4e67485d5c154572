// Kernels that fault on a GPU that processes share, as under MPS: who has caused it gets the error,
// the others go on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "control/lease/control_client.h"
#include "tests/kill/child.h"
#include "tests/recovery/stopped.h"
#include "tests/support/server_process.h"

namespace flyt::tests {
namespace {

// Nothing here takes so long, however busy the machine is.
constexpr double kSeconds = 60;
constexpr const char* kIllegalAddress = "700";
constexpr const char* kUnavailable = "46";
constexpr const char* kShared = "FLYT_SOFTGPU_SHARED_FAULTS";

// What a session's process notes for others: commands begun, the last work, and that which is done.
bool settled(pid_t process) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", error)) {
    const std::string name = std::filesystem::read_symlink(entry.path(), error).string();
    if (name.find("memfd:flyt-marks") == name.npos) continue;
    const Fd file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    std::array<std::uint64_t, 3> words{};
    if (::pread(file.get(), words.data(), sizeof words, 0) != sizeof words) continue;
    if (words[1] != words[2]) return false;
  }
  return true;
}

class FaultTest : public ::testing::TestWithParam<const char*> {
 protected:
  FaultTest() {
    std::string pattern = "/tmp/flyt-fault-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) folder_ = pattern;
    ::setenv(kShared, folder_.c_str(), 1);
  }
  ~FaultTest() override {
    servers_.clear();
    ::unsetenv(kShared);
    std::filesystem::remove_all(folder_);
  }
  void SetUp() override {
    if (!over_soft_gpu()) GTEST_SKIP() << "faults of other GPUs are shared where MPS runs";
  }
  // Servers are named by their numbers.
  void start(std::vector<std::string> arguments = {}) {
    const std::size_t number = servers_.size();
    servers_.push_back(std::make_unique<ServerProcess>());
    arguments.insert(arguments.end(), {"--recover", "20", "--control", control_url(number)});
    if (board_) arguments.insert(arguments.end(), {"--fault-board", folder_ + "/board"});
    ServerOptions options;
    options.arguments = std::move(arguments);
    options.program = server_program();
    options.listen = GetParam();
    const Status started = servers_[number]->start(options);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  std::unique_ptr<kill::Child> begin_client(std::size_t server = 0) {
    return std::make_unique<kill::Child>("survivor", ++seed_, servers_[server]->url());
  }
  std::unique_ptr<kill::Child> client(std::size_t server = 0) {
    auto child = begin_client(server);
    EXPECT_TRUE(child->wrote("ready\n", kSeconds)) << child->output() << log();
    return child;
  }
  static std::string ask(const std::unique_ptr<kill::Child>& child, const std::string& line) {
    return child->ask(line, kSeconds);
  }
  // Until the servers have found all work done.
  void settle() const {
    EXPECT_TRUE(eventually(kSeconds, [&] {
      return std::all_of(servers_.begin(), servers_.end(), [](const auto& server) {
        const std::vector<pid_t> all = server->children();
        return std::all_of(all.begin(), all.end(), settled);
      });
    })) << log();
  }
  void expect_fault_of(const std::unique_ptr<kill::Child>& child) {
    ASSERT_EQ("0", ask(child, "fault")) << log();
    EXPECT_EQ(kIllegalAddress, ask(child, "sync")) << log();
  }
  void expect_new_start_of(const std::unique_ptr<kill::Child>& child) {
    EXPECT_EQ(kIllegalAddress, ask(child, "sync")) << log();
    EXPECT_EQ("ok", ask(child, "reset")) << log();
    EXPECT_EQ("ok", ask(child, "use")) << log();
  }
  std::string control_url(std::size_t server) const {
    return "unix://" + folder_ + "/control-" + std::to_string(server);
  }
  control::FaultsState faults(std::size_t server = 0) const {
    auto client = control::ControlClient::connect(control_url(server));
    EXPECT_TRUE(client.ok());
    if (!client) return {};
    auto told = (*client)->faults(0);
    EXPECT_TRUE(told.ok());
    return told ? *told : control::FaultsState{};
  }
  // Caused, suspected, survived and lost, once they are these.
  bool counted(std::vector<std::uint64_t> expected, std::size_t server = 0) const {
    return eventually(kSeconds, [&] {
      const control::FaultsState told = faults(server);
      return expected ==
             std::vector<std::uint64_t>{told.caused, told.suspected, told.survived, told.lost};
    });
  }
  std::vector<pid_t> processes(std::size_t count, std::size_t server = 0) const {
    std::vector<pid_t> found;
    EXPECT_TRUE(eventually(kSeconds, [&] {
      found = servers_[server]->children();
      return found.size() == count;
    })) << log();
    return found;
  }
  std::string log() const {
    std::string all;
    for (const auto& server : servers_) all += "\n" + server->log();
    return all;
  }

  std::string folder_;
  bool board_ = true;
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::uint64_t seed_ = 0;
};

// What is the same over every transport.
class LongFaultTest : public FaultTest {};

TEST_P(FaultTest, AnIdleProgramOfTheSameServerGoesOn) {
  start();
  const auto idle = client();
  const auto offender = client();
  ASSERT_EQ("ok", ask(idle, "use"));
  settle();
  expect_fault_of(offender);
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  expect_new_start_of(offender);
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  EXPECT_TRUE(counted({1, 0, 1, 0})) << log();
  const control::FaultsState told = faults();
  ASSERT_EQ(1U, told.newest.size());
  EXPECT_EQ(700U, told.newest[0].error);
  EXPECT_EQ(1U, told.newest[0].suspects);
  EXPECT_EQ(static_cast<std::uint32_t>(offender->pid()), told.newest[0].client_process);
  EXPECT_TRUE(told.newest[0].goes_on);
}

TEST_P(FaultTest, AnIdleProgramOfAnotherServerGoesOn) {
  start();
  start({"--warm", "1", "--warm-pause", "0"});
  const auto offender = client(0);
  const auto idle = client(1);
  ASSERT_EQ("ok", ask(idle, "use"));
  settle();
  expect_fault_of(offender);
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  expect_new_start_of(offender);
  EXPECT_TRUE(counted({1, 0, 0, 0}, 0)) << log();
  EXPECT_TRUE(counted({0, 0, 1, 0}, 1)) << log();
}

TEST_P(FaultTest, ABusyProgramGetsTheErrorAndKeepsItsMemory) {
  start();
  const auto busy = client();
  const auto offender = client();
  ASSERT_EQ("0", ask(busy, "hang"));
  // An answer tells that what was posted before has come.
  ask(busy, "info");
  expect_fault_of(offender);
  EXPECT_EQ(kIllegalAddress, ask(busy, "sync")) << log();
  EXPECT_EQ("ok", ask(busy, "rescue")) << log();
  expect_new_start_of(busy);
  expect_new_start_of(offender);
  EXPECT_TRUE(counted({0, 2, 0, 0})) << log();
  for (const control::FaultState& fault : faults().newest) EXPECT_EQ(2U, fault.suspects);
}

TEST_P(FaultTest, AFaultThatNobodyWaitsForIsFoundAllTheSame) {
  start();
  const auto idle = client();
  const auto offender = client();
  settle();
  ASSERT_EQ("0", ask(offender, "fault"));
  EXPECT_TRUE(counted({1, 0, 1, 0})) << log();
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  expect_new_start_of(offender);
}

TEST_P(FaultTest, AProgramThatMakesNoCallsComesBackByItself) {
  start();
  const auto idle = client();
  const auto offender = client();
  settle();
  const std::vector<pid_t> before = processes(2);
  expect_fault_of(offender);
  EXPECT_TRUE(eventually(kSeconds, [&] {
    const std::vector<pid_t> now = servers_[0]->children();
    return now.size() == 2 && std::none_of(now.begin(), now.end(), [&](pid_t process) {
             return std::find(before.begin(), before.end(), process) != before.end();
           });
  })) << log();
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  expect_new_start_of(offender);
}

TEST_P(FaultTest, WhoCannotGoOnIsLostAndHoldsNobodyUp) {
  start();
  const auto spoilt = client();
  ASSERT_EQ("0", ask(spoilt, "heap"));
  ASSERT_EQ("0", ask(spoilt, "sync"));
  const auto offender = client();
  settle();
  expect_fault_of(offender);
  expect_new_start_of(offender);
  EXPECT_TRUE(counted({1, 0, 0, 1})) << log();
  EXPECT_EQ(kUnavailable, ask(spoilt, "sync")) << log();
}

TEST_P(LongFaultTest, WhoComesWhileAFaultIsClearedUpWaits) {
  start();
  const auto idle = client();
  settle();
  const std::vector<pid_t> first = processes(1);
  const auto offender = client();
  ASSERT_TRUE(stop_process(first[0]));
  ASSERT_EQ("0", ask(offender, "fault"));
  // Its server finds it out by itself; who came before that would not wait.
  ASSERT_TRUE(servers_[0]->logged("the session's work faulted", kSeconds)) << log();
  const auto newcomer = begin_client();
  EXPECT_TRUE(servers_[0]->logged("a fault is cleared up first", kSeconds)) << log();
  ::kill(first[0], SIGCONT);
  EXPECT_TRUE(newcomer->wrote("ready\n", kSeconds)) << newcomer->output() << log();
  EXPECT_EQ("ok", ask(newcomer, "use")) << log();
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  expect_new_start_of(offender);
}

TEST_P(LongFaultTest, TwentyFaultsAreSurvived) {
  start({"--warm", "1", "--warm-pause", "0"});
  const auto idle = client();
  const auto offender = client();
  const std::string used = ask(idle, "info");
  settle();
  for (int i = 0; i < 20; ++i) {
    expect_fault_of(offender);
    // That gives the GPU no work, and brings the session back for the next fault.
    EXPECT_EQ(used, ask(idle, "info")) << log();
    EXPECT_EQ("ok", ask(offender, "reset")) << log();
  }
  EXPECT_EQ("ok", ask(idle, "use")) << log();
  EXPECT_EQ("ok", ask(offender, "use")) << log();
  EXPECT_TRUE(counted({20, 0, 20, 0})) << log();
  EXPECT_EQ(20U, faults().newest.size());
}

TEST_P(LongFaultTest, WhereFaultsAreNotSharedNobodyNoticesAnything) {
  ::unsetenv(kShared);
  for (const bool board : {false, true}) {
    board_ = board;
    const std::size_t server = servers_.size();
    start();
    const auto idle = client(server);
    ASSERT_EQ("ok", ask(idle, "use"));
    const pid_t process = processes(1, server)[0];
    const auto offender = client(server);
    expect_fault_of(offender);
    EXPECT_EQ("ok", ask(idle, "use")) << log();
    expect_new_start_of(offender);
    const std::vector<pid_t> now = processes(2, server);
    EXPECT_NE(now.end(), std::find(now.begin(), now.end(), process)) << log();
  }
}

TEST_P(FaultTest, WhatTheKernelPrintedIsTold) {
  for (const bool shared : {true, false}) {
    if (!shared) ::unsetenv(kShared);
    board_ = shared;
    const std::size_t server = servers_.size();
    start();
    const auto child = client(server);
    EXPECT_EQ("told", ask(child, "die-aloud")) << log();
    EXPECT_TRUE(child->wrote("\n719\n", kSeconds)) << child->output() << log();
    EXPECT_EQ("ok", ask(child, "reset")) << log();
    EXPECT_EQ("ok", ask(child, "use")) << log();
  }
}

INSTANTIATE_TEST_SUITE_P(Shm, FaultTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Shm, LongFaultTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, FaultTest, ::testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace flyt::tests
