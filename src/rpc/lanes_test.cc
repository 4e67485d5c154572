// A Channel whose server gives it lanes, by hand.
#include "rpc/lanes.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "rpc/testing/raw_peer.h"
#include "rpc/testing/session.h"

namespace flyt::rpc {
namespace {

using testing::frame_of;
using testing::pattern;
using testing::RawPeer;
using testing::soon;

constexpr wire::SessionToken kToken{9, 8, 7};

// A server of one session and up to two lanes.
class LanesTest : public ::testing::Test {
 protected:
  void open(unsigned lanes = 2, wire::SessionToken token = kToken) {
    auto pair = transport::connection_pair();
    FLYT_ASSERT(pair.ok());
    main_ = std::make_unique<RawPeer>(std::move(pair->second));
    std::thread greeting([&] {
      EXPECT_TRUE(main_->receive_hello().has_value());
      EXPECT_TRUE(main_->send(wire::encode(wire::Welcome{.name = "raw", .token = token})));
    });
    ChannelOptions options;
    options.lanes = {.count = lanes,
                     .connect = [this](Instant) { return connect(); },
                     .patience = std::chrono::seconds(20)};
    auto channel = Channel::open(std::move(pair->first), {}, soon(), pushes_, options);
    greeting.join();
    ASSERT_TRUE(channel.ok()) << channel.error().message;
    channel_ = std::move(*channel);
  }
  void TearDown() override {
    channel_.reset();
    for (std::thread& greeting : greetings_) greeting.join();
  }
  Result<std::unique_ptr<transport::Connection>> connect() {
    const Lock lock(mutex_);
    if (refuses_) return Error{ErrorCode::kNotFound, "no more connections"};
    auto pair = transport::connection_pair();
    FLYT_ASSERT(pair.ok());
    greetings_.emplace_back([this, far = std::make_shared<RawPeer>(std::move(pair->second))] {
      const auto bytes = far->receive_hello();
      if (!bytes) return;
      const auto hello = wire::decode_client_hello(*bytes);
      ASSERT_TRUE(hello.ok());
      EXPECT_EQ(hello->role, wire::ConnectionRole::kBulk);
      EXPECT_EQ(hello->token, kToken);
      const Lock guard(mutex_);
      lanes_[hello->lane] = far;
      EXPECT_TRUE(far->send(wire::encode(wire::Welcome{.name = "raw", .token = kToken})));
    });
    return std::move(pair->first);
  }
  RawPeer& lane(unsigned number) {
    const Lock lock(mutex_);
    return *lanes_.at(number);
  }
  void say(unsigned number, std::uint64_t delivery, std::uint64_t offset, std::size_t size) {
    LaneWriter writer(lane(number).connection(), system_clock(), wire::LanePacking::kOff);
    std::vector<std::byte> data(size);
    for (std::size_t i = 0; i < size; ++i) data[i] = pattern(offset + i);
    EXPECT_TRUE(writer.write(delivery, offset, data).ok());
  }
  void tell(std::uint64_t delivery, std::uint64_t offset, std::uint64_t size) {
    std::string payload(sizeof size, '\0');
    Writer writer(mutable_bytes_at(payload.data(), payload.size()));
    writer.write(size);
    wire::FrameHeader header = frame_of(wire::FrameKind::kHostDataByLane, delivery, offset);
    header.payload_bytes = sizeof size;
    EXPECT_TRUE(main_->send(header, payload));
  }
  void expect_lost() {
    while (!channel_->lost()) std::this_thread::yield();
  }

  testing::TestPushes pushes_;
  std::unique_ptr<RawPeer> main_;
  std::unique_ptr<Channel> channel_;
  Mutex mutex_;
  bool refuses_ = false;
  std::map<unsigned, std::shared_ptr<RawPeer>> lanes_;
  std::vector<std::thread> greetings_;
};

// What a lane's peer has read, by the number of the block.
using Blocks = std::map<std::uint64_t, std::vector<std::byte>>;

Blocks read_all(RawPeer& peer) {
  Blocks blocks;
  LaneReader reader(peer.connection());
  for (auto block = reader.next(); block.ok(); block = reader.next()) {
    std::vector<std::byte> data(block->bytes);
    EXPECT_TRUE(reader.read(*block, data).ok());
    blocks[block->name] = std::move(data);
  }
  return blocks;
}

TEST_F(LanesTest, SendACopyInBlocksThatAreNamedInTheirOrder) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  std::vector<std::byte> data(9 * kMiB + 12345);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern(i);
  std::array<Blocks, 2> received;
  std::array<std::thread, 2> reading;
  for (unsigned i = 0; i < 2; ++i) {
    reading[i] = std::thread([&, i] { received[i] = read_all(lane(i)); });
  }
  std::vector<SentBlock> told;
  for (int copy = 0; copy < 2; ++copy) {
    EXPECT_EQ(LaneSend::kSent, channel_->send_by_lanes(
                                   data, [&](const SentBlock& block) { told.push_back(block); }));
  }
  channel_->shut_down("read it all");
  for (std::thread& thread : reading) thread.join();
  std::array<std::uint64_t, 2> last{};
  std::uint64_t at = 0;
  for (const SentBlock& block : told) {
    EXPECT_EQ(at, block.offset);
    EXPECT_EQ(++last.at(block.lane), block.number);
    const auto& bytes = received.at(block.lane).at(block.number);
    ASSERT_EQ(block.bytes, bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), data.begin() + block.offset));
    at = (at + block.bytes) % data.size();
  }
  EXPECT_EQ(0u, at);
  EXPECT_EQ(2 * data.size(), channel_->counters().bytes_sent);
}

TEST_F(LanesTest, BringADeliveryThatCountsWhenItsTurnHasCome) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  // Rows with gaps between them.
  constexpr std::uint64_t kRow = 1000;
  constexpr std::uint64_t kRows = 700;
  std::vector<std::byte> memory(kRows * 1024);
  const std::uint64_t id = channel_->expect_detached({memory.data(), kRow, kRows, 1024});
  say(1, id, 300'000, 400'000);
  tell(id, 0, 700'000);
  say(0, id, 200'000, 100'000);
  EXPECT_EQ(0u, pushes_.delivered.load());
  say(0, id, 0, 200'000);
  while (pushes_.delivered.load() != id) ASSERT_FALSE(channel_->lost());
  for (std::uint64_t i = 0; i < kRow * kRows; ++i) {
    ASSERT_EQ(pattern(i), memory[i / kRow * 1024 + i % kRow]) << i;
  }
}

TEST_F(LanesTest, MixWithDataOfTheMainConnection) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  std::vector<std::byte> memory(300);
  const std::uint64_t id = channel_->expect_detached(Destination::flat(memory.data(), 300));
  tell(id, 0, 200);
  say(0, id, 100, 100);
  say(1, id, 0, 100);
  wire::FrameHeader header = frame_of(wire::FrameKind::kHostData, id, 200);
  header.payload_bytes = 100;
  EXPECT_TRUE(main_->send(header, std::string(100, 'x')));
  while (pushes_.delivered.load() != id) ASSERT_FALSE(channel_->lost());
  EXPECT_EQ(pattern(199), memory[199]);
  EXPECT_EQ(std::byte{'x'}, memory[200]);
}

TEST_F(LanesTest, ThrowAwayWhatHasBeenForgotten) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  std::vector<std::byte> memory(100);
  const std::uint64_t id = channel_->expect_detached(Destination::flat(memory.data(), 100));
  channel_->forget(id);
  say(0, id, 0, 100);
  tell(id, 0, 100);
  const std::uint64_t other = channel_->expect_detached(Destination::flat(memory.data(), 50));
  say(0, other, 0, 50);
  tell(other, 0, 50);
  while (pushes_.delivered.load() != other) ASSERT_FALSE(channel_->lost());
  EXPECT_EQ(std::byte{0}, memory[50]);
}

TEST_F(LanesTest, WritesNothingOutsideADeliveryNorTwice) {
  struct Wrong {
    std::uint64_t offset;
    std::size_t size;
  };
  for (const Wrong& wrong : {Wrong{60, 41}, Wrong{UINT64_MAX, 1}, Wrong{100, 1}, Wrong{30, 10},
                             Wrong{39, 20}, Wrong{20, 80}}) {
    open();
    ASSERT_NE(0u, channel_->open_lanes());
    std::vector<std::byte> memory(200, std::byte{1});
    const std::uint64_t id = channel_->expect_detached(Destination::flat(memory.data(), 100));
    say(0, id, 30, 10);
    say(0, id, wrong.offset, wrong.size);
    expect_lost();
    EXPECT_EQ(std::byte{1}, memory[100]);
    TearDown();
    greetings_.clear();
    lanes_.clear();
  }
}

TEST_F(LanesTest, RefuseADeliveryThatNobodyAskedFor) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  say(0, 17, 0, 10);
  expect_lost();
}

TEST_F(LanesTest, RefuseARangeOutOfTurn) {
  for (const auto& [offset, size] :
       {std::pair<std::uint64_t, std::uint64_t>{1, 10}, {0, 101}, {0, UINT64_MAX}, {0, 0}}) {
    open();
    ASSERT_NE(0u, channel_->open_lanes());
    std::vector<std::byte> memory(100);
    const std::uint64_t id = channel_->expect_detached(Destination::flat(memory.data(), 100));
    tell(id, offset, size);
    expect_lost();
    TearDown();
    greetings_.clear();
    lanes_.clear();
  }
}

TEST_F(LanesTest, BringNothingBeforeTheyAreOpened) {
  open();
  std::vector<std::byte> memory(100);
  const std::uint64_t id = channel_->expect_detached(Destination::flat(memory.data(), 100));
  tell(id, 0, 100);
  expect_lost();
}

TEST_F(LanesTest, TakeTheSessionWithThem) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  std::vector<std::byte> memory(100);
  const std::uint64_t id = channel_->expect_detached(Destination::flat(memory.data(), 100));
  tell(id, 0, 100);
  lane(1).hang_up();
  expect_lost();
  EXPECT_EQ(0u, pushes_.delivered.load());
  EXPECT_EQ(LaneSend::kLost, channel_->send_by_lanes(memory, [](const SentBlock&) {}));
}

TEST_F(LanesTest, EndACopyThatIsUnderWayWhenTheSessionIsLost) {
  open();
  ASSERT_NE(0u, channel_->open_lanes());
  const std::vector<std::byte> data(64 * kMiB);
  // Nobody reads the lanes, so the copy stands until this.
  std::thread loser([&] {
    static_cast<void>(lane(0).receive(100));
    main_->hang_up();
  });
  EXPECT_EQ(LaneSend::kLost, channel_->send_by_lanes(data, [](const SentBlock&) {}));
  loser.join();
}

TEST_F(LanesTest, AreDoneWithoutWhereTheyCannotBeHad) {
  refuses_ = true;
  open();
  EXPECT_EQ(0u, channel_->open_lanes());
  EXPECT_EQ(LaneSend::kNone,
            channel_->send_by_lanes(bytes_of("some bytes"), [](const SentBlock&) {}));
  EXPECT_FALSE(channel_->lost());
}

TEST_F(LanesTest, AreNotAskedForWhereTheServerHasNone) {
  open(2, {});
  EXPECT_EQ(0u, channel_->open_lanes());
  EXPECT_TRUE(greetings_.empty());
}

}  // namespace
}  // namespace flyt::rpc
