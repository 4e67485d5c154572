// Clients that say they go on with a session: true ones, and those that say so as often as they
// like of a session that is served, which costs no process and nobody's place.
#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "tests/hostile/peer.h"
#include "tests/support/server_process.h"

namespace flyt::sim {
namespace {

class HostileReturns : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto started = server_.start({.program = tests::server_program(),
                                        .arguments = {"--recover", "30", "--max-sessions", "2"}});
    ASSERT_TRUE(started.ok()) << started.error().message;
  }

  // What has said hello; `recovers`: of one that goes on.
  Peer say(const wire::SessionToken& recovers = {}) {
    auto peer = Peer::connect(server_.url());
    EXPECT_TRUE(peer.ok()) << peer.error().message;
    wire::ClientHello hello;
    hello.recoverable = true;
    hello.recovers = recovers;
    EXPECT_TRUE(peer->send(wire::encode(hello)).ok());
    return std::move(*peer);
  }
  wire::Welcome welcome(Peer& peer) {
    const auto answer = peer.read_answer();
    EXPECT_TRUE(answer.ok()) << answer.error().message << "\n" << server_.log();
    return answer ? *answer : wire::Welcome{};
  }
  void kill(const wire::Welcome& session) {
    ASSERT_GT(session.process_id, 1U);
    ASSERT_EQ(::kill(static_cast<pid_t>(session.process_id), SIGKILL), 0);
  }

  tests::ServerProcess server_;
};

TEST_F(HostileReturns, ToASessionThatIsServedTakeNobodysPlace) {
  Peer first = say();
  const wire::Welcome session = welcome(first);
  Peer waits = say(session.recovery);
  ASSERT_TRUE(server_.logged("client waits for the process", 60)) << server_.log();
  for (int i = 0; i < 8; ++i) {
    const auto answer = say(session.recovery).read_answer();
    ASSERT_FALSE(answer.ok());
    EXPECT_NE(answer.error().message.find("another connection"), std::string::npos)
        << answer.error().message;
  }
  EXPECT_EQ(server_.children().size(), 1U);
  Peer newcomer = say();
  EXPECT_NE(welcome(newcomer).process_id, 0U);
  // It may have been true.
  kill(session);
  EXPECT_EQ(welcome(waits).recovery, session.recovery);
}

TEST_F(HostileReturns, ToASessionThatIsLeftHaveOneProcess) {
  Peer first = say();
  const wire::Welcome session = welcome(first);
  ASSERT_NO_FATAL_FAILURE(kill(session));
  EXPECT_EQ(first.read_frame().what, Heard::What::kClosed);
  // All that comes meanwhile is judged in one moment.
  ASSERT_EQ(::kill(server_.pid(), SIGSTOP), 0);
  std::vector<Peer> all;
  for (int i = 0; i < 4; ++i) all.push_back(say(session.recovery));
  ASSERT_EQ(::kill(server_.pid(), SIGCONT), 0);
  EXPECT_EQ(welcome(all.front()).recovery, session.recovery);
  EXPECT_EQ(server_.children().size(), 1U);
}

TEST_F(HostileReturns, ToASessionThatIsServedWaitForSoLongOnly) {
  Peer first = say();
  const wire::Welcome session = welcome(first);
  Peer waits = say(session.recovery);
  const auto answer = waits.read_answer();
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("still there"), std::string::npos)
      << answer.error().message;
  EXPECT_TRUE(first.alive());
}

}  // namespace
}  // namespace flyt::sim
