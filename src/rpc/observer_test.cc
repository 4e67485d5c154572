#include "rpc/observer.h"

#include <gtest/gtest.h>

#include <map>

#include "base/testing/hand_clock.h"
#include "rpc/testing/forwarding_connection.h"
#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using namespace testing;

class Counter final : public CommandObserver {
 public:
  void on_command(std::uint16_t op, std::uint64_t sequence, std::size_t bytes,
                  Duration held) override {
    commands[op] += bytes;
    last_sequence = sequence;
    EXPECT_GE(held.count(), 0);
  }
  void on_answer(std::uint16_t op, std::size_t bytes, Duration waited) override {
    answers[op] += bytes;
    EXPECT_GE(waited.count(), 0);
    last_wait = waited;
  }
  void on_expected(std::uint64_t bytes) override { expected += bytes; }

  std::map<std::uint16_t, std::size_t> commands;
  std::map<std::uint16_t, std::size_t> answers;
  std::uint64_t expected = 0;
  std::uint64_t last_sequence = 0;
  Duration last_wait{};
};

// Sending is all that takes time.
class SlowSender final : public ForwardingConnection {
 public:
  SlowSender(std::unique_ptr<transport::Connection> inner, HandClock& clock, Duration takes)
      : ForwardingConnection(std::move(inner)), clock_(clock), takes_(takes) {}
  Result<std::size_t> write(std::span<const Bytes> from, transport::Patience patience) override {
    clock_.pass(takes_);
    return ForwardingConnection::write(from, patience);
  }

 private:
  HandClock& clock_;
  const Duration takes_;
};

TEST(CommandObserver, SeesWhatIsSentAndWaitedForInFull) {
  Counter counter;
  Session session(make_pair(PairKind::kUnix), {.observer = &counter});
  ASSERT_NE(session.channel, nullptr) << session.open_error;
  Channel& channel = *session.channel;
  ASSERT_TRUE(post_note(channel, "four"));
  ASSERT_TRUE(echo(channel, "twelve bytes").ok());
  const std::array<std::byte, 8> offset{};
  const std::vector<std::byte> data(1000);
  ASSERT_TRUE(channel.post_bulk(kOpBulk, 0, offset, Bytes(data)).ok());
  EXPECT_EQ(counter.last_sequence, 3U);
  { const Delivery delivery = channel.expect(Destination::flat(nullptr, 77)); }
  EXPECT_EQ(counter.commands[kOpNote], wire::kHeaderBytes + 4);
  EXPECT_EQ(counter.commands[kOpBulk], wire::kHeaderBytes + 1008);
  EXPECT_EQ(counter.answers.size(), 1U);
  EXPECT_EQ(counter.answers[kOpEcho], wire::kHeaderBytes + sizeof(wire::ReplyPrefix) + 12);
  EXPECT_EQ(counter.expected, 77U);
  channel.shut_down("lost");
  EXPECT_FALSE(post_note(channel, "lost"));
  EXPECT_EQ(counter.commands[kOpNote], wire::kHeaderBytes + 4);
}

TEST(CommandObserver, CountsAsWaitingWhatSendingTook) {
  constexpr Duration kSending = std::chrono::milliseconds(3);
  Counter counter;
  HandClock clock;
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  pair.first = std::make_unique<SlowSender>(std::move(pair.first), clock, kSending);
  Session session(std::move(pair), {.clock = &clock, .observer = &counter});
  ASSERT_NE(session.channel, nullptr) << session.open_error;
  ASSERT_TRUE(echo(*session.channel, "twelve bytes").ok());
  EXPECT_GE(counter.last_wait, kSending);
}

}  // namespace
}  // namespace flyt::rpc
