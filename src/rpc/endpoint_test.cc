// An Endpoint against a client that says what it should not, byte by byte.
#include "rpc/endpoint.h"

#include <gtest/gtest.h>

#include <thread>

#include "rpc/testing/forwarding_connection.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using namespace testing;

class EndpointOver : public ::testing::TestWithParam<PairKind> {
 protected:
  void SetUp() override {
    transport::ConnectionPair pair = make_pair(GetParam());
    client = std::make_unique<RawPeer>(std::move(pair.first));
    server = std::make_unique<TestServer>(std::move(pair.second));
    server->start();
  }
  void TearDown() override { client->hang_up(); }

  void greet() {
    ASSERT_TRUE(client->send(wire::encode(wire::ClientHello{})));
    const auto answer = client->receive_hello();
    ASSERT_TRUE(answer.has_value());
    ASSERT_TRUE(wire::decode_answer(*answer).ok());
  }
  // The session ends with `reason`, told to the client and known to the server.
  void expect_end(std::string_view reason) {
    std::optional<RawFrame> frame = client->receive_frame();
    while (frame && frame->header.kind < static_cast<std::uint16_t>(wire::FrameKind::kHostData)) {
      frame = client->receive_frame();
    }
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->header.kind, static_cast<std::uint16_t>(wire::FrameKind::kEnded));
    EXPECT_NE(frame->payload.find(reason), std::string::npos) << frame->payload;
    EXPECT_TRUE(client->at_end());
    client->hang_up();
    server->stop();
    EXPECT_NE(server->ended_with.find(reason), std::string::npos) << server->ended_with;
    EXPECT_FALSE(server->in_order);
  }
  wire::CommandHeader note(std::uint64_t sequence, std::uint32_t bytes = 0) const {
    return {.payload_bytes = bytes, .op = kOpNote, .sequence = sequence};
  }

  std::unique_ptr<RawPeer> client;
  std::unique_ptr<TestServer> server;
};

INSTANTIATE_TEST_SUITE_P(Kinds, EndpointOver,
                         ::testing::Values(PairKind::kUnix, PairKind::kTcp, PairKind::kSim,
                                           PairKind::kShm),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(EndpointOver, RunsCommandsAndAnswersAPing) {
  greet();
  EXPECT_TRUE(client->send(note(1, 3), "abc"));
  EXPECT_TRUE(
      client->send(wire::CommandHeader{.op = 2, .flags = wire::kWantsReply, .sequence = 2}));
  const auto pong = client->receive_frame();
  ASSERT_TRUE(pong.has_value());
  EXPECT_EQ(pong->header.sequence, 2u);
  EXPECT_EQ(pong->payload, reply_payload(0));
  EXPECT_TRUE(client->send(wire::CommandHeader{.op = 1, .sequence = 3}));
  EXPECT_TRUE(client->at_end());
  server->stop();
  EXPECT_TRUE(server->in_order);
  EXPECT_EQ(server->notes, std::vector<std::string>{"abc"});
}

// The main thread sees that the session is closed before the frame that tells why is out.
TEST_P(EndpointOver, TellsAnEndThatAnotherThreadMakesWhileCommandsCome) {
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    if (round > 0) SetUp();
    greet();
    std::thread ender([this] { server->end("enough"); });
    for (std::uint64_t i = 1; i <= 50; ++i) static_cast<void>(client->send(note(i)));
    ender.join();
    expect_end("enough");
    if (HasFatalFailure()) return;
  }
}

TEST_P(EndpointOver, EndsASessionWithAGapInTheSequence) {
  greet();
  client->send(note(1));
  client->send(note(3));
  expect_end("out of sequence");
}

TEST_P(EndpointOver, EndsASessionThatSendsACommandTwice) {
  greet();
  client->send(note(1));
  client->send(note(1));
  expect_end("out of sequence");
}

TEST_P(EndpointOver, EndsASessionWithATooLongFrame) {
  greet();
  client->send(note(1, wire::kFramePayloadBytesMax + 1));
  expect_end("exceeds the limit");
}

TEST_P(EndpointOver, EndsASessionWithUnknownFlags) {
  greet();
  wire::CommandHeader header = note(1);
  header.flags = 0x8000;
  client->send(header);
  expect_end("unknown flags");
}

TEST_P(EndpointOver, EndsASessionWithAnUnknownProtocolOp) {
  greet();
  client->send(wire::CommandHeader{.op = 9, .sequence = 1});
  expect_end("unknown protocol op");
}

TEST_P(EndpointOver, EndsASessionWhoseCommandTheHandlerRefuses) {
  greet();
  client->send(wire::CommandHeader{.op = 999, .sequence = 1});
  expect_end("no such op");
}

TEST_P(EndpointOver, EndsASessionThatWaitsForMoreRepliesThanTheLimit) {
  greet();
  for (std::uint64_t i = 1; i <= wire::kCallsWaitingMax + 1; ++i) {
    client->send(wire::CommandHeader{.op = kOpHold, .flags = wire::kWantsReply, .sequence = i});
  }
  expect_end("more calls waiting");
}

TEST_P(EndpointOver, RunsNothingAfterAGoodbye) {
  greet();
  client->send(wire::CommandHeader{.op = 1, .sequence = 1});
  client->send(note(2));
  EXPECT_TRUE(client->at_end());
  server->stop();
  EXPECT_TRUE(server->in_order);
  EXPECT_TRUE(server->notes.empty());
}

TEST_P(EndpointOver, ClosesWhenTheClientHangsUpInTheMiddleOfAFrame) {
  greet();
  client->send(note(1, 10), "abc");
  client->hang_up();
  server->stop();
  EXPECT_FALSE(server->in_order);
  EXPECT_TRUE(server->notes.empty());
}

TEST_P(EndpointOver, RefusesAHelloThatIsNotOne) {
  client->send(bytes_of("GET / HTTP/1.1\r\nHost: gpu-server\r\n\r\n"));
  const auto answer = client->receive_hello();
  ASSERT_TRUE(answer.has_value());
  const auto refused = wire::decode_answer(*answer);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("not the Flyt protocol"), std::string::npos);
  server->stop();
  EXPECT_FALSE(server->greeted);
}

TEST_P(EndpointOver, RefusesAVersionThatItDoesNotSpeak) {
  client->send(wire::encode(wire::ClientHello{.version_min = 900, .version_max = 901}));
  const auto answer = client->receive_hello();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(wire::decode_answer(*answer).error().code, ErrorCode::kUnsupported);
}

TEST_P(EndpointOver, AcknowledgesWhatItHasExecuted) {
  greet();
  for (std::uint64_t i = 1; i <= wire::kCommandsPerAckMax; ++i) client->send(note(i, 2), "ab");
  const auto ack = client->receive_frame();
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->header.kind, static_cast<std::uint16_t>(wire::FrameKind::kAck));
  EXPECT_EQ(ack->header.sequence, wire::kCommandsPerAckMax);
  EXPECT_EQ(ack->header.argument, wire::kCommandsPerAckMax * 26);
}

TEST(Greeting, DoesNotWaitForAHelloForEver) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  RawPeer client(std::move(pair.first));
  client.send(bytes_of("FLYT"));
  const auto hello =
      receive_hello(*pair.second, system_clock().now() + std::chrono::milliseconds(9));
  ASSERT_FALSE(hello.ok());
  EXPECT_EQ(hello.error().code, ErrorCode::kTimeout);
}

TEST(Greeting, ReadsNotAByteBeyondTheHello) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  RawPeer client(std::move(pair.first));
  client.send(wire::encode(wire::ClientHello{.name = "n"}));
  client.send(bytes_of("rest"));
  const auto hello = receive_hello(*pair.second, soon());
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(RawPeer(std::move(pair.second)).receive(4), "rest");
}

// A pool of one chunk, and what a handler keeps of it.
class KeepingHandler final : public CommandHandler {
 public:
  Status on_command(const Command& command) override {
    kept.push_back(command.chunk);
    payloads.push_back(command.payload);
    return {};
  }
  std::vector<ChunkRef> kept;
  std::vector<Bytes> payloads;
};

TEST(Endpoint, LeavesAChunkAloneWhileAHandlerKeepsItAndStopsReadingWhenThePoolIsEmpty) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  RawPeer client(std::move(pair.first));
  HeapBufferPool pool(2 * kMiB, 2);
  {
    Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
    KeepingHandler handler;
    std::thread sender([&] {
      const std::string payload(200 * kKiB, 'a');
      for (std::uint64_t i = 1; i <= 40; ++i) {
        const wire::CommandHeader header{
            .payload_bytes = static_cast<std::uint32_t>(payload.size()), .op = 16, .sequence = i};
        std::string filled = payload;
        filled[0] = static_cast<char>(i);
        client.send(header, filled);
      }
    });
    std::size_t checked = 0;
    bool starved = false;
    while (checked + handler.kept.size() < 40) {
      const Received received = endpoint.receive(handler, transport::kNever);
      ASSERT_NE(received, Received::kClosed) << endpoint.error().message;
      if (received != Received::kNoChunk) continue;
      starved = true;
      ASSERT_FALSE(handler.kept.empty());
      for (const Bytes& payload : handler.payloads) {
        EXPECT_EQ(std::to_integer<std::size_t>(payload[0]), ++checked);
      }
      handler.payloads.clear();
      handler.kept.clear();
    }
    sender.join();
    EXPECT_TRUE(starved);
    EXPECT_LE(pool.chunks_in_use(), 2u);
  }
  EXPECT_EQ(pool.chunks_in_use(), 0u);
}

TEST(Endpoint, IsWokenOnceForEachWakeOfASleepingReceive) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  HeapBufferPool pool;
  Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
  KeepingHandler handler;
  endpoint.wake();
  EXPECT_EQ(endpoint.receive(handler, transport::kNever), Received::kWoken);
  EXPECT_EQ(endpoint.receive(handler, Instant{}), Received::kNothing);
  std::thread other([&] { endpoint.wake(); });
  EXPECT_EQ(endpoint.receive(handler, transport::kNever), Received::kWoken);
  other.join();
}

TEST(Endpoint, NoticesThatThePeerIsGoneThoughItNeverWaits) {
  for (const PairKind kind : {PairKind::kUnix, PairKind::kTcp, PairKind::kShm}) {
    SCOPED_TRACE(name_of(kind));
    transport::ConnectionPair pair = make_pair(kind);
    HeapBufferPool pool;
    Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
    KeepingHandler handler;
    EXPECT_EQ(endpoint.receive(handler, Instant{}), Received::kNothing);
    pair.first.reset();
    const Instant deadline = testing::soon();
    Received last = Received::kNothing;
    while (last != Received::kClosed && system_clock().now() < deadline) {
      last = endpoint.receive(handler, Instant{});
    }
    EXPECT_EQ(last, Received::kClosed);
  }
}

// Counts how often somebody waits at a connection: the peer is then asked to ring.
class WaitCounter final : public ForwardingConnection {
 public:
  WaitCounter(std::unique_ptr<transport::Connection> inner, int& waits)
      : ForwardingConnection(std::move(inner)), waits_(waits) {}
  transport::ReadySet wait(transport::ReadySet wanted, Instant deadline,
                           const transport::Wakeup* wakeup) override {
    ++waits_;
    return ForwardingConnection::wait(wanted, deadline, wakeup);
  }

 private:
  int& waits_;
};

TEST(Endpoint, AsksForNoBellWhileCommandsComeBetweenItsGlances) {
  transport::ConnectionPair pair = make_pair(PairKind::kShm);
  int waits = 0;
  HeapBufferPool pool;
  Endpoint endpoint(std::make_unique<WaitCounter>(std::move(pair.second), waits), wire::Limits{},
                    pool);
  RawPeer client(std::move(pair.first));
  KeepingHandler handler;
  constexpr std::uint64_t kCommands = 200;
  for (std::uint64_t sequence = 1; sequence <= kCommands; ++sequence) {
    ASSERT_TRUE(client.send(wire::CommandHeader{.op = kOpNote, .sequence = sequence}));
    ASSERT_EQ(endpoint.receive(handler, Instant{}), Received::kCommands);
    ASSERT_EQ(endpoint.receive(handler, Instant{}), Received::kNothing);
  }
  EXPECT_EQ(waits, 0);
}

TEST(Endpoint, NoticesAHangupWhileItsMainThreadIsBusyElsewhere) {
  transport::ConnectionPair pair = make_pair(PairKind::kTcp);
  HeapBufferPool pool;
  const Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
  EXPECT_FALSE(endpoint.wait_for_hangup(Instant{}));
  pair.first.reset();
  EXPECT_TRUE(endpoint.wait_for_hangup(transport::kNever));
}

TEST(Endpoint, KeepsRepliesForAClientThatDoesNotReadAndSendsThemLater) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  RawPeer client(std::move(pair.first));
  HeapBufferPool pool;
  Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
  const std::string text(1000, 'x');
  constexpr int kFrames = 700;  // More than the socket takes, less than the backlog holds.
  for (int i = 0; i < kFrames; ++i) endpoint.push_output(1, bytes_of(text));
  std::thread main([&] {
    KeepingHandler handler;
    while (endpoint.receive(handler, transport::kNever) != Received::kClosed) {
    }
  });
  for (int i = 0; i < kFrames; ++i) {
    const auto frame = client.receive_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->payload, text);
  }
  client.hang_up();
  main.join();
}

TEST(Endpoint, SendsLittleDataTogetherWithWhatFollowsIt) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  RawPeer client(std::move(pair.first));
  HeapBufferPool pool;
  Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
  const std::array<std::byte, 5> data{};
  endpoint.deliver(7, 0, data, Then::kReply);
  EXPECT_EQ(client.connection().wait(transport::kReadable, Instant{}, nullptr),
            transport::kNothing);
  endpoint.push_output(1, bytes_of("text"));
  std::array<std::byte, 256> all{};
  const MutableBytes into(all);
  const Result<std::size_t> got = client.connection().read({&into, 1}, transport::Patience::kWait);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, 2 * wire::kHeaderBytes + data.size() + 4);
  Reader first{Bytes(all)};
  EXPECT_EQ(wire::decode_frame_header(first).sequence, 7u);
}

TEST(Endpoint, DoesNotKeepMuchDataForWhatFollowsIt) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  RawPeer client(std::move(pair.first));
  HeapBufferPool pool;
  Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
  const std::string data(3000, 'x');
  for (std::uint64_t id = 1; id <= 20; ++id) {
    endpoint.deliver(id, 0, bytes_of(data), Then::kReply);
  }
  // All but what is kept.
  for (std::uint64_t id = 1; id <= 19; ++id) {
    const auto frame = client.receive_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->header.sequence, id);
    EXPECT_EQ(frame->payload, data);
  }
}

TEST(Endpoint, GivesUpSendingWhenTheSessionEndsMeanwhile) {
  transport::ConnectionPair pair = make_pair(PairKind::kUnix);
  const RawPeer client(std::move(pair.first));
  HeapBufferPool pool;
  Endpoint endpoint(std::move(pair.second), wire::Limits{}, pool);
  std::thread worker([&] {
    const std::vector<std::byte> data(64 * kMiB);
    endpoint.deliver(1, 0, data);
  });
  endpoint.end(wire::EndedCode::kShutdown, "enough");
  worker.join();
  EXPECT_TRUE(endpoint.closed());
  EXPECT_EQ(endpoint.error().message, "enough");
}

}  // namespace
}  // namespace flyt::rpc
