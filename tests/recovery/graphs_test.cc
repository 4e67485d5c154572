// Sessions with graphs whose process is killed.
#include "tests/recovery/recovery_fixture.h"

#include "base/random.h"
#include "commands/ops.h"
#include "tests/recovery/stopped.h"

namespace flyt::tests {
namespace {

class GraphsTest : public RecoveryTest {
 protected:
  static std::unique_ptr<kill::Child> with_graphs(std::unique_ptr<kill::Child> child) {
    EXPECT_EQ("ok", ask(child, "graphs-make")) << child->output();
    return child;
  }
  void expect_lost_for(const std::unique_ptr<kill::Child>& child, const std::string& command) {
    settle();
    const auto told = marks_of(session());
    ASSERT_TRUE(told && *told);
    EXPECT_EQ(command, commands::command_name((*told)->spoilt));
    kill_now();
    EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
  }
};

TEST_P(GraphsTest, DoTheSameInAnotherProcess) {
  start();
  const auto child = with_graphs(client());
  ASSERT_EQ("ok", ask(child, "use"));
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "graphs-use")) << server_->log();
    ASSERT_EQ("ok", ask(child, "graphs-compare")) << server_->log();
  }
  ASSERT_EQ("ok", ask(child, "use"));
}

TEST_P(GraphsTest, CanBeChangedByTheHandlesThatTheyHad) {
  start();
  const auto child = with_graphs(client());
  kill_idle();
  ASSERT_EQ("ok", ask(child, "graphs-change")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-use")) << server_->log();
  for (int i = 0; i < 2; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "graphs-use")) << server_->log();
    ASSERT_EQ("ok", ask(child, "graphs-compare")) << server_->log();
    ASSERT_EQ("ok", ask(child, "graphs-change")) << server_->log();
  }
  kill_idle();
  ASSERT_EQ("ok", ask(child, "graphs-end-exec")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-use")) << server_->log();
}

TEST_P(GraphsTest, GoOnInTheNextServer) {
  // The log of the first one ends with the keeper, which ends some time after the second one.
  std::unique_ptr<ServerProcess> before;
  const std::shared_ptr<void> last(nullptr, [this](void*) { server_.reset(); });
  ServerOptions options;
  options.arguments = {"--recover", "5", "--keeper", keeper_path()};
  options.program = server_program();
  options.listen = std::string(GetParam()) == "shm" ? "shm://" + folder_ + "/server" : GetParam();
  server_ = std::make_unique<ServerProcess>();
  ASSERT_TRUE(server_->start(options).ok());
  options.listen = server_->url();
  const auto child = with_graphs(client());
  settle();
  server_->kill();
  before = std::move(server_);
  server_ = std::make_unique<ServerProcess>();
  const Status started = server_->start(options);
  ASSERT_TRUE(started.ok()) << started.error().message;
  ASSERT_EQ("ok", ask(child, "graphs-use")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-compare")) << server_->log();
}

TEST_P(GraphsTest, StayOnTheMultiprocessorsOfTheirLease) {
  start({"--recover", "10", "--memory", "1G", "--sms", "8"});
  const auto child = with_graphs(client());
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ("ok", ask(child, "graphs-change")) << server_->log();
    kill_idle();
    ASSERT_EQ("ok", ask(child, "graphs-use")) << server_->log();
  }
}

TEST_P(GraphsTest, WorkOfTheirsUnderWayIsAnError) {
  start();
  const auto child = with_graphs(client());
  ASSERT_EQ("0", ask(child, "sync"));
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  ASSERT_EQ("ok", ask(child, "graphs-now"));
  kill_at_work();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-make")) << server_->log();
  kill_idle();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
}

TEST_P(GraphsTest, AreLaunchedAgainWhereThatIsWished) {
  start();
  const auto child = client("recover=replay");
  ASSERT_EQ("ok", ask(child, "graphs-make-quiet"));
  ASSERT_EQ("ok", ask(child, "graphs-use"));
  settle();
  ASSERT_EQ("ok", ask(child, "graphs-launch"));
  kill_at_work();
  EXPECT_EQ("ok", ask(child, "graphs-launched")) << server_->log();
}

TEST_P(GraphsTest, ACaptureHoldsTheSessionBackUntilItEnds) {
  start();
  const auto child = with_graphs(client());
  ASSERT_EQ("ok", ask(child, "graphs-capture"));
  // Long enough for the server to have looked whether all is done, which would end it.
  static_cast<void>(eventually(kNoticing, [] { return false; }));
  ASSERT_EQ("ok", ask(child, "graphs-capture-end")) << server_->log();
  kill_idle();
  EXPECT_EQ("ok", ask(child, "graphs-use")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-capture"));
  expect_lost_for(child, "begin_capture");
}

TEST_P(GraphsTest, WhatOnlyADriverCanMakeHoldsTheSessionBackAsLongAsItIsThere) {
  for (const auto& [what, command] :
       {std::pair("allocate", "capture_allocation"), std::pair("conditional", "create_conditional"),
        std::pair("many", "create_graph")}) {
    start();
    const std::string graphs = "graphs-";
    const auto child = with_graphs(client());
    ASSERT_EQ("ok", ask(child, graphs + what));
    ASSERT_EQ("ok", ask(child, graphs + what + "-end"));
    // What the last save found holds it back until the next one.
    EXPECT_TRUE(eventually(kSeconds, [&] {
      const auto told = marks_of(session());
      return told && *told && (*told)->spoilt == 0;
    }));
    kill_idle();
    EXPECT_EQ("ok", ask(child, "graphs-use")) << what << server_->log();
    ASSERT_EQ("ok", ask(child, graphs + what));
    expect_lost_for(child, command);
  }
}

TEST_P(GraphsTest, AnObjectOfTheProgramsSpoilsTheSession) {
  start();
  const auto child = with_graphs(client());
  ASSERT_EQ("ok", ask(child, "graphs-object"));
  expect_lost_for(child, "create_user_object");
}

TEST_P(GraphsTest, OnesThatEndUnheardAreGone) {
  start();
  const auto child = with_graphs(client());
  ASSERT_EQ("ok", ask(child, "graphs-change"));
  settle();
  ASSERT_TRUE(stop_process(session()));
  ASSERT_EQ("ok", ask(child, "graphs-end-exec"));
  kill_now();
  EXPECT_EQ("ok", ask(child, "graphs-use")) << server_->log();
  kill_idle();
  EXPECT_EQ("ok", ask(child, "graphs-use")) << server_->log();
}

// NVIDIA's driver must not be asked about them.
TEST_P(GraphsTest, WhatAContextLeavesGoesWithIt) {
  start();
  const auto child = with_graphs(client());
  ASSERT_EQ("ok", ask(child, "graphs-leave")) << server_->log();
  settle();
  ASSERT_EQ("ok", ask(child, "graphs-leave-end")) << server_->log();
  ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-make")) << server_->log();
  kill_idle();
  EXPECT_EQ("ok", ask(child, "graphs-use")) << server_->log();
}

TEST_P(GraphsTest, AServerThatIsToBeReplacedEndsThoughThereAreGraphs) {
  start({"--recover", "1", "--keeper", keeper_path()});
  const auto child = with_graphs(client());
  ASSERT_GT(server_->pid(), 1);
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  EXPECT_TRUE(server_->logged("the next server may take over", kSeconds)) << server_->log();
}

TEST_P(GraphsTest, AnAddressThatOneHoldsIsALostServer) {
  if (!over_soft_gpu()) GTEST_SKIP() << "variables of other GPUs do not move when told to";
  ::setenv("FLYT_SOFTGPU_VARIABLES_MOVE", "1", 1);
  start();
  ::unsetenv("FLYT_SOFTGPU_VARIABLES_MOVE");
  const auto child = with_graphs(client());
  ASSERT_EQ("ok", ask(child, "pointers"));
  kill_idle();
  ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  ASSERT_EQ("ok", ask(child, "graphs-point"));
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
  EXPECT_TRUE(server_->logged("a graph holds the old one", kSeconds)) << server_->log();
}

TEST_P(GraphsTest, KillsAtRandomMomentsAreNeverWrong) {
  start({"--recover", "10", "--warm", "1", "--warm-pause", "0"});
  Random random(first_seed());
  auto child = with_graphs(client());
  int went_on = 0;
  int failed = 0;
  for (int i = 0; i < 30; ++i) {
    if (i % 2 == 0) settle();
    std::thread killer([&] {
      const double after = static_cast<double>(random.below(8'000)) * 1e-6;
      static_cast<void>(eventually(after, [] { return false; }));
      for (const pid_t process : server_->children()) ::kill(process, SIGKILL);
    });
    std::string answer = ask(child, "graphs-use");
    if (answer == "ok") answer = ask(child, "graphs-change");
    if (answer == "ok") answer = ask(child, "graphs-use");
    killer.join();
    if (answer == "ok") {
      ++went_on;
      continue;
    }
    ++failed;
    if (answer.find(kUnavailable) != answer.npos) {
      // It came to a capture, which nobody makes again: that ends the session, and no other.
      child = with_graphs(client());
      continue;
    }
    ASSERT_NE(answer.find(kLaunchFailed), answer.npos) << answer << server_->log();
    std::string again = ask(child, "reset");
    if (again.find(kLaunchFailed) != again.npos) again = ask(child, "reset");
    ASSERT_EQ("ok", again) << server_->log();
    again = ask(child, "graphs-make");
    // The kill may have come to that of the moment before.
    if (again != "ok") {
      ASSERT_NE(again.find(kLaunchFailed), again.npos) << again << server_->log();
      ASSERT_EQ("ok", ask(child, "reset")) << server_->log();
      ASSERT_EQ("ok", ask(child, "graphs-make")) << server_->log();
    }
  }
  std::printf("%d went on, %d failed as they should\n", went_on, failed);
}

INSTANTIATE_TEST_SUITE_P(Shm, GraphsTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, GraphsTest, ::testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace flyt::tests
