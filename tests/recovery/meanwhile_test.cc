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
  // Kills at random moments of calls that wait and change nothing; nothing was under way before.
  void kill_at_waits();
};
// The same where the client's waits look for the GPU's own words, whatever machine this is.
class FencesTest : public MeanwhileTest {
 protected:
  FencesTest() { ::setenv("FLYT_FENCE_US", "20000", 1); }
  ~FencesTest() override { ::unsetenv("FLYT_FENCE_US"); }
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

// The process has begun it, and its GPU has not: what is where the result comes is of before.
TEST_P(FencesTest, ACopyThatNobodyMadeIsMadeAgainByWhoWaits) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "waits-write"));
  ASSERT_EQ("0", ask(child, "waits-peek"));
  ASSERT_EQ("0", ask(child, "waits-write"));
  settle();
  const pid_t process = session();
  // All but the main thread, which takes commands.
  std::vector<pid_t> held;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    const pid_t thread = std::stoi(task.path().filename().string());
    if (thread == process) continue;
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) GTEST_SKIP() << "traces nobody";
    ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr), 0);
    ASSERT_EQ(::waitpid(thread, nullptr, __WALL), thread);
    held.push_back(thread);
  }
  const std::uint64_t before = work_of(process);
  std::string answer;
  std::thread asks([&] { answer = ask(child, "waits-peek"); });
  EXPECT_TRUE(eventually(kSeconds, [&] { return work_of(process) > before; })) << server_->log();
  kill_now();
  for (const pid_t thread : held) EXPECT_EQ(::waitpid(thread, nullptr, __WALL), thread);
  asks.join();
  EXPECT_EQ("0", answer) << server_->log();
}

void MeanwhileTest::kill_at_waits() {
  Random random(first_seed());
  for (const char* const wait : {"waits-sync", "waits-peek", "waits-tick"}) {
    std::unique_ptr<kill::Child> child;
    int worked = 0;
    for (int i = 0; i < kills(); ++i) {
      // A session goes on so often, and no more; then the next one.
      if (i % 200 == 0) {
        child.reset();
        start({"--recover", "10", "--warm", "1", "--warm-pause", "0"});
        child = client();
      }
      ASSERT_EQ("0", ask(child, "waits-write")) << server_->log();
      settle();
      // Not the one that is ready: the session goes on there, and may go on once.
      const auto children = server_->children();
      const auto found = std::find_if(children.begin(), children.end(),
                                      [](pid_t process) { return marks_of(process).has_value(); });
      ASSERT_NE(found, children.end()) << server_->log();
      const pid_t process = *found;
      std::thread killer([&] {
        const double after = static_cast<double>(random.below(1'500)) * 1e-6;
        static_cast<void>(eventually(after, [] { return false; }));
        if (process > 1 && stop_process(process) && !at_rest(process)) ++worked;
        if (process > 1) ::kill(process, SIGKILL);
      });
      const std::string answer = ask(child, wait);
      killer.join();
      ASSERT_EQ("0", answer) << wait << ", kill " << i << server_->log();
    }
    std::printf("%s: %d of %d had work\n", wait, worked, kills());
    EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

TEST_P(MeanwhileTest, WhoWaitsForWhatChangesNothingGoesOnAtAnyMoment) { kill_at_waits(); }

TEST_P(FencesTest, WhoWaitsForWhatChangesNothingGoesOnAtAnyMoment) { kill_at_waits(); }

INSTANTIATE_TEST_SUITE_P(Shm, MeanwhileTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Shm, FencesTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Shm, SharedMeanwhileTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, MeanwhileTest, ::testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace flyt::tests
