// What a program does while its session goes on in another process, and just before.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "tests/recovery/recovery_fixture.h"
#include "tests/recovery/stopped.h"

namespace flyt::tests {
namespace {

class MeanwhileTest : public RecoveryTest {
 protected:
  // What is asked now is sent, and nobody begins it before kill_now().
  void stop_session() {
    settle();
    ASSERT_TRUE(stop_process(session()));
  }
};
// Where nothing is shared the kernel is who reads and writes what is copied.
class SharedMeanwhileTest : public RecoveryTest {};

TEST_P(MeanwhileTest, WorkOfAStreamThatIsDestroyedIsUnderWay) {
  start();
  const auto child = client();
  settle();
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "abandon"));
  kill_at_work();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
  ASSERT_EQ("0", ask(child, "abandon"));
  ASSERT_EQ("0", ask(child, "release"));
  kill_idle();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(MeanwhileTest, WorkThatNobodyHadBegunIsDone) {
  start();
  const auto child = client();
  for (const int times : {1, 20}) {
    ASSERT_NO_FATAL_FAILURE(stop_session());
    for (int i = 0; i < times; ++i) ASSERT_EQ("0", ask(child, "paint"));
    kill_now();
    ASSERT_EQ("0", ask(child, "sync")) << server_->log();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

TEST_P(MeanwhileTest, WorkThatNobodyHadBegunIsMissedWithWhatEndsBehindIt) {
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(stop_session());
  ASSERT_EQ("0", ask(child, "abandon"));
  kill_now();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
}

TEST_P(MeanwhileTest, MoreWorkThanIsKeptIsMissed) {
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(stop_session());
  for (int i = 0; i < 300; ++i) ASSERT_EQ("0", ask(child, "paint"));
  kill_now();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
}

// It failed when it was begun: nobody waits for it, and the next answer would tell.
TEST_P(MeanwhileTest, WhatFailedAndWasNotToldIsNotDone) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "in-vain"));
  EXPECT_EQ("1", ask(child, "sync")) << server_->log();
  EXPECT_EQ("0", ask(child, "sync"));
  ASSERT_EQ("0", ask(child, "in-vain"));
  // The call before the launch was waited for: as soon as the last command is work, it is that one.
  const pid_t process = session();
  ASSERT_TRUE(eventually(kSeconds, [process] {
    const auto told = marks_of(process);
    return told && *told && (*told)->begun == (*told)->work;
  })) << server_->log();
  kill_at_work();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

// The client knows them no more, and asks another process to end what that has never had.
TEST_P(MeanwhileTest, WhatEndsMeanwhileHasEnded) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "spares"));
  for (const char* what :
       {"end-pinned", "end-module", "end-library", "end-context", "end-thread"}) {
    ASSERT_NO_FATAL_FAILURE(stop_session());
    std::string ended;
    std::thread ending([&] { ended = ask(child, what); });
    static_cast<void>(eventually(kNoticing, [] { return false; }));
    kill_now();
    ending.join();
    EXPECT_EQ("0", ended) << what << server_->log();
    // Some ask no server: now there is another process, and the next turn is about that one.
    ASSERT_EQ("0", ask(child, "sync")) << what << server_->log();
  }
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  // None of the ends keeps the session from going on once more.
  kill_idle();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

// Its thread has the answer, and has not come to say what it means.
TEST_P(MeanwhileTest, WhatWasAnsweredIsMadeAgain) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "held-load"));
  kill_idle();
  ASSERT_EQ("0", ask(child, "sync")) << server_->log();
  EXPECT_EQ("0", ask(child, "held-end")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

// Another thread has met the loss while this one was in a call.
TEST_P(SharedMeanwhileTest, ACallThatWasBegunBeforeKnowsThatWorkIsLost) {
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  ASSERT_EQ("0", ask(child, "held-copy"));
  kill_at_work();
  ASSERT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  EXPECT_EQ(kLaunchFailed, ask(child, "held-end")) << server_->log();
}

// Its process may take a while to end, and is not in the way meanwhile.
TEST_P(SharedMeanwhileTest, AFullServerHasRoomForWhoReturns) {
  start({"--recover", "10", "--max-sessions", "1"});
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "use"));
  const pid_t process = session();
  settle();
  // Its parent hears of its end when its tracer has.
  if (::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) != 0) GTEST_SKIP() << "traces nobody";
  kill_now();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  EXPECT_EQ(process, ::waitpid(process, nullptr, __WALL));
}

INSTANTIATE_TEST_SUITE_P(Shm, MeanwhileTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Shm, SharedMeanwhileTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, MeanwhileTest, ::testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace flyt::tests
