// What a server's log has of sessions that come and go.
#include <signal.h>

#include <regex>

#include "base/log_limit.h"
#include "commands/ops.h"
#include "rpc/channel.h"
#include "rpc/no_pushes.h"
#include "tests/lease/tenant.h"
#include "transport/transport.h"

namespace flyt::tests {
namespace {

class LogOfSessions : public LeaseTest {
 protected:
  // Begins a session and ends it at once.
  void come_and_go() {
    const Instant deadline = system_clock().now() + std::chrono::seconds(60);
    wire::ClientHello hello;
    hello.name = "comer";
    hello.highest_op = static_cast<std::uint16_t>(commands::kOpMax);
    rpc::NoPushes pushes;
    auto connection = transport::connect(*transport::parse_url(server_.url()), deadline);
    ASSERT_TRUE(connection.ok()) << connection.error().message;
    const auto channel = rpc::Channel::open(std::move(*connection), hello, deadline, pushes);
    ASSERT_TRUE(channel.ok()) << channel.error().message;
  }
  static std::size_t count(const std::string& text, const std::string& what) {
    const std::regex wanted(what);
    return static_cast<std::size_t>(std::distance(
        std::sregex_iterator(text.begin(), text.end(), wanted), std::sregex_iterator()));
  }
  static std::int64_t period() {
    return system_clock().now().ns / LogLimits::kSessionPeriod.count();
  }
};

TEST_F(LogOfSessions, IsNotFilledByThem) {
  constexpr std::size_t kSessions = LogLimits::kSessionLinesMax * 2 / 3;
  start({});
  const std::int64_t begun = period();
  for (std::size_t i = 0; i < kSessions; ++i) ASSERT_NO_FATAL_FAILURE(come_and_go());
  ASSERT_TRUE(eventually(kSeconds, [&] { return server_.children().empty(); }));
  const auto periods = static_cast<std::size_t>(period() - begun + 1);
  EXPECT_EQ(0, server_.stop(SIGTERM, kSeconds));
  ASSERT_TRUE(server_.logged(" stopped", kSeconds));
  const std::string log = server_.log();
  const std::size_t told = count(log, "session started") + count(log, "session ended");
  EXPECT_LE(told, periods * LogLimits::kSessionLinesMax);
  EXPECT_GE(told, LogLimits::kSessionLinesMax);
  std::size_t left_out = 0;
  const std::regex lines("too many lines=([0-9]+) of=sessions");
  for (auto at = std::sregex_iterator(log.begin(), log.end(), lines); at != std::sregex_iterator();
       ++at) {
    left_out += std::stoull((*at)[1]);
  }
  EXPECT_EQ(told + left_out, 2 * kSessions);
}

// A job of many processes is told whole, though each has two lines.
TEST_F(LogOfSessions, HasAllOfAnOrdinaryMachine) {
  constexpr std::size_t kSessions = 64;
  start({"--max-sessions", std::to_string(kSessions)});
  for (std::size_t i = 0; i < kSessions; ++i) ASSERT_NO_FATAL_FAILURE(come_and_go());
  ASSERT_TRUE(eventually(kSeconds, [&] { return server_.children().empty(); }));
  EXPECT_EQ(0, server_.stop(SIGTERM, kSeconds));
  ASSERT_TRUE(server_.logged(" stopped", kSeconds));
  EXPECT_EQ(count(server_.log(), "session started"), kSessions);
  EXPECT_EQ(count(server_.log(), "session ended"), kSessions);
}

}  // namespace
}  // namespace flyt::tests
