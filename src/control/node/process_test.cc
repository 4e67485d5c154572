#include "control/node/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace flyt::node {
namespace {

constexpr Duration kLong = std::chrono::seconds(30);

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "flyt-process-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Result<Process> run(const std::string& script, bool tells_ready) {
    ProcessCommand command;
    command.words = {"/bin/sh", "-c", script};
    command.changes = {{"FLYT_TEST_VALUE", "here"}};
    command.log = folder_ + "/log";
    command.tells_ready = tells_ready;
    return Process::start(command, system_clock().now() + kLong);
  }
  std::string folder_;
};

TEST_F(ProcessTest, StartsInAGroupOfItsOwnAndSaysWhenItIsReady) {
  auto process = run("echo $FLYT_TEST_VALUE; echo ready >&3; exec cat /dev/zero >/dev/null", true);
  ASSERT_TRUE(process) << process.error().message;
  const auto facts = facts_of(process->id().pid);
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->group, process->id().pid);
  EXPECT_EQ(facts->id, process->id());
  EXPECT_EQ(tail_of(folder_ + "/log", 100), "here");
  EXPECT_FALSE(process->ended());
  process->end(SIGTERM, kLong);
  EXPECT_FALSE(facts_of(process->id().pid));
}

TEST_F(ProcessTest, SaysThatItEndedBeforeItWasReady) {
  const auto process = run("echo no such GPU >&2; exit 3", true);
  ASSERT_FALSE(process);
  EXPECT_NE(process.error().message.find("ended at its start"), std::string::npos);
  EXPECT_EQ(tail_of(folder_ + "/log", 100), "no such GPU");
}

TEST_F(ProcessTest, SaysThatThereIsNoSuchProgram) {
  ProcessCommand command;
  command.words = {folder_ + "/nothing"};
  command.log = folder_ + "/log";
  const auto process = Process::start(command, system_clock().now() + kLong);
  ASSERT_FALSE(process);
  EXPECT_NE(process.error().message.find("cannot start"), std::string::npos);
}

TEST_F(ProcessTest, IsEndedEvenIfItIgnoresSignals) {
  auto process = run("trap '' TERM; echo ready >&3; while :; do sleep 60; done", true);
  ASSERT_TRUE(process);
  process->end(SIGTERM, std::chrono::milliseconds(50));
  EXPECT_TRUE(process->ended());
}

TEST_F(ProcessTest, TellsHowItEnded) {
  auto process = run("exit 7", false);
  ASSERT_TRUE(process);
  ASSERT_TRUE(process->wait_until(system_clock().now() + kLong));
  EXPECT_EQ(process->collect(), "exit status 7");
}

TEST_F(ProcessTest, IsFoundAgainOnlyIfItIsTheSame) {
  auto process = run("echo ready >&3; exec cat /dev/zero >/dev/null", true);
  ASSERT_TRUE(process);
  ProcessId other = process->id();
  ++other.start;
  EXPECT_FALSE(Process::adopt(other));
  EXPECT_FALSE(Process::adopt({}));
  auto again = Process::adopt(process->id());
  ASSERT_TRUE(again);
  process->end(SIGKILL, kLong);
  EXPECT_TRUE(again->ended());
  EXPECT_FALSE(Process::adopt(process->id()));
}

TEST_F(ProcessTest, InheritsNoDescriptors) {
  const Fd open(::dup(0));
  auto process = run("ls /proc/self/fd | tr '\\n' ' '", false);
  ASSERT_TRUE(process);
  ASSERT_TRUE(process->wait_until(system_clock().now() + kLong));
  // The fourth is ls's own, of the folder.
  EXPECT_EQ(tail_of(folder_ + "/log", 100), "0 1 2 3 ");
  process->end(SIGKILL, kLong);
}

}  // namespace
}  // namespace flyt::node
