// Sessions whose process is killed: they go on in another one, or fail as they say.
//   FLYT_KILLS=N how often at random moments (default 40)   FLYT_KILL_SEED=S (printed on failure)
#include "tests/recovery/recovery_fixture.h"

#include <unistd.h>

#include <sstream>
#include <tuple>

#include "base/random.h"
#include "commands/memory.h"
#include "tests/recovery/answer_valve.h"
#include "tests/recovery/stopped.h"
#include "transport/transport.h"

namespace flyt::tests {
namespace {

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
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  kill_at_work();
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
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  ASSERT_EQ("0", ask(child, "paint"));
  ASSERT_EQ("0", ask(child, "add"));
  kill_at_work();
  EXPECT_EQ("0", ask(child, "release")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, AHostFunctionMayEndAfterItsProcess) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "host"));
  kill_now();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
  EXPECT_EQ("0", ask(child, "host-end")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, CodeThatIsOnItsWayIsSentAgain) {
  start();
  const auto child = client("recover=replay");
  settle();
  // It takes no more than what is between the two.
  ASSERT_TRUE(stop_process(session()));
  std::string loaded;
  std::thread loading([&] { loaded = ask(child, "long 24000000"); });
  static_cast<void>(eventually(kNoticing, [] { return false; }));
  kill_now();
  loading.join();
  EXPECT_EQ("0", loaded) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, AProgramMayDoWithout) {
  start();
  const auto child = client("recover=off");
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
}

TEST_P(RecoveryTest, WhatCannotBeMadeAgainIsALostServer) {
  for (const char* what : {"managed", "heap", "large 67108865"}) {
    start();
    const auto child = client();
    ASSERT_EQ("0", ask(child, what));
    ASSERT_EQ("0", ask(child, "sync"));
    kill_idle();
    EXPECT_EQ(kUnavailable, ask(child, "sync")) << what << server_->log();
    EXPECT_EQ(kUnavailable, ask(child, "sync"));
  }
}

#if !defined(__SANITIZE_THREAD__)  // Which has its own memory at these places.
TEST_P(RecoveryTest, AProgramThatHasMemoryEverywhereGoesOn) {
  start();
  const auto child = client("", "", "crowded");
  equip(child);
  kill_idle();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, MemoryThatHasNoPlaceCannotBeMadeAgain) {
  start();
  const auto child = client("", "", "crammed");
  ASSERT_EQ("0", ask(child, "sync"));
  const auto told = marks_of(session());
  ASSERT_TRUE(told && *told);
  EXPECT_EQ(commands::MemAlloc::kOp, (*told)->spoilt);
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
}
#endif

TEST_P(RecoveryTest, VariablesOfCodeHoldWhatTheyHeld) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  kill_idle();
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  ASSERT_EQ("ok", ask(child, "learn"));
  EXPECT_EQ("ok", ask(child, "use"));
  for (int i = 0; i < 2; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
  // What nobody has used since it was told is known as well.
  ASSERT_EQ("ok", ask(child, "learn-more"));
  kill_idle();
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(RecoveryTest, PoolsHaveWhatTheyHad) {
  start({"--recover", "10", "--memory", "1G"});
  const auto child = client();
  ASSERT_EQ("0", ask(child, "pools")) << server_->log();
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
  child->kill();
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; })) << used();
}

TEST_P(RecoveryTest, MemoryThatTheProgramMapsIsWhereItWas) {
  start({"--recover", "10", "--memory", "1G"});
  const auto child = client();
  const std::uint64_t before = used();
  ASSERT_EQ("0", ask(child, "mapped")) << server_->log();
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == before + 16 * kMiB; }))
      << used() << " " << before;
  child->kill();
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; })) << used();
}

TEST_P(RecoveryTest, LargeVariablesAreSavedUpToALimit) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "large 60000000"));
  ASSERT_EQ("ok", ask(child, "variables"));
  kill_idle();
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  ASSERT_EQ("0", ask(child, "large 60000000"));
  EXPECT_TRUE(server_->logged("more variables than are saved", kSeconds)) << server_->log();
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
}

TEST_P(RecoveryTest, CodeIsLoadedInTheSameOrder) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "library-first"));
  ASSERT_EQ("ok", ask(child, "learn"));
  ASSERT_EQ("ok", ask(child, "learn-more"));
  for (int i = 0; i < 2; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

TEST_P(RecoveryTest, AVariableThatIsElsewhereIsALostServer) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "move"));
  ASSERT_EQ("ok", ask(child, "learn"));
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
  EXPECT_TRUE(server_->logged("the variable counter has another address", kSeconds))
      << server_->log();
}

TEST_P(RecoveryTest, WhatVariablesGotFromWorkUnderWayIsAnError) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  settle();
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  kill_at_work();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  EXPECT_EQ("ok", ask(child, "reset")) << server_->log();
  EXPECT_EQ("ok", ask(child, "variables")) << server_->log();
  kill_idle();
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
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
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  ASSERT_GT(server_->pid(), 1);
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
  ASSERT_GT(server_->pid(), 1);
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  EXPECT_TRUE(eventually(kSeconds, [&] {
    return server_->log().find("the next server may take over") != std::string::npos;
  })) << server_->log();
}

// Anybody may connect and say nothing.
TEST_P(RecoveryTest, AServerThatIsToBeReplacedStaysForNobodyWhoSaysNoHello) {
  start({"--recover", "1", "--keeper", keeper_path(), "--handover-seconds", "2"});
  const auto url = transport::parse_url(server_->url());
  ASSERT_TRUE(url.ok());
  const auto silent = transport::connect(*url, system_clock().now() + std::chrono::seconds(20));
  ASSERT_TRUE(silent.ok()) << silent.error().message;
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "use"));
  ASSERT_GT(server_->pid(), 1);
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  EXPECT_TRUE(server_->logged("the next server may take over", kSeconds)) << server_->log();
}

// Whoever helps sessions and dies: the next one is there for those that begin from then on.
class HelperTest : public RecoveryTest {
 protected:
  // One that has just begun and dies is not started again.
  void kill_helper(const std::string& name) {
    const pid_t helper = server_->helper(name);
    ASSERT_GT(helper, 1);
    ASSERT_TRUE(eventually(kSeconds, [&] { return age_of(helper) > 1.2; }));
    ASSERT_EQ(0, ::kill(helper, SIGKILL));
    ASSERT_TRUE(eventually(kSeconds, [&] {
      const pid_t next = server_->helper(name);
      return next != 0 && next != helper;
    })) << server_->log();
    EXPECT_NE(server_->log().find("started_again=true"), std::string::npos) << server_->log();
  }

 private:
  static double age_of(pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    std::getline(file, line);
    std::istringstream words(line.substr(line.rfind(')') + 2));
    std::string word;
    for (int field = 3; field <= 22; ++field) words >> word;
    double up = 0;
    std::ifstream("/proc/uptime") >> up;
    return up - std::strtod(word.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
};

TEST_P(HelperTest, AnExchangeThatDiesIsStartedAgain) {
  start({"--warm", "1", "--warm-pause", "0"});
  ASSERT_EQ("0", ask(client(), "share"));
  ASSERT_NO_FATAL_FAILURE(kill_helper("flyt-exchange"));
  EXPECT_EQ("0", ask(client(), "share")) << server_->log();
}

TEST_P(HelperTest, AKeeperThatDiesIsStartedAgain) {
  const std::vector<std::string> arguments = {"--recover",          "10", "--keeper", keeper_path(),
                                              "--handover-seconds", "1",  "--warm",   "1",
                                              "--warm-pause",       "0"};
  start(arguments);
  const auto before = client();
  ASSERT_EQ("ok", ask(before, "use"));
  settle();
  ASSERT_NO_FATAL_FAILURE(kill_helper("flyt-keeper"));
  const auto after = client();
  ASSERT_EQ("ok", ask(after, "use"));
  ASSERT_EQ("ok", ask(before, "use")) << server_->log();
  settle();
  // It would take from one of them what nobody has kept.
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  ASSERT_TRUE(server_->logged("the server stays", kSeconds)) << server_->log();
  for (const pid_t process : server_->children()) ::kill(process, SIGKILL);
  EXPECT_EQ("ok", ask(after, "use")) << server_->log();
  EXPECT_EQ(kUnavailable, ask(before, "sync")) << server_->log();
  // The next server finds the new one.
  settle();
  const std::string url = server_->url();
  server_->kill();
  ServerProcess next;
  const Status started =
      next.start({.program = server_program(), .listen = url, .arguments = arguments});
  ASSERT_TRUE(started.ok()) << started.error().message;
  EXPECT_EQ("ok", ask(after, "use")) << next.log();
}

INSTANTIATE_TEST_SUITE_P(Shm, HelperTest, ::testing::Values("shm"));

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
  ASSERT_GT(process, 1);
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
    ASSERT_EQ("ok", ask(child, "variables"));
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
      ASSERT_NO_FATAL_FAILURE(start_over(child));
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

// A process that dies may have done what it was asked, and not have said so.
class AnswerTest : public RecoveryTest {
 protected:
  void start_behind_valve(std::vector<std::string> arguments = {"--recover", "10"}) {
    ASSERT_NO_FATAL_FAILURE(start(std::move(arguments)));
    const Status started = valve_.start(server_->url());
    ASSERT_TRUE(started.ok()) << started.error().message;
  }

  AnswerValve valve_;
};

TEST_P(AnswerTest, WhatWasDoneAndNotToldIsNotWrong) {
  ASSERT_NO_FATAL_FAILURE(
      start_behind_valve({"--recover", "10", "--warm", "1", "--warm-pause", "0"}));
  Random random(first_seed());
  int kept_back = 0;
  for (int i = 0; i < kills() / 2;) {
    auto child = client("lanes=0", valve_.url());
    ASSERT_NO_FATAL_FAILURE(equip(child));
    const std::uint64_t before = valve_.passed();
    ASSERT_EQ("ok", ask(child, "use"));
    const std::uint64_t answers = valve_.passed() - before;
    ASSERT_NE(0U, answers);
    for (int times = 0; times < 20 && i < kills() / 2; ++times, ++i) {
      valve_.close_after(random.below(answers));
      std::atomic<bool> answered{false};
      std::thread killer([&] {
        static_cast<void>(
            eventually(kSeconds, [&] { return valve_.dropped() || answered.load(); }));
        valve_.open();
        if (!valve_.dropped()) return;
        for (const pid_t process : server_->children()) ::kill(process, SIGKILL);
      });
      const std::string answer = ask(child, "use");
      answered.store(true);
      killer.join();
      kept_back += valve_.dropped() ? 1 : 0;
      if (answer == "ok") continue;
      ASSERT_NE(answer.find(kLaunchFailed), answer.npos) << answer << server_->log();
      ASSERT_NO_FATAL_FAILURE(start_over(child));
    }
    child->kill();
  }
  EXPECT_NE(0, kept_back);
}

// The next process says who it is, and nothing more.
TEST_P(AnswerTest, AProcessThatSaysNothingIsNotWaitedForForEver) {
  ASSERT_NO_FATAL_FAILURE(start_behind_valve());
  ::setenv("FLYT_RECOVERY_TIMEOUT_MS", "500", 1);
  const auto child = client("lanes=0", valve_.url());
  ::unsetenv("FLYT_RECOVERY_TIMEOUT_MS");
  ASSERT_NO_FATAL_FAILURE(equip(child));
  settle();
  valve_.close_after(1);
  kill_now();
  EXPECT_EQ(kUnavailable, ask(child, "sync"));
  EXPECT_TRUE(valve_.dropped());
}

// What a process is not told before it dies is sent again, or made again; work is missed if
// something was ended behind it.
TEST_P(AnswerTest, WhatDoesNotArriveIsNotMissed) {
  ASSERT_NO_FATAL_FAILURE(start_behind_valve());
  const auto child = client("lanes=0", valve_.url());
  const auto drop = [&](const std::vector<std::string>& requests) {
    settle();
    const std::uint64_t before = valve_.dropped_commands();
    valve_.drop_commands(true);
    for (const std::string& request : requests) ASSERT_EQ("0", ask(child, request));
    // Nobody waits for them: they may still be on their way.
    ASSERT_TRUE(eventually(kSeconds, [&] { return valve_.dropped_commands() != before; }));
    valve_.drop_commands(false);
    kill_now();
  };
  ASSERT_EQ("ok", ask(child, "use"));
  drop({"tidy"});
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  drop({"tidy", "touch"});
  ASSERT_EQ("0", ask(child, "sync")) << server_->log();
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  drop({"touch", "tidy"});
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
}

// The program waits for the verdict on a first launch, but must not be asked for it again.
TEST_P(AnswerTest, ALaunchThatWasDoneAndNotToldIsNotDoneAgain) {
  ASSERT_NO_FATAL_FAILURE(start_behind_valve());
  const auto child = client("lanes=0", valve_.url());
  ASSERT_EQ("0", ask(child, "fresh"));
  settle();
  const pid_t process = session();
  const std::uint64_t before = work_of(process);
  valve_.close_after(0);
  std::string launched;
  std::thread launching([&] { launched = ask(child, "first"); });
  EXPECT_TRUE(eventually(kSeconds, [&] { return work_of(process) != before; }));
  EXPECT_TRUE(eventually(kSeconds, [&] { return valve_.dropped(); }));
  settle();
  valve_.open();
  kill_now();
  launching.join();
  EXPECT_EQ(kLaunchFailed, launched) << server_->log();
  ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

// A process with which a session goes on may end before the client knows that it does, at any
// moment; what became of the work of the process before is not forgotten over that.
TEST_P(AnswerTest, WhoeverGoesOnMayEndUnheard) {
  ASSERT_NO_FATAL_FAILURE(start_behind_valve());
  const auto child = client("lanes=0", valve_.url());
  const auto kill_twice = [&](const std::string& request, std::uint64_t answers) {
    const std::uint64_t before = valve_.passed();
    valve_.close_after(answers);
    kill_now();
    std::string answer;
    std::atomic<bool> answered{false};
    std::thread asking([&] {
      answer = ask(child, request);
      answered.store(true);
    });
    EXPECT_TRUE(eventually(kSeconds, [&] { return valve_.dropped() || answered.load(); }));
    if (valve_.dropped()) {
      // It does what it was asked to.
      static_cast<void>(eventually(kNoticing, [] { return false; }));
      valve_.open();
      kill_now();
    }
    asking.join();
    valve_.open();
    return std::pair(answer, valve_.passed() - before);
  };
  ASSERT_NO_FATAL_FAILURE(equip(child));
  std::uint64_t usual = 0;
  std::uint64_t all = 0;
  // Pieces are what one read brings: on a busy machine that may be several answers, so that they
  // are fewer.
  for (int i = 0; i < 5 && all <= usual + 8; ++i) {
    settle();
    const std::uint64_t before = valve_.passed();
    ASSERT_EQ("ok", ask(child, "verify"));
    usual = valve_.passed() - before;
    settle();
    std::string verified;
    std::tie(verified, all) = kill_twice("verify", 1'000'000);
    ASSERT_EQ("ok", verified) << server_->log();
  }
  ASSERT_GT(all, usual);
  // Pieces that going on takes, more or less.
  const std::uint64_t answers = all - usual;
  for (const std::uint64_t left : {0, 1, 2, 3, 4, 8}) {
    ASSERT_EQ("ok", ask(child, "use"));
    settle();
    const std::uint64_t some = answers - std::min(answers, left);
    ASSERT_EQ("ok", kill_twice("verify", some).first) << left << server_->log();
    ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
    ASSERT_EQ(kLaunchFailed, kill_twice("sync", some).first) << left << server_->log();
    ASSERT_NO_FATAL_FAILURE(start_over(child));
  }
}

// One that is handed to a process in the moment in which it ends.
TEST_P(AnswerTest, ASessionBeginsThoughWhoeverWasToGreetHasEnded) {
  ASSERT_NO_FATAL_FAILURE(start_behind_valve());
  valve_.refuse(3);
  const auto child = client("lanes=0", valve_.url());
  EXPECT_EQ("ok", ask(child, "use"));
}

INSTANTIATE_TEST_SUITE_P(Tcp, AnswerTest, ::testing::Values("tcp://127.0.0.1:0"));

INSTANTIATE_TEST_SUITE_P(Shm, RecoveryTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Unix, RecoveryTest, ::testing::Values("unix"));
INSTANTIATE_TEST_SUITE_P(Tcp, RecoveryTest, ::testing::Values("tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(Lanes, RecoveryTest, ::testing::Values("tcp://127.0.0.1:0?lanes=2"));

}  // namespace
}  // namespace flyt::tests
