// Blocks of data over one connection, right ones and others.
#include "rpc/lane_stream.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <thread>

#include "base/random.h"
#include "rpc/testing/raw_peer.h"

namespace flyt::rpc {
namespace {

using wire::LaneBlock;
using wire::LanePacking;

std::vector<std::byte> noise(std::size_t size) {
  Random random(7);
  std::vector<std::byte> data(size);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
  return data;
}

class LaneStream : public ::testing::Test {
 protected:
  LaneStream() {
    auto pair = transport::connection_pair();
    FLYT_ASSERT(pair.ok());
    near_ = std::move(pair->first);
    peer_ = std::make_unique<testing::RawPeer>(std::move(pair->second));
  }
  // What a reader makes of a block that a writer sent; `sent` gets its head.
  Result<std::vector<std::byte>> carried(Bytes data, LanePacking packing, LaneBlock& sent) {
    std::thread writing([&] {
      LaneWriter writer(*near_, system_clock(), packing);
      EXPECT_TRUE(writer.write(3, 5, data).ok());
    });
    LaneReader reader(peer_->connection());
    Result<LaneBlock> block = reader.next();
    std::vector<std::byte> got(block ? block->bytes : 0);
    const Status read = block ? reader.read(*block, got) : Status(block.error());
    writing.join();
    if (!read) return read.error();
    sent = *block;
    return got;
  }
  bool say(const LaneBlock& block, Bytes data = {}) {
    std::array<std::byte, wire::kLaneBlockHeaderBytes> bytes;
    Writer writer(bytes);
    wire::encode(block, writer);
    return peer_->send(bytes) && peer_->send(data);
  }

  std::unique_ptr<transport::Connection> near_;
  std::unique_ptr<testing::RawPeer> peer_;
};

TEST_F(LaneStream, CarriesABlockAsItIs) {
  const auto data = noise(wire::kLaneBlockBytesMax);
  LaneBlock block;
  const auto got = carried(data, LanePacking::kOff, block);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(*got, data);
  EXPECT_FALSE(block.packed());
  EXPECT_EQ(block.name, 3u);
  EXPECT_EQ(block.offset, 5u);
}

TEST_F(LaneStream, PacksWhatBecomesSmaller) {
  const std::vector<std::byte> data(300'000, std::byte{42});
  LaneBlock block;
  const auto got = carried(data, LanePacking::kOn, block);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(*got, data);
  EXPECT_LT(block.sent_bytes, 1000u);
}

TEST_F(LaneStream, DoesNotPackWhatHardlyBecomesSmaller) {
  const auto data = noise(300'000);
  LaneBlock block;
  const auto got = carried(data, LanePacking::kOn, block);
  ASSERT_TRUE(got.ok()) << got.error().message;
  EXPECT_EQ(*got, data);
  EXPECT_FALSE(block.packed());
}

TEST_F(LaneStream, RefusesImpossibleHeads) {
  for (const LaneBlock& block :
       {LaneBlock{0, 0}, LaneBlock{0, 8}, LaneBlock{9, 8},
        LaneBlock{wire::kLaneBlockBytesMax + 1, wire::kLaneBlockBytesMax + 1},
        LaneBlock{8, wire::kLaneBlockBytesMax + 1}}) {
    ASSERT_TRUE(say(block));
    const auto got = LaneReader(*near_).next();
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, ErrorCode::kInvalid);
  }
}

TEST_F(LaneStream, RefusesAFrameThatUnpacksToAnotherSize) {
  const std::vector<std::byte> zeros(4 * kMiB);
  std::vector<std::byte> bomb(ZSTD_compressBound(zeros.size()));
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 1));
  const std::vector<std::byte> few(bomb.size() + 100);
  std::vector<std::byte> little(ZSTD_compressBound(few.size()));
  little.resize(ZSTD_compress(little.data(), little.size(), few.data(), few.size(), 1));
  for (const std::vector<std::byte>& packed : {bomb, little}) {
    const LaneBlock block{static_cast<std::uint32_t>(packed.size()), 100'000};
    ASSERT_TRUE(say(block, packed));
    LaneReader reader(*near_);
    std::vector<std::byte> into(block.bytes);
    ASSERT_TRUE(reader.next().ok());
    EXPECT_EQ(reader.read(block, into).error().code, ErrorCode::kInvalid);
  }
}

TEST_F(LaneStream, TellsThatThePeerIsGone) {
  ASSERT_TRUE(say({100, 100}, Bytes(noise(50))));
  LaneReader reader(*near_);
  const auto block = reader.next();
  ASSERT_TRUE(block.ok());
  peer_->hang_up();
  std::vector<std::byte> into(100);
  EXPECT_EQ(reader.read(*block, into).error().code, ErrorCode::kLost);
}

TEST(PackingChoice, IsMadeByTheRateOfTheLink) {
  PackingChoice choice(LanePacking::kAuto);
  EXPECT_FALSE(choice.try_now());
  // 4 MiB in a millisecond: 4 GB/s.
  choice.wrote(PackingChoice::kRateBytes, std::chrono::milliseconds(1));
  EXPECT_FALSE(choice.try_now());
  choice.wrote(PackingChoice::kRateBytes, std::chrono::milliseconds(40));
  EXPECT_TRUE(choice.try_now());
  choice.wrote(PackingChoice::kRateBytes, std::chrono::milliseconds(1));
  EXPECT_FALSE(choice.try_now());
}

TEST(PackingChoice, RestsAfterATryInVain) {
  PackingChoice choice(LanePacking::kAuto);
  choice.wrote(PackingChoice::kRateBytes, std::chrono::milliseconds(40));
  ASSERT_TRUE(choice.try_now());
  choice.saved_nothing();
  for (int i = 0; i < PackingChoice::kBlocksOfRest; ++i) EXPECT_FALSE(choice.try_now());
  EXPECT_TRUE(choice.try_now());
}

}  // namespace
}  // namespace flyt::rpc
