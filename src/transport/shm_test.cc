// What only shared memory can suffer: a peer that writes anything anywhere. What it has in common
// with other connections is tested in connection_test.cc.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "base/random.h"
#include "transport/shm.h"
#include "transport/shm_ring.h"

namespace flyt::transport {
namespace {

constexpr std::size_t kSize = 64;

struct Ring {
  RingControl control{};
  std::array<std::byte, kSize> data{};
  RingWriter writer{control, data};
  RingReader reader{control, data};
};

std::optional<std::size_t> put(Ring& ring, std::string_view text) {
  const Bytes bytes = bytes_of(text);
  return ring.writer.write({&bytes, 1});
}
std::string take(Ring& ring, std::size_t most) {
  std::string text(most, '\0');
  const MutableBytes into = mutable_bytes_at(text.data(), text.size());
  text.resize(ring.reader.read({&into, 1}).value_or(0));
  return text;
}

TEST(ShmRing, BytesComeOutInOrderAcrossItsEnd) {
  Ring ring;
  for (int i = 0; i < 100; ++i) {
    const std::string text = "message " + std::to_string(i) + " of many";
    ASSERT_EQ(put(ring, text), text.size());
    ASSERT_EQ(take(ring, kSize), text);
  }
}

TEST(ShmRing, TakesWhatThereIsRoomForAndNoMore) {
  Ring ring;
  EXPECT_EQ(put(ring, std::string(100, 'x')), kSize);
  EXPECT_EQ(ring.writer.state(), RingState::kStuck);
  EXPECT_EQ(put(ring, "y"), 0u);
  EXPECT_EQ(take(ring, 10), std::string(10, 'x'));
  EXPECT_EQ(put(ring, std::string(100, 'y')), 10u);
}

TEST(ShmRing, AnImpossiblePositionOfTheWriterIsNoticedByTheReader) {
  Ring ring;
  put(ring, "abc");
  for (const std::uint64_t head : {std::uint64_t{kSize + 1}, UINT64_MAX, std::uint64_t{1} << 40}) {
    ring.control.head.store(head);
    EXPECT_EQ(ring.reader.state(), RingState::kCorrupt);
    std::array<std::byte, 8> out{};
    const MutableBytes into(out);
    EXPECT_EQ(ring.reader.read({&into, 1}), std::nullopt);
  }
}

TEST(ShmRing, APositionThatGoesBackIsNoticedByTheReader) {
  Ring ring;
  put(ring, "abc");
  take(ring, 3);
  ring.control.head.store(1);
  EXPECT_EQ(ring.reader.state(), RingState::kCorrupt);
}

TEST(ShmRing, AnImpossiblePositionOfTheReaderIsNoticedByTheWriter) {
  Ring ring;
  put(ring, "abc");
  for (const std::uint64_t tail : {std::uint64_t{4}, std::uint64_t{1} << 40}) {
    ring.control.tail.store(tail);
    EXPECT_EQ(ring.writer.state(), RingState::kCorrupt);
    // When it has to look where the reader is.
    EXPECT_EQ(put(ring, std::string(kSize, 'd')), std::nullopt);
  }
}

TEST(ShmRing, ASleepingReaderIsOwedOneBell) {
  Ring ring;
  EXPECT_FALSE(ring.writer.owes_bell());
  ring.reader.ask_for_bell();
  put(ring, "a");
  EXPECT_TRUE(ring.writer.owes_bell());
  put(ring, "b");
  EXPECT_FALSE(ring.writer.owes_bell());
}

TEST(ShmRing, ASleepingWriterIsOwedABellOnceThereIsRoomWorthIt) {
  Ring ring;
  put(ring, std::string(kSize, 'x'));
  ring.writer.ask_for_bell();
  take(ring, 1);
  EXPECT_FALSE(ring.reader.owes_bell());
  take(ring, kSize / 4);
  EXPECT_TRUE(ring.reader.owes_bell());
  EXPECT_FALSE(ring.reader.owes_bell());
}

TEST(ShmRing, RubbishInTheControlsNeverMovesBytesOutsideOfTheRing) {
  const std::uint64_t seed = 20261120;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  // Bytes around the ring that nobody may touch; the sanitizers watch the rest.
  for (int round = 0; round < 2000; ++round) {
    auto ring = std::make_unique<Ring>();
    for (int step = 0; step < 8; ++step) {
      switch (random.next() % 4) {
        case 0:
          ring->control.head.store(random.next() >> (random.next() % 64));
          break;
        case 1:
          ring->control.tail.store(random.next() >> (random.next() % 64));
          break;
        case 2:
          put(*ring, std::string(random.next() % 100, 'x'));
          break;
        default:
          take(*ring, random.next() % 100);
          break;
      }
    }
  }
}

// Two ends of which the test holds one as a bare socket: a hostile server, seen by a client.
struct Half {
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};
Half make_half() {
  Result<ConnectionPair> pair = connection_pair();
  FLYT_ASSERT(pair.ok());
  return {std::move(pair->first), std::move(pair->second)};
}
Instant soon() { return system_clock().now() + std::chrono::seconds(20); }

TEST(ShmHandover, MemoryThatCouldShrinkIsRefused) {
  Half half = make_half();
  const Fd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 4096 + 4 * kMiB), 0);
  ASSERT_TRUE(send_fd(half.server->fd(), memory.get(), "rings").ok());
  ASSERT_TRUE(send_fd(half.server->fd(), memory.get(), "host").ok());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(send_fd(half.server->fd(), memory.get(), "bell").ok());
  }
  const auto taken = take_rings(std::move(half.client), soon());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kInvalid);
}

TEST(ShmHandover, AnotherLabelIsRefused) {
  Half half = make_half();
  const Fd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(send_fd(half.server->fd(), memory.get(), "bell").ok());
  EXPECT_FALSE(take_rings(std::move(half.client), soon()).ok());
}

TEST(ShmHandover, AServerThatGoesAwayHalfWayIsLost) {
  Half half = make_half();
  const Fd memory(::memfd_create("test", MFD_CLOEXEC));
  ASSERT_TRUE(send_fd(half.server->fd(), memory.get(), "rings").ok());
  half.server.reset();
  const auto taken = take_rings(std::move(half.client), soon());
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kLost);
}

TEST(ShmHandover, AServerThatSendsNothingIsNotWaitedForForEver) {
  Half half = make_half();
  const auto taken = take_rings(std::move(half.client), Instant{1});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace flyt::transport
