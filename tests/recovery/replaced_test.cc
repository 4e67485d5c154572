// A server that is replaced while programs come and go.
#include <atomic>

#include "commands/ops.h"
#include "rpc/channel.h"
#include "rpc/no_pushes.h"
#include "tests/recovery/recovery_fixture.h"
#include "transport/transport.h"

namespace flyt::tests {
namespace {

constexpr int kComers = 16;

class ReplacedTest : public RecoveryTest {
 protected:
  void replace() const {
    ASSERT_GT(server_->pid(), 1);
    ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  }
  // How many have waited for that.
  std::size_t waiting() const {
    const std::string log = server_->log();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = log.find("client waits while", at)) != log.npos; ++at) ++count;
    return count;
  }
  // Begins sessions that could go on, and ends each at once.
  static void come_and_go(const std::string& url, const std::atomic<bool>& over) {
    const auto parsed = transport::parse_url(url);
    wire::ClientHello hello;
    hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
    hello.recoverable = true;
    rpc::NoPushes pushes;
    while (!over.load()) {
      const Instant deadline = system_clock().now() + std::chrono::seconds(30);
      auto connection = transport::connect(*parsed, deadline);
      if (!connection) return;
      static_cast<void>(rpc::Channel::open(std::move(*connection), hello, deadline, pushes).ok());
    }
  }
};

TEST_P(ReplacedTest, DoesNotStayForThoseWhoBegin) {
  start({"--recover", "1", "--keeper", keeper_path(), "--handover-seconds", "4"});
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "use"));
  std::atomic<bool> over{false};
  std::vector<std::thread> all;
  for (int i = 0; i < kComers; ++i) {
    all.emplace_back([&] { come_and_go(server_->url(), over); });
  }
  ASSERT_NO_FATAL_FAILURE(replace());
  EXPECT_TRUE(eventually(kSeconds, [&] {
    return server_->log().find("the next server may take over") != std::string::npos ||
           server_->log().find("the server stays") != std::string::npos;
  }));
  EXPECT_EQ(server_->log().find("the server stays"), std::string::npos);
  over.store(true);
  server_->kill();
  for (std::thread& one : all) one.join();
}

TEST_P(ReplacedTest, LeavesWhoBeginsToTheNext) {
  const std::vector<std::string> arguments = {"--recover",          "10", "--keeper", keeper_path(),
                                              "--handover-seconds", "6"};
  start(arguments);
  const std::string url = server_->url();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  ASSERT_NO_FATAL_FAILURE(replace());
  std::atomic<bool> over{false};
  std::thread comer([&] { come_and_go(url, over); });
  ASSERT_TRUE(eventually(kSeconds, [&] { return waiting() == 1; })) << server_->log();
  over.store(true);
  // Not until there is an answer, which is the next server's.
  const auto newcomer = std::make_unique<kill::Child>("survivor", ++seed_, url);
  EXPECT_TRUE(eventually(kSeconds, [&] { return waiting() == 2; })) << server_->log();
  std::string released;
  std::thread releases([&] { released = ask(child, "release"); });
  EXPECT_TRUE(server_->logged("the next server may take over", kSeconds)) << server_->log();
  EXPECT_TRUE(eventually(kSeconds, [&] { return !server_->running(); }));
  ServerProcess next;
  const Status started =
      next.start({.program = server_program(), .listen = url, .arguments = arguments});
  EXPECT_TRUE(started.ok()) << started.error().message;
  releases.join();
  comer.join();
  EXPECT_EQ("0", released) << next.log();
  ASSERT_TRUE(newcomer->wrote("ready\n", kSeconds)) << newcomer->output() << next.log();
  EXPECT_EQ("ok", ask(newcomer, "use")) << next.log();
  EXPECT_EQ("ok", ask(child, "use")) << next.log();
  // Its keeper with it.
  EXPECT_EQ(0, next.stop(SIGINT, kSeconds)) << next.log();
}

INSTANTIATE_TEST_SUITE_P(Unix, ReplacedTest, ::testing::Values("unix"));

}  // namespace
}  // namespace flyt::tests
