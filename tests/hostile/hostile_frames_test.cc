// Hellos and frames that break the protocol: refused or ended with a reason, nobody else notices.

#include <string>
#include <vector>

#include "base/random.h"
#include "tests/hostile/hostile.h"

namespace flyt::sim {
namespace {

class HostileHello : public HostileTest {};
class HostileFrames : public HostileTest {};

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

// The server hangs up on it, with an answer or without.
void expect_refused(Peer& peer) {
  const auto answer = peer.read_answer();
  EXPECT_FALSE(answer.ok());
  const Heard rest = peer.read_frame();
  EXPECT_EQ(Heard::What::kClosed, rest.what);
}

TEST_F(HostileHello, GarbageIsHungUpOn) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Peer peer = stranger();
    EXPECT_TRUE(peer.send(noise(64, seed)).ok());
    expect_refused(peer);
  }
}

TEST_F(HostileHello, WhoSaysNothingGetsNoProcess) {
  const auto before = server().children();
  const Peer silent = stranger();
  Peer slow = stranger();
  const auto bytes = wire::encode(wire::ClientHello{});
  EXPECT_TRUE(slow.send(Bytes(bytes).first(bytes.size() - 1)).ok());
  // In the time in which another one is served they would have been given theirs.
  Peer other = attacker();
  EXPECT_TRUE(other.alive());
  EXPECT_EQ(before.size() + 1, server().children().size());
  // A hello that comes in pieces is as good as another.
  EXPECT_TRUE(slow.send(Bytes(bytes).last(1)).ok());
  EXPECT_TRUE(slow.read_answer().ok());
}

void start_small(tests::ServerProcess& server, const char* sessions_max) {
  tests::ServerOptions options;
  options.program = tests::server_program();
  options.arguments = {"--max-sessions", sessions_max};
  const auto started = server.start(options);
  ASSERT_TRUE(started.ok()) << started.error().message;
}

// Each of them would once have had one of the sessions until its time was over.
TEST_F(HostileHello, ManyWhoSayNothingKeepNobodyOut) {
  tests::ServerProcess small;
  ASSERT_NO_FATAL_FAILURE(start_small(small, "2"));
  std::vector<Peer> silent;
  for (int i = 0; i < 50; ++i) {
    auto peer = Peer::connect(small.url());
    ASSERT_TRUE(peer.ok()) << peer.error().message;
    silent.push_back(std::move(*peer));
  }
  auto first = Peer::greeted(small.url());
  ASSERT_TRUE(first.ok()) << first.error().message << small.log();
  EXPECT_TRUE(first->alive());
  auto second = Peer::greeted(small.url());
  ASSERT_TRUE(second.ok()) << second.error().message << small.log();
  EXPECT_TRUE(second->alive());
  EXPECT_EQ(2u, small.children().size());
}

TEST_F(HostileHello, WhoOnlyAsksHasNoPlaceOfASession) {
  tests::ServerProcess small;
  ASSERT_NO_FATAL_FAILURE(start_small(small, "1"));
  const auto monitor = [&] {
    return Peer::greeted(small.url(), false, wire::ConnectionRole::kMonitor);
  };
  std::vector<Peer> monitors;
  for (int i = 0; i < 16; ++i) {
    auto peer = monitor();
    ASSERT_TRUE(peer.ok()) << peer.error().message << small.log();
    monitors.push_back(std::move(*peer));
  }
  const auto late = monitor();
  ASSERT_FALSE(late.ok());
  EXPECT_NE(std::string::npos, late.error().message.find("room")) << late.error().message;
  auto session = Peer::greeted(small.url());
  ASSERT_TRUE(session.ok()) << session.error().message << small.log();
  EXPECT_TRUE(session->alive());
}

TEST_F(HostileHello, OneWhoOpensFarTooManyLosesTheOldestAndKeepsNobodyOut) {
  std::vector<Peer> silent;
  for (int i = 0; i < 64; ++i) silent.push_back(stranger());
  const Peer late = stranger();
  const auto answer = silent.front().read_answer();
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(std::string::npos, answer.error().message.find("room")) << answer.error().message;
  EXPECT_TRUE(Peer::greeted(server().url()).ok()) << server().log();
}

TEST_F(HostileHello, AVersionNobodySpeaksIsRefusedWithAReason) {
  Peer peer = stranger();
  wire::ClientHello hello;
  hello.version_min = 900;
  hello.version_max = 901;
  EXPECT_TRUE(peer.send(wire::encode(hello)).ok());
  const auto answer = peer.read_answer();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(ErrorCode::kUnsupported, answer.error().code) << answer.error().message;
  EXPECT_NE(std::string::npos, answer.error().message.find("version")) << answer.error().message;
}

TEST_F(HostileHello, RecordsBeyondTheLimitAreRefused) {
  wire::ClientHello hello;
  auto bytes = wire::encode(hello);
  const std::uint32_t many = 1u << 30;
  std::memcpy(bytes.data() + 16, &many, sizeof(many));
  Peer peer = stranger();
  EXPECT_TRUE(peer.send(bytes).ok());
  expect_refused(peer);
}

TEST_F(HostileHello, EveryBitFlippedInAHelloIsSurvived) {
  wire::ClientHello hello;
  hello.name = "x";
  const auto good = wire::encode(hello);
  for (std::size_t bit = 0; bit < good.size() * 8; bit += 5) {
    auto bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Peer peer = stranger();
    EXPECT_TRUE(peer.send(bytes).ok());
  }
}

TEST_F(HostileHello, AHelloCutAnywhereIsSurvived) {
  const auto good = wire::encode(wire::ClientHello{});
  for (std::size_t size = 0; size < good.size(); size += 3) {
    Peer peer = stranger();
    EXPECT_TRUE(peer.send(Bytes(good).first(size)).ok());
  }
}

TEST_F(HostileHello, SilentStrangersKeepNobodyWaiting) {
  std::vector<Peer> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(stranger());
  Peer peer = attacker();
  EXPECT_TRUE(peer.alive());
}

TEST_F(HostileFrames, GarbageEndsTheSessionWithAReason) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Peer peer = attacker();
    const auto sent = peer.send(noise(4096, seed));
    const auto ending = peer.ending();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }
}

TEST_F(HostileFrames, AnOversizedFrameEndsTheSession) {
  for (const std::uint32_t size : {wire::kFramePayloadBytesMax + 1, 0x7fffffffu, 0xffffffffu}) {
    Peer peer = attacker();
    wire::CommandHeader header;
    header.payload_bytes = size;
    header.op = wire::kFirstApiOp;
    header.sequence = peer.next_sequence();
    EXPECT_TRUE(peer.send_header(header).ok());
    const auto ending = peer.ending();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }
}

TEST_F(HostileFrames, AnUnknownOpEndsTheSession) {
  for (const std::uint16_t op : {0, 3, 15, 5000, 65535}) {
    SCOPED_TRACE(op);
    Peer peer = attacker();
    EXPECT_TRUE(peer.send_command(op, {}, true).ok());
    const auto ending = peer.ending();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }
}

TEST_F(HostileFrames, SequenceNumbersOutOfOrderEndTheSession) {
  for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{2}, ~std::uint64_t{0}}) {
    SCOPED_TRACE(sequence);
    Peer peer = attacker();
    wire::CommandHeader header;
    header.op = static_cast<std::uint16_t>(wire::ProtocolOp::kPing);
    header.flags = wire::kWantsReply;
    header.sequence = sequence;
    EXPECT_TRUE(peer.send_header(header).ok());
    const auto ending = peer.ending();
    EXPECT_TRUE(ending.in_order) << ending.reason;
  }
}

TEST_F(HostileFrames, UnknownFlagsEndTheSession) {
  Peer peer = attacker();
  wire::CommandHeader header;
  header.op = static_cast<std::uint16_t>(wire::ProtocolOp::kPing);
  header.flags = 0xfffe;
  header.sequence = peer.next_sequence();
  EXPECT_TRUE(peer.send_header(header).ok());
  const auto ending = peer.ending();
  EXPECT_TRUE(ending.in_order) << ending.reason;
}

TEST_F(HostileFrames, AFrameCutShortEndsTheSessionQuietly) {
  for (const std::size_t size : {1, 23}) {
    Peer peer = attacker();
    const std::vector<std::byte> bytes(size);
    EXPECT_TRUE(peer.send(bytes).ok());
  }
  Peer peer = attacker();
  wire::CommandHeader header;
  header.payload_bytes = 100;
  header.op = wire::kFirstApiOp;
  header.sequence = peer.next_sequence();
  EXPECT_TRUE(peer.send_header(header).ok());
}

TEST_F(HostileFrames, AContextThatWasNeverMadeIsNoContext) {
  Peer peer = attacker();
  for (const std::uint32_t context : {1u, 77u, 0x3fffffu, 0xffffffffu}) {
    EXPECT_TRUE(
        peer.send_command(static_cast<std::uint16_t>(wire::ProtocolOp::kPing), {}, true, context)
            .ok());
  }
  // Either way is fine: the session ends with a reason, or the number is not looked at.
  const Heard heard = peer.read_frame();
  EXPECT_EQ(Heard::What::kFrame, heard.what);
}

TEST_F(HostileFrames, AFloodOfPingsIsAnsweredOrEnded) {
  Peer peer = attacker();
  constexpr int kPings = 2000;
  for (int i = 0; i < kPings; ++i) {
    const auto ping = static_cast<std::uint16_t>(wire::ProtocolOp::kPing);
    EXPECT_TRUE(peer.send_command(ping, {}, true).ok());
  }
  for (int i = 0; i < kPings; ++i) {
    const Heard heard = peer.read_until(wire::FrameKind::kReply);
    ASSERT_EQ(Heard::What::kFrame, heard.what) << "after " << i << " replies";
  }
}

}  // namespace
}  // namespace flyt::sim
