// A Channel against a server that says what it should not, byte by byte.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "rpc/channel.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using namespace testing;
using wire::FrameKind;

// A client whose server does what the test says once the hello is over.
class ChannelAgainst : public ::testing::TestWithParam<PairKind> {
 protected:
  void serve(std::function<void(RawPeer&)> script) {
    transport::ConnectionPair pair = make_pair(GetParam());
    server = std::thread([peer = std::make_shared<RawPeer>(std::move(pair.second)), script] {
      if (!peer->receive_hello()) return;
      peer->send(wire::encode(wire::Welcome{}));
      script(*peer);
    });
    auto opened = Channel::open(std::move(pair.first), wire::ClientHello{}, soon(), pushes);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    channel = std::move(*opened);
  }
  void TearDown() override {
    channel.reset();
    if (server.joinable()) server.join();
  }
  // A call fails because of `rule`, and so does everything after it.
  void expect_loss(std::string_view rule) {
    const Result<std::string> answer = echo(*channel, "question");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ErrorCode::kLost);
    EXPECT_NE(answer.error().message.find(rule), std::string::npos) << answer.error().message;
    EXPECT_TRUE(channel->lost());
    EXPECT_FALSE(post_note(*channel, "later"));
    EXPECT_FALSE(echo(*channel, "later").ok());
  }

  TestPushes pushes;
  std::thread server;
  std::unique_ptr<Channel> channel;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ChannelAgainst,
                         ::testing::Values(PairKind::kUnix, PairKind::kTcp, PairKind::kSim,
                                           PairKind::kShm),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(ChannelAgainst, RefusesAReplyNobodyAskedFor) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(wire::FrameHeader{.payload_bytes = 16, .kind = 1, .sequence = 99}, reply_payload(0));
    peer.at_end();
  });
  expect_loss("reply nobody asked for");
}

TEST_P(ChannelAgainst, RefusesAReplyThatComesTwice) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    for (int i = 0; i < 2; ++i) {
      peer.send(wire::FrameHeader{.payload_bytes = 16, .kind = 1, .sequence = 1}, reply_payload(0));
    }
    peer.at_end();
  });
  EXPECT_TRUE(echo(*channel, "first").ok());
  expect_loss("reply nobody asked for");
}

TEST_P(ChannelAgainst, RefusesAReplyToAPostedCommand) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(wire::FrameHeader{.payload_bytes = 16, .kind = 1, .sequence = 1}, reply_payload(0));
    peer.at_end();
  });
  EXPECT_TRUE(post_note(*channel, "posted"));
  expect_loss("reply nobody asked for");
}

TEST_P(ChannelAgainst, RefusesAReplyWithoutItsPrefix) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(wire::FrameHeader{.payload_bytes = 15, .kind = 1, .sequence = 1},
              std::string(15, '\0'));
    peer.at_end();
  });
  expect_loss("reply without its prefix");
}

TEST_P(ChannelAgainst, RefusesAFrameThatIsTooLong) {
  serve([](RawPeer& peer) {
    peer.send(wire::FrameHeader{.payload_bytes = wire::kFramePayloadBytesMax + 1, .kind = 1});
    peer.at_end();
  });
  expect_loss("exceeds the limit");
}

TEST_P(ChannelAgainst, IsLostWhereAnswersDoNotComeInTime) {
  for (const bool begins : {false, true}) {
    serve([begins](RawPeer& peer) {
      peer.receive_command();
      if (begins) peer.send(wire::FrameHeader{.payload_bytes = 16, .kind = 1, .sequence = 1});
      peer.at_end();
    });
    channel->answer_by(system_clock().now() + std::chrono::milliseconds(50));
    const Result<std::string> answer = echo(*channel, "question");
    ASSERT_FALSE(answer.ok());
    EXPECT_EQ(answer.error().code, ErrorCode::kTimeout);
    EXPECT_TRUE(channel->lost());
    TearDown();
  }
}

TEST_P(ChannelAgainst, MayBeToldToWaitForEverAgain) {
  serve([](RawPeer& peer) {
    for (std::uint64_t sequence = 1; sequence <= 2; ++sequence) {
      peer.receive_command();
      // lint: allow(sleep): the client has to sleep for the answer, not just to look for it.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      peer.send(wire::FrameHeader{.payload_bytes = 16, .kind = 1, .sequence = sequence},
                reply_payload(0));
    }
    peer.at_end();
  });
  channel->answer_by(soon());
  EXPECT_TRUE(echo(*channel, "question").ok());
  channel->answer_by(system_clock().now());
  channel->answer_by({});
  EXPECT_TRUE(echo(*channel, "question").ok());
}

// Whether a call comes to an end by itself. `help` makes it.
bool ends(const std::function<void()>& call, const std::function<void()>& help) {
  auto ended = std::async(std::launch::async, call);
  const bool by_itself = ended.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  if (!by_itself) help();
  return by_itself;
}

TEST_P(ChannelAgainst, ClosesInTimeWhereAFrameIsNeverComplete) {
  RawPeer* other = nullptr;
  serve([&other](RawPeer& peer) {
    other = &peer;
    peer.receive_command();
    peer.send(wire::FrameHeader{.payload_bytes = 100, .kind = 6, .argument = 1}, "abc");
    while (!peer.at_end()) {
    }
  });
  ASSERT_TRUE(post_note(*channel, "posted"));
  Status closed;
  EXPECT_TRUE(
      ends([&] { closed = channel->close(system_clock().now() + std::chrono::milliseconds(100)); },
           [&] { other->hang_up(); }));
  ASSERT_FALSE(closed.ok());
  EXPECT_EQ(closed.error().code, ErrorCode::kTimeout);
}

// Takes longer than it takes to say more.
class UnhurriedPushes final : public PushHandler {
 public:
  bool on_host_call(std::uint64_t, std::uint64_t, Bytes) override { return true; }
  void on_output(std::uint32_t, Bytes) override {
    const Instant end = system_clock().now() + std::chrono::microseconds(20);
    while (system_clock().now() < end) {
    }
  }
  void on_delivered(std::uint64_t, bool) override {}
  void on_lost(const Error&) override {}
};

TEST_P(ChannelAgainst, TakesInAndClosesThoughTheServerNeverStopsTalking) {
  std::atomic<bool> stop{false};
  transport::ConnectionPair pair = make_pair(GetParam());
  server = std::thread([&stop, peer = std::make_shared<RawPeer>(std::move(pair.second))] {
    if (!peer->receive_hello()) return;
    peer->send(wire::encode(wire::Welcome{}));
    const std::string text(4096, 'x');
    const wire::FrameHeader header{.payload_bytes = 4096, .kind = 6, .argument = 2};
    while (!stop.load() && peer->send(header, text)) {
    }
  });
  UnhurriedPushes slow;
  auto opened = Channel::open(std::move(pair.first), wire::ClientHello{}, soon(), slow);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE(ends([&] { (*opened)->take_in(); }, [&] { stop.store(true); }));
  EXPECT_FALSE((*opened)->lost());
  EXPECT_TRUE(ends(
      [&] {
        const Instant deadline = system_clock().now() + std::chrono::milliseconds(100);
        EXPECT_FALSE((*opened)->close(deadline).ok());
      },
      [&] { stop.store(true); }));
}

TEST_P(ChannelAgainst, RefusesAFrameOfAnUnknownKind) {
  serve([](RawPeer& peer) {
    peer.send(wire::FrameHeader{.kind = 77});
    peer.at_end();
  });
  expect_loss("unknown kind");
}

TEST_P(ChannelAgainst, RefusesAcknowledgementsOfWhatWasNotSent) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(frame_of(FrameKind::kAck, 5, 32));
    peer.at_end();
  });
  expect_loss("acknowledgement of what was not sent");
}

TEST_P(ChannelAgainst, RefusesAcknowledgementsOfMoreBytesThanWereSent) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(frame_of(FrameKind::kAck, 1, 1000));
    peer.at_end();
  });
  expect_loss("acknowledgement of what was not sent");
}

TEST_P(ChannelAgainst, RefusesAcknowledgementsThatGoBack) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(frame_of(FrameKind::kAck, 1, 32));
    peer.send(frame_of(FrameKind::kAck, 0, 0));
    peer.at_end();
  });
  expect_loss("acknowledgement of what was not sent");
}

TEST_P(ChannelAgainst, RefusesHostDataNobodyAskedFor) {
  serve([](RawPeer& peer) {
    wire::FrameHeader header = frame_of(FrameKind::kHostData, 1);
    header.payload_bytes = 4;
    peer.send(header, "data");
    peer.at_end();
  });
  expect_loss("delivery that nobody asked for");
}

TEST_P(ChannelAgainst, RefusesMoreHostDataThanWasAskedForAndWritesNoneOfIt) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    wire::FrameHeader header = frame_of(FrameKind::kHostData, 1);
    header.payload_bytes = 5;
    peer.send(header, "data!");
    peer.at_end();
  });
  std::string memory = "....safe";
  const Delivery delivery = channel->expect(Destination::flat(memory.data(), 4));
  expect_loss("more host data than was asked for");
  EXPECT_FALSE(delivery.complete());
  EXPECT_EQ(memory, "....safe");
}

TEST_P(ChannelAgainst, RefusesHostDataOutOfOrder) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    wire::FrameHeader header = frame_of(FrameKind::kHostData, 1, 2);
    header.payload_bytes = 2;
    peer.send(header, "ta");
    peer.at_end();
  });
  std::string memory = "....";
  const Delivery delivery = channel->expect(Destination::flat(memory.data(), 4));
  expect_loss("out of order");
  EXPECT_EQ(memory, "....");
}

TEST_P(ChannelAgainst, ThrowsAwayHostDataForADeliveryThatWasForgotten) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    wire::FrameHeader header = frame_of(FrameKind::kHostData, 1);
    header.payload_bytes = 4;
    peer.send(header, "data");
    peer.send(wire::FrameHeader{.payload_bytes = 16, .kind = 1, .sequence = 1}, reply_payload(0));
    peer.at_end();
  });
  std::string memory = "....";
  { const Delivery forgotten = channel->expect(Destination::flat(memory.data(), 4)); }
  EXPECT_TRUE(echo(*channel, "x").ok());
  EXPECT_EQ(memory, "....");
}

TEST_P(ChannelAgainst, TellsWhenAPostedCopyWasDropped) {
  serve([](RawPeer& peer) {
    peer.send(frame_of(FrameKind::kHostDataDropped, 1));
    peer.at_end();
  });
  std::string memory = "....";
  const std::uint64_t id = channel->expect_detached(Destination::flat(memory.data(), 4));
  while (pushes.dropped.load() != id) std::this_thread::yield();
  EXPECT_FALSE(channel->lost());
}

TEST_P(ChannelAgainst, HandsOnTheEndsOfWatchesWhetherOrNotAnybodyWatches) {
  serve([](RawPeer& peer) {
    peer.send(frame_of(FrameKind::kCompleted, 7, 700));
    peer.send(frame_of(FrameKind::kCompleted, ~std::uint64_t{0}, 0));
    peer.send(frame_of(FrameKind::kCompleted, 9, 0));
    peer.send(frame_of(FrameKind::kCompleted, 9, 3));
    peer.at_end();
  });
  while (pushes.completed.load() != 9 || pushes.completed_result.load() != 3) channel->take_in();
  EXPECT_FALSE(channel->lost());
}

TEST_P(ChannelAgainst, RefusesTheEndOfAWatchWithAPayload) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    wire::FrameHeader header = frame_of(FrameKind::kCompleted, 7);
    header.payload_bytes = 1;
    peer.send(header, "x");
    peer.at_end();
  });
  expect_loss("payload in a frame that has none");
}

TEST_P(ChannelAgainst, TakingInAfterTheEndOfTheSessionIsNothing) {
  serve([](RawPeer& peer) { peer.hang_up(); });
  while (!channel->lost()) channel->take_in();
  channel->take_in();
  EXPECT_TRUE(channel->lost());
}

TEST_P(ChannelAgainst, NeverTakesAReplyThatWasCutForAnAnswer) {
  serve([](RawPeer& peer) {
    peer.receive_command();
    peer.send(wire::FrameHeader{.payload_bytes = 20, .kind = 1, .sequence = 1},
              reply_payload(0, "abc"));
    peer.hang_up();
  });
  expect_loss("closed");
}

TEST_P(ChannelAgainst, ReportsAnEndWithTheServersReason) {
  serve([](RawPeer& peer) {
    wire::FrameHeader header = frame_of(FrameKind::kEnded, 0, 3);
    header.payload_bytes = 8;
    peer.send(header, "upgrade!");
    peer.at_end();
  });
  expect_loss("ended by the server: upgrade!");
}

TEST_P(ChannelAgainst, RefusesAGarbledWelcome) {
  for (const std::string_view garbage :
       {std::string_view("HTTP/1.1 400 Bad Request\r\n\r\n"), std::string_view("short")}) {
    transport::ConnectionPair pair = make_pair(GetParam());
    RawPeer peer(std::move(pair.second));
    peer.send(bytes_of(garbage));
    if (garbage.size() < wire::kHelloPrefixBytes) peer.hang_up();
    const auto opened = Channel::open(std::move(pair.first), wire::ClientHello{}, soon(), pushes);
    EXPECT_FALSE(opened.ok());
  }
}

TEST_P(ChannelAgainst, RefusesAddressesThatWereNotOffered) {
  using wire::WindowPurpose;
  wire::ClientHello hello;
  hello.windows = {{WindowPurpose::kArena, 0, 1 * kGiB, 1 * kGiB}};
  const auto answered_with = [&](const wire::Window& window) {
    transport::ConnectionPair pair = make_pair(GetParam());
    RawPeer peer(std::move(pair.second));
    wire::Welcome welcome;
    welcome.windows = {window};
    peer.send(wire::encode(welcome));
    return Channel::open(std::move(pair.first), hello, soon(), pushes).ok();
  };
  EXPECT_TRUE(answered_with({WindowPurpose::kArena, 0, 1 * kGiB, 1 * kGiB}));
  EXPECT_TRUE(answered_with({WindowPurpose::kArena, 0, 1 * kGiB, 1 * kMiB}));
  EXPECT_FALSE(answered_with({WindowPurpose::kArena, 0, 1 * kGiB, 2 * kGiB}));
  EXPECT_FALSE(answered_with({WindowPurpose::kArena, 0, 1 * kGiB + 4096, 4096}));
  EXPECT_FALSE(answered_with({WindowPurpose::kVmm, 0, 1 * kGiB, 1 * kGiB}));
}

TEST_P(ChannelAgainst, ShowsNoControlCharactersOfTheServers) {
  transport::ConnectionPair pair = make_pair(GetParam());
  RawPeer peer(std::move(pair.second));
  peer.send(wire::encode(wire::Refusal{wire::RefusalCode::kFull, "no\x1b[2J GPU\r\nis free"}));
  const auto opened = Channel::open(std::move(pair.first), wire::ClientHello{}, soon(), pushes);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().message, "refused by the server: no?[2J GPU? is free");
  serve([](RawPeer& ending) {
    ending.send(wire::FrameHeader{.payload_bytes = 7, .kind = 7}, "bye\x1b[2J");
    ending.at_end();
  });
  expect_loss("ended by the server: bye?[2J");
}

TEST_P(ChannelAgainst, DoesNotWaitForAWelcomeForEver) {
  transport::ConnectionPair pair = make_pair(GetParam());
  const RawPeer peer(std::move(pair.second));
  const auto opened = Channel::open(std::move(pair.first), wire::ClientHello{},
                                    system_clock().now() + std::chrono::milliseconds(20), pushes);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kTimeout);
}

TEST_P(ChannelAgainst, PassesTheReasonOfARefusalOn) {
  transport::ConnectionPair pair = make_pair(GetParam());
  RawPeer peer(std::move(pair.second));
  peer.send(wire::encode(wire::Refusal{wire::RefusalCode::kFull, "no GPU is free"}));
  const auto opened = Channel::open(std::move(pair.first), wire::ClientHello{}, soon(), pushes);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().message, "refused by the server: no GPU is free");
}

}  // namespace
}  // namespace flyt::rpc
