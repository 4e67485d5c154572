// How long an Endpoint looks for commands before it sleeps.
#include <gtest/gtest.h>

#include <optional>

#include "base/testing/hand_clock.h"
#include "rpc/endpoint.h"
#include "rpc/testing/forwarding_connection.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using namespace testing;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kAfterCommands = microseconds(100);
constexpr Duration kRead = microseconds(1);

// Time passes with reading. Until `client_waits_until` the client shows each 25 us that it waits.
class TimedConnection final : public ForwardingConnection {
 public:
  TimedConnection(transport::ConnectionPair pair, HandClock& clock)
      : ForwardingConnection(std::move(pair.second)),
        client(std::move(pair.first)),
        clock_(clock) {}

  Result<std::size_t> read(std::span<const MutableBytes> into,
                           transport::Patience patience) override {
    clock_.pass(kRead);
    if (clock_.now() < client_waits_until && clock_.now() - shown_ >= microseconds(25)) {
      shown_ = clock_.now();
      client.connection().show_waiting();
    }
    return ForwardingConnection::read(into, patience);
  }
  transport::ReadySet wait(transport::ReadySet, Instant deadline,
                           const transport::Wakeup*) override {
    if (!slept_at) slept_at = clock_.now();
    clock_.pass(deadline - clock_.now());
    return transport::kNothing;
  }

  RawPeer client;
  Instant client_waits_until{};
  std::optional<Instant> slept_at;

 private:
  HandClock& clock_;
  Instant shown_{};
};

class IdleHandler final : public CommandHandler {
 public:
  Status on_command(const Command&) override { return {}; }
};

class LookingTest : public ::testing::Test {
 protected:
  // After one command, of a client that waits for the GPU for so long: when the server sleeps.
  Duration looked_for(PairKind kind, Duration client_waits, bool cores_to_spare) {
    HandClock clock;
    auto connection = std::make_unique<TimedConnection>(make_pair(kind), clock);
    TimedConnection& seen = *connection;
    HeapBufferPool pool;
    Endpoint endpoint(std::move(connection), wire::Limits{}, pool, clock,
                      {.after_commands = kAfterCommands,
                       .cores_to_spare = [=](Instant) { return cores_to_spare; }});
    EXPECT_TRUE(seen.client.send(wire::CommandHeader{.op = kOpNote, .sequence = 1}));
    IdleHandler handler;
    EXPECT_EQ(endpoint.receive(handler, clock.now() + std::chrono::seconds(1)),
              Received::kCommands);
    const Instant start = clock.now();
    seen.client_waits_until = start + client_waits;
    EXPECT_EQ(endpoint.receive(handler, start + std::chrono::seconds(1)), Received::kNothing);
    return seen.slept_at ? *seen.slept_at - start : Duration(-1);
  }
};

// The clock is read once in 16 looks.
constexpr Duration kGrain = 32 * kRead;

TEST_F(LookingTest, EndsSoonAfterTheLastCommand) {
  const Duration looked = looked_for(PairKind::kShm, Duration(0), true);
  EXPECT_GE(looked, kAfterCommands);
  EXPECT_LE(looked, kAfterCommands + kGrain);
}

TEST_F(LookingTest, GoesOnWhileTheClientShowsThatItWaits) {
  const Duration looked = looked_for(PairKind::kShm, milliseconds(5), true);
  EXPECT_GE(looked, milliseconds(5));
  EXPECT_LE(looked, milliseconds(5) + 2 * (kAfterCommands + kGrain));
}

TEST_F(LookingTest, EndsHoweverLongTheClientSaysThatItWaits) {
  const Duration looked = looked_for(PairKind::kShm, milliseconds(500), true);
  EXPECT_GE(looked, Looking::kWithClientMax);
  EXPECT_LE(looked, Looking::kWithClientMax + 2 * (kAfterCommands + kGrain));
}

TEST_F(LookingTest, TakesNoCoreThatOthersNeed) {
  EXPECT_LE(looked_for(PairKind::kShm, milliseconds(5), false), kAfterCommands + kGrain);
}

TEST_F(LookingTest, IsShortWithoutSharedMemory) {
  EXPECT_LE(looked_for(PairKind::kUnix, milliseconds(5), true), kAfterCommands + kGrain);
}

}  // namespace
}  // namespace flyt::rpc
