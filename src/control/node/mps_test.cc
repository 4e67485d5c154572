#include "control/node/mps.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace flyt::node {
namespace {

// The program is a script that does what NVIDIA's does as far as a node sees it.
class MpsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "flyt-mps-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  MpsDaemon daemon(const std::string& script) {
    const std::string program = folder_ + "/mps-control";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    ::chmod(program.c_str(), 0700);
    return MpsDaemon(settings(program));
  }
  MpsSettings settings(const std::string& program) const {
    return {program, folder_ + "/pipe", folder_ + "/log", "GPU-7"};
  }
  static constexpr const char* kGood =
      "echo \"$1 $CUDA_VISIBLE_DEVICES\" > $CUDA_MPS_LOG_DIRECTORY/seen\n"
      ": > $CUDA_MPS_PIPE_DIRECTORY/control\n"
      "while :; do sleep 60; done";
  std::string folder_;
};

TEST_F(MpsTest, RunsInFoldersOfItsOwnForOneGpu) {
  MpsDaemon mps = daemon(kGood);
  const Status status = mps.start();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_TRUE(mps.running());
  EXPECT_EQ(tail_of(folder_ + "/log/seen", 100), "-f GPU-7");
  mps.stop();
  EXPECT_FALSE(mps.running());
}

TEST_F(MpsTest, SaysWhatToDoWhereThereIsNone) {
  MpsDaemon mps(settings(folder_ + "/nothing"));
  const Status status = mps.start();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("gpus.mode = \"isolated\""), std::string::npos);
}

TEST_F(MpsTest, TellsWhatADaemonSaidThatDidNotStart) {
  MpsDaemon mps = daemon("echo MPS is not supported >&2; exit 1");
  const Status status = mps.start();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("MPS is not supported"), std::string::npos);
}

TEST_F(MpsTest, TellsHowADaemonEndedThatSaidNothingAndWhatToDo) {
  MpsDaemon mps = daemon("exit 3");
  const Status status = mps.start();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("MPS did not start: " + folder_ +
                                        "/mps-control ended with exit status 3; see " + folder_ +
                                        "/log/daemon.log: mode \"shared\" needs NVIDIA's MPS"),
            std::string::npos)
      << status.error().message;
  EXPECT_NE(status.error().message.find("gpus.mode = \"isolated\""), std::string::npos);
}

TEST_F(MpsTest, DoesNotTakeALeftOverForADaemon) {
  std::filesystem::create_directories(folder_ + "/pipe");
  std::filesystem::permissions(folder_ + "/pipe", std::filesystem::perms::owner_all);
  std::ofstream(folder_ + "/pipe/control") << "old";
  MpsDaemon mps = daemon("exit 1");
  EXPECT_FALSE(mps.start());
}

TEST_F(MpsTest, SeesTheEndAndStartsAgain) {
  MpsDaemon mps = daemon(kGood);
  ASSERT_TRUE(mps.start());
  const ProcessId first = mps.id();
  const auto seen = Process::adopt(first);
  ASSERT_TRUE(seen);
  ::kill(first.pid, SIGKILL);
  ASSERT_TRUE(seen->wait_until(system_clock().now() + std::chrono::seconds(30)));
  EXPECT_FALSE(mps.running());
  mps.stop();
  ASSERT_TRUE(mps.start());
  EXPECT_NE(mps.id(), first);
  mps.stop();
}

TEST_F(MpsTest, IsTakenOverByTheNextManager) {
  MpsDaemon mps = daemon(kGood);
  ASSERT_TRUE(mps.start());
  MpsDaemon next(settings(folder_ + "/mps-control"));
  EXPECT_TRUE(next.adopt(mps.id()));
  EXPECT_TRUE(next.running());
  ProcessId wrong = mps.id();
  ++wrong.start;
  MpsDaemon other(settings(folder_ + "/mps-control"));
  EXPECT_FALSE(other.adopt(wrong));
  mps.stop();
}

TEST_F(MpsTest, EndsTheServersOfADaemonThatWasTakenOverAndNoOthers) {
  // In sessions of their own, which the end of the daemon's group does not reach.
  const std::string server = folder_ + "/nvidia-cuda-mps-server";
  ASSERT_EQ(::symlink("/bin/sleep", server.c_str()), 0);
  // The shell's child becomes it some time later.
  const std::string until_there =
      "until read name </proc/$!/comm && [ \"$name\" = nvidia-cuda-mps ]; do :; done\n";
  MpsDaemon mps = daemon("setsid " + server + " 600 &\n" + until_there +
                         "echo $! > $CUDA_MPS_LOG_DIRECTORY/server\n" +
                         "CUDA_MPS_PIPE_DIRECTORY=/elsewhere setsid " + server + " 600 &\n" +
                         until_there + "echo $! > $CUDA_MPS_LOG_DIRECTORY/other\n" + kGood);
  ASSERT_TRUE(mps.start());
  const auto started = [this](const char* name) {
    const auto facts = facts_of(std::stoi(tail_of(folder_ + "/log/" + name, 20)));
    return Process::adopt(facts ? facts->id : ProcessId{});
  };
  auto its = started("server");
  auto other = started("other");
  ASSERT_TRUE(its && other);
  MpsDaemon next(settings(folder_ + "/mps-control"));
  ASSERT_TRUE(next.adopt(mps.id()));
  next.stop();
  EXPECT_TRUE(its->wait_until(system_clock().now() + std::chrono::seconds(30)));
  EXPECT_FALSE(other->ended());
  for (Process* process : {&*its, &*other}) process->end(SIGKILL, Duration(0));
  mps.stop();
}

}  // namespace
}  // namespace flyt::node
