// Signals that come to every process of a server at once, as from systemd, a terminal or an init
// of a container: what they mean the parent decides.
#include <signal.h>

#include "driver/table.h"
#include "tests/lease/tenant.h"

namespace flyt::tests {
namespace {

class SignalsToAll : public LeaseTest {
 protected:
  std::string keeper_path() { return folder() + "/keeper"; }
  // Helpers, sessions and who controls first: before the parent can have done anything.
  void to_all(int signal) const {
    std::vector<pid_t> all = server_.children();
    all.insert(all.end(), {server_.helper("flyt-exchange"), server_.helper("flyt-keeper")});
    all.push_back(server_.pid());
    for (const pid_t process : all) {
      ASSERT_GT(process, 1);
      ASSERT_EQ(::kill(process, signal), 0);
    }
  }
  bool children_are(std::size_t count) const {
    return eventually(kSeconds, [&] { return server_.children().size() == count; });
  }
  bool ends() const {
    return eventually(kSeconds, [&] { return !server_.running(); });
  }
};

TEST_F(SignalsToAll, ToTerminateAreADrain) {
  start({"--drain-seconds", "600", "--recover", "30", "--keeper", keeper_path(), "--warm", "1",
         "--warm-pause", "0"});
  const auto client = control();
  const auto a = tenant();
  // The session, who controls, and one that is ready.
  ASSERT_TRUE(children_are(3)) << server_.log();
  ASSERT_NO_FATAL_FAILURE(to_all(SIGTERM));
  ASSERT_TRUE(server_.logged("stopping", kSeconds)) << server_.log();
  EXPECT_EQ(ask(a, "alloc", 50), "0") << server_.log();
  const auto sessions = client->sessions();
  EXPECT_TRUE(sessions.ok() && sessions->size() == 1);
  EXPECT_NE(server_.helper("flyt-exchange"), 0);
  EXPECT_NE(server_.helper("flyt-keeper"), 0);
  EXPECT_TRUE(children_are(2)) << "one that is ready for nobody does not end";
  a->close_stdin();
  EXPECT_TRUE(ends()) << server_.log();
  EXPECT_EQ(server_.log().find(" warn "), std::string::npos) << server_.log();
}

TEST_F(SignalsToAll, ToTerminateCountOnceIfTheyComeTwiceAtOnce) {
  start({"--drain-seconds", "600", "--recover", "30"});
  const auto a = tenant();
  ASSERT_NO_FATAL_FAILURE(to_all(SIGTERM));
  ASSERT_TRUE(server_.logged("stopping", kSeconds)) << server_.log();
  ASSERT_NO_FATAL_FAILURE(to_all(SIGTERM));
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_.rests() || !server_.running(); }));
  EXPECT_EQ(ask(a, "alloc", 50), "0") << server_.log();
  // Later ones end it at once.
  EXPECT_TRUE(eventually(kSeconds, [&] {
    ::kill(server_.pid(), SIGTERM);
    return !server_.running();
  })) << server_.log();
}

TEST_F(SignalsToAll, OfATerminalEndItAtOnceAndInOrder) {
  start({"--drain-seconds", "600", "--recover", "600", "--keeper", keeper_path()});
  const auto a = tenant();
  ASSERT_EQ(ask(a, "alloc", 50), "0");
  ASSERT_NO_FATAL_FAILURE(to_all(SIGINT));
  EXPECT_TRUE(ends()) << server_.log();
  // Nobody else can have ended the session.
  EXPECT_TRUE(server_.logged("stopping sessions=1", kSeconds)) << server_.log();
  EXPECT_EQ(server_.log().find(" warn "), std::string::npos) << server_.log();
  // The program was told, and looks for no other server.
  EXPECT_EQ(ask(a, "alloc", 1), std::to_string(CUDA_ERROR_DEVICE_UNAVAILABLE));
}

TEST_F(SignalsToAll, ToReplaceItAreNobodysEnd) {
  const std::vector<std::string> arguments = {"--recover", "30", "--keeper", keeper_path()};
  start(arguments);
  const auto a = tenant();
  ASSERT_EQ(ask(a, "alloc", 50), "0");
  ASSERT_NO_FATAL_FAILURE(to_all(SIGUSR1));
  EXPECT_TRUE(server_.logged("the next server may take over", kSeconds)) << server_.log();
  EXPECT_TRUE(ends()) << server_.log();
  ServerProcess next;
  const Status started =
      next.start({.program = server_program(), .listen = server_.url(), .arguments = arguments});
  ASSERT_TRUE(started.ok()) << started.error().message;
  EXPECT_EQ(ask(a, "alloc", 1), "0") << next.log();
  EXPECT_EQ(0, next.stop(SIGINT, kSeconds)) << next.log();
}

}  // namespace
}  // namespace flyt::tests
