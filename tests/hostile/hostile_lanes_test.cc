// Lanes as no client of ours uses them.
#include <array>
#include <utility>
#include <vector>

#include "tests/hostile/hostile_session.h"
#include "wire/lane.h"

namespace flyt::sim {
namespace {

class HostileLanes : public HostileSession {
 protected:
  static void SetUpTestSuite() { start_server({}, "tcp://127.0.0.1:0"); }

  void SetUp() override {
    current_ = 0;
    HostileSession::SetUp();
    current_ = kPrimary;
    ASSERT_EQ(CUDA_SUCCESS, ask(commands::MemAlloc{.bytes = 4 * kMiB}));
    commands::MemAlloc::Reply allocated;
    EXPECT_TRUE(wire::decode(fields(), allocated));
    memory_ = allocated.address;
  }
  wire::ClientHello lane_hello(std::uint16_t number) const {
    wire::ClientHello hello;
    hello.role = wire::ConnectionRole::kBulk;
    hello.token = peer_->welcome().token;
    hello.lane = number;
    return hello;
  }
  Result<wire::Welcome> greet(Peer& lane, const wire::ClientHello& hello) {
    EXPECT_TRUE(lane.send(wire::encode(hello)).ok());
    return lane.read_answer();
  }
  Peer lane(std::uint16_t number) {
    Peer peer = stranger();
    const auto welcome = greet(peer, lane_hello(number));
    EXPECT_TRUE(welcome.ok()) << welcome.error().message;
    return peer;
  }
  static Status say(Peer& lane, const wire::LaneBlock& block, Bytes data = {},
                    double seconds = 60) {
    std::array<std::byte, wire::kLaneBlockHeaderBytes> bytes;
    Writer writer(bytes);
    wire::encode(block, writer);
    if (Status sent = lane.send(bytes, seconds); !sent) return sent;
    return lane.send(data, seconds);
  }
  static Status say(Peer& lane, std::uint64_t number, std::byte filler, std::uint32_t size = 1024) {
    return say(lane, {.sent_bytes = size, .bytes = size, .name = number},
               std::vector<std::byte>(size, filler));
  }
  void name(std::uint64_t block, std::uint32_t lane = 0, std::uint32_t size = 1024) {
    send(commands::CopyBlockToDevice{
        .address = memory_, .block = block, .lane = lane, .bytes = size});
  }
  // The first byte of the memory, once everything that was named is done.
  std::byte first_byte() {
    send(commands::CopyToHost{.address = memory_,
                              .pitch = 1,
                              .slice_pitch = 1,
                              .width = 1,
                              .rows = 1,
                              .slices = 1,
                              .delivery = ++deliveries_});
    const Heard data = peer_->read_until(wire::FrameKind::kHostData);
    EXPECT_EQ(1u, data.payload.size());
    EXPECT_EQ(CUDA_SUCCESS, answer());
    return data.payload.empty() ? std::byte{} : data.payload.front();
  }

  std::uint64_t memory_ = 0;
  std::uint64_t deliveries_ = 0;
};

TEST_F(HostileLanes, AreOfTheSessionWhoseTokenTheyHave) {
  EXPECT_NE(wire::SessionToken{}, peer_->welcome().token);
  EXPECT_NE(innocent->welcome().token, peer_->welcome().token);
  Peer good = lane(0);
  EXPECT_TRUE(say(good, 1, std::byte{5}).ok());
  name(1);
  EXPECT_EQ(std::byte{5}, first_byte());
}

TEST_F(HostileLanes, GetNothingWithAnotherToken) {
  const std::size_t processes = server().children().size();
  for (int bit = 0; bit < 128; bit += 9) {
    wire::ClientHello hello = lane_hello(0);
    hello.token[static_cast<std::size_t>(bit / 8)] ^= static_cast<std::uint8_t>(1 << bit % 8);
    Peer peer = stranger();
    const auto welcome = greet(peer, hello);
    ASSERT_FALSE(welcome.ok());
    EXPECT_EQ(ErrorCode::kDenied, welcome.error().code);
  }
  wire::ClientHello hello = lane_hello(0);
  hello.token = {};
  Peer peer = stranger();
  EXPECT_FALSE(greet(peer, hello).ok());
  // And no session of their own.
  EXPECT_EQ(processes, server().children().size());
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileLanes, AreLimited) {
  std::vector<Peer> lanes;
  for (std::uint16_t i = 0; i < wire::kLanesMax; ++i) lanes.push_back(lane(i));
  Peer more = stranger();
  EXPECT_FALSE(greet(more, lane_hello(0)).ok());
  wire::ClientHello high = lane_hello(0);
  high.lane = wire::kLanesMax;
  Peer beyond = stranger();
  EXPECT_FALSE(greet(beyond, high).ok());
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileLanes, HaveANumberEach) {
  Peer first = lane(3);
  Peer second = stranger();
  EXPECT_FALSE(greet(second, lane_hello(3)).ok());
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileLanes, EndTheSessionThatSendsNonsenseOnOne) {
  const std::uint32_t most = wire::kLaneBlockBytesMax;
  for (const wire::LaneBlock& block :
       {wire::LaneBlock{most + 1, most + 1, 1}, wire::LaneBlock{0, 0, 1}, wire::LaneBlock{9, 8, 1},
        wire::LaneBlock{8, 8, 2}, wire::LaneBlock{8, 8, 0}, wire::LaneBlock{8, 8, 1, 1},
        wire::LaneBlock{0xffffffff, 0xffffffff, ~0ULL, ~0ULL}}) {
    Peer bad = lane(0);
    // The server may have hung up before it has taken all.
    static_cast<void>(say(bad, block, bytes_of("12345678")).ok());
    expect_ended();
    peer_.reset();
    SetUp();
    if (HasFatalFailure()) return;
  }
}

TEST_F(HostileLanes, EndTheSessionWhoseBlockDoesNotUnpack) {
  Peer bad = lane(0);
  EXPECT_TRUE(say(bad, {.sent_bytes = 8, .bytes = wire::kLaneBlockBytesMax, .name = 1},
                  bytes_of("no zstd!"))
                  .ok());
  expect_ended();
}

TEST_F(HostileLanes, EndTheSessionThatNamesWhatCannotCome) {
  Peer good = lane(0);
  ASSERT_TRUE(say(good, 1, std::byte{1}).ok());
  for (const int wrong : {0, 1, 2, 3}) {
    if (wrong == 0) name(2);
    if (wrong == 1) name(1, 1);
    if (wrong == 2) name(1, UINT32_MAX);
    if (wrong == 3) name(1, 0, 0);
    expect_ended();
    peer_.reset();
    SetUp();
    if (HasFatalFailure()) return;
    good = lane(0);
    ASSERT_TRUE(say(good, 1, std::byte{1}).ok());
  }
  name(1, 0, 1023);
  expect_ended();
}

TEST_F(HostileLanes, EndTheSessionThatNamesABlockTwice) {
  Peer good = lane(0);
  ASSERT_TRUE(say(good, 1, std::byte{1}).ok());
  name(1);
  name(1);
  expect_ended();
}

TEST_F(HostileLanes, HoldBackWhatComesBehindABlockUntilItIsThere) {
  Peer late = lane(0);
  name(1);
  send(commands::FillMemory{
      .address = memory_, .pitch = 1, .value = 9, .element_bytes = 1, .width = 1, .rows = 1});
  ASSERT_TRUE(innocent->alive());
  ASSERT_TRUE(say(late, 1, std::byte{1}).ok());
  EXPECT_EQ(std::byte{9}, first_byte());
}

// The stream waits for the client, the lane for the stream, and the commands for the lane.
TEST_F(HostileLanes, LetTheClientsWordThroughWhenTheirSlotsAreFull) {
  Peer good = lane(0);
  constexpr std::uint64_t kBlocks = 150;
  send(commands::HostCall{.token = 5});
  for (std::uint64_t i = 1; i <= kBlocks; ++i) {
    ASSERT_TRUE(say(good, i, static_cast<std::byte>(i % 251), 16 * kKiB).ok());
  }
  for (std::uint64_t i = 1; i <= kBlocks; ++i) name(i, 0, 16 * kKiB);
  ASSERT_TRUE(peer_->read_until(wire::FrameKind::kHostCall).is(wire::FrameKind::kHostCall));
  send(commands::HostCallDone{.token = 5});
  EXPECT_EQ(static_cast<std::byte>(kBlocks % 251), first_byte());
}

TEST_F(HostileLanes, EndTheSessionThatLosesOne) {
  {
    const Peer gone = lane(0);
    name(1);
  }
  expect_ended();
}

TEST_F(HostileLanes, AreNotReadFurtherThanTheirSlotsReach) {
  Peer endless = lane(0);
  // Nobody names these: the server takes what it has room for, and no more.
  std::uint64_t sent = 0;
  const std::vector<std::byte> data(wire::kLaneBlockBytesMax);
  Status taken;
  while (taken && sent < 1000) {
    taken = say(
        endless,
        {.sent_bytes = wire::kLaneBlockBytesMax, .bytes = wire::kLaneBlockBytesMax, .name = ++sent},
        data, 1.0);
  }
  EXPECT_EQ(ErrorCode::kTimeout, taken.error().code);
  EXPECT_LT(sent, 200u);
  EXPECT_TRUE(peer_->alive());
}

TEST_F(HostileLanes, MayBeLeftUnreadAtTheSessionsOwnCost) {
  Peer deaf = lane(0);
  send(commands::PostToHost{.address = memory_,
                            .pitch = 4 * kMiB,
                            .slice_pitch = 4 * kMiB,
                            .width = 4 * kMiB,
                            .rows = 1,
                            .slices = 1,
                            .delivery = 1});
  EXPECT_TRUE(innocent->alive());
  // The session goes with its client, whatever its lanes are at.
  peer_.reset();
}

TEST_F(HostileLanes, RefuseACopyBeyondTheSessionsMemory) {
  Peer good = lane(0);
  for (std::uint64_t i = 1; i <= 200; ++i) {
    // Each one's slot comes back, or the lane would stand.
    ASSERT_TRUE(say(good, i, std::byte{1}, 512 * kKiB).ok());
    send(
        commands::CopyBlockToDevice{
            .address = i % 2 == 0 ? 0x1000 : memory_ + 4 * kMiB, .block = i, .bytes = 512 * kKiB},
        i % 3 == 0 ? 77 : kPrimary);
  }
  EXPECT_TRUE(peer_->alive());
}

}  // namespace
}  // namespace flyt::sim
