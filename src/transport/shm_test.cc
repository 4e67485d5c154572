// What only shared memory can suffer: a peer that writes anything anywhere. What it has in common
// with other connections is tested in connection_test.cc.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "base/random.h"
#include "transport/shm.h"
#include "transport/shm_ring.h"
#include "transport/socket.h"

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

TEST(ShmRing, AReaderThatGoesBackIsNoticedByTheWriter) {
  Ring ring;
  put(ring, std::string(kSize, 'x'));
  take(ring, 8);
  EXPECT_EQ(put(ring, std::string(kSize, 'y')), 8u);
  take(ring, 8);
  ring.control.tail.store(7);
  EXPECT_EQ(ring.writer.state(), RingState::kCorrupt);
  EXPECT_EQ(put(ring, "z"), std::nullopt);
}

// As with a thread that waits while others write: what it calls impossible ends the session.
TEST(ShmRing, WhoLooksWhileOthersWriteAndReadFindsNothingImpossible) {
  Ring ring;
  std::atomic<bool> done{false};
  std::atomic<int> looks{0};
  std::thread looker([&] {
    while (!done.load()) {
      EXPECT_NE(ring.writer.state(), RingState::kCorrupt);
      looks.fetch_add(1);
    }
  });
  std::thread reader([&] {
    while (!done.load()) take(ring, kSize);
  });
  while (looks.load() < 200000) put(ring, std::string(kSize, 'x'));
  done.store(true);
  looker.join();
  reader.join();
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

// Client and server, and in the middle the test, which has all that was handed over as well.
class ShmBells : public ::testing::TestWithParam<bool> {
 protected:
  enum Bell : std::uint8_t { kServerReads, kServerWrites, kClientReads, kClientWrites, kBells };

  void SetUp() override {
    Half near = make_half();
    Half far = make_half();
    auto rings = SharedRings::make();
    ASSERT_TRUE(rings.ok()) << rings.error().message;
    const int from = near.client->fd();
    auto offered = offer_rings(std::move(near.server), std::move(*rings));
    ASSERT_TRUE(offered.ok());
    for (int i = 0; i < 2 + kBells; ++i) {
      auto received = receive_fd(from, soon());
      ASSERT_TRUE(received.ok());
      ASSERT_TRUE(send_fd(far.server->fd(), received->fd.get(), received->text).ok());
      if (i == 0) memory_ = std::move(received->fd);
      if (i >= 2) bells_[static_cast<std::size_t>(i - 2)] = std::move(received->fd);
    }
    auto taken = take_rings(std::move(far.client), soon());
    ASSERT_TRUE(taken.ok()) << taken.error().message;
    server_ = std::move(*offered);
    client_ = std::move(*taken);
    middle_ = {std::move(near.client), std::move(far.server)};
  }
  bool client_suffers() const { return GetParam(); }
  Connection& victim() { return client_suffers() ? *client_ : *server_; }
  const Fd& bell(Bell of_server, Bell of_client, bool own) const {
    return bells_[own == client_suffers() ? of_client : of_server];
  }
  static void may_wait(const Fd& bell, bool wait) { set_blocking(bell.get(), wait); }
  // The control of the ring into which the victim writes.
  off_t control() const { return client_suffers() ? 0 : 256; }
  // The word by which who reads what the victim writes says that he sleeps.
  void say_that_the_reader_sleeps() {
    const std::uint32_t waits = 1;
    ASSERT_EQ(::pwrite(memory_.get(), &waits, sizeof waits, control() + 128), 4);
  }
  // Whether it comes to an end by itself. `help` makes it, after a while.
  static bool ends(const std::function<void()>& call, const std::function<void()>& help) {
    std::atomic<bool> ended{false};
    std::thread thread([&] {
      call();
      ended.store(true);
    });
    const Instant last = system_clock().now() + std::chrono::seconds(5);
    while (!ended.load() && system_clock().now() < last) std::this_thread::yield();
    const bool by_itself = ended.load();
    while (!ended.load()) help();
    thread.join();
    return by_itself;
  }

  Fd memory_;
  std::array<Fd, kBells> bells_;
  std::unique_ptr<Connection> server_;
  std::unique_ptr<Connection> client_;
  Half middle_;  // So that neither thinks that the other has gone.
};

TEST_P(ShmBells, ThatTheOtherSideHasFilledDoNotMakeAWriterWait) {
  const Fd& full = bell(kServerReads, kClientReads, false);
  may_wait(full, false);
  const std::uint64_t much = UINT64_MAX - 1;
  while (::write(full.get(), &much, sizeof much) > 0) {
  }
  may_wait(full, true);
  say_that_the_reader_sleeps();
  const Bytes bytes = bytes_of("x");
  EXPECT_TRUE(ends(
      [&] {
        EXPECT_TRUE(victim().write({&bytes, 1}, Patience::kNow).ok());
      },
      [&] {
        std::uint64_t some = 0;
        [[maybe_unused]] const auto got = ::read(full.get(), &some, sizeof some);
      }));
}

TEST_P(ShmBells, ThatTheOtherSideHasSilencedDoNotMakeAReaderWait) {
  const Fd& own = bell(kServerReads, kClientReads, true);
  const std::uint64_t once = 1;
  ASSERT_GT(::write(own.get(), &once, sizeof once), 0);
  Wakeup wakeup;
  wakeup.signal();
  ASSERT_EQ(victim().wait(kReadable, soon(), &wakeup), kWoken);
  may_wait(own, false);
  std::uint64_t none = 0;
  while (::read(own.get(), &none, sizeof none) > 0) {
  }
  may_wait(own, true);
  EXPECT_TRUE(
      ends([&] { EXPECT_EQ(victim().wait(kReadable, Instant{1}, nullptr), kNothing); },
           [&] { [[maybe_unused]] const auto put = ::write(own.get(), &once, sizeof once); }));
}

TEST_P(ShmBells, ThatRingForNothingDoNotOutlastADeadline) {
  const Fd& own = bell(kServerReads, kClientReads, true);
  ASSERT_GE(::fcntl(own.get(), F_SETPIPE_SZ, 1 << 20), 1 << 20);
  may_wait(own, false);
  std::atomic<bool> stop{false};
  std::thread ringer([&] {
    static const std::array<char, 1 << 16> rings{};
    while (!stop.load()) {
      [[maybe_unused]] const auto put = ::write(own.get(), rings.data(), rings.size());
    }
  });
  EXPECT_TRUE(ends(
      [&] {
        const Instant deadline = system_clock().now() + std::chrono::milliseconds(50);
        EXPECT_EQ(victim().wait(kReadable, deadline, nullptr), kNothing);
      },
      [&] { stop.store(true); }));
  stop.store(true);
  ringer.join();
}

TEST_P(ShmBells, AreTheLastFilesThatAClientTakes) {
  Half pair = make_half();
  refuse_files(pair.client->fd());
  const bool refusable = !send_fd(pair.server->fd(), memory_.get(), "a").ok();
  EXPECT_EQ(refusable, !send_fd(middle_.server->fd(), memory_.get(), "a").ok());
}

INSTANTIATE_TEST_SUITE_P(OfClientAndServer, ShmBells, ::testing::Bool());

// What the other side says of how far it is.
class ShmPositions : public ShmBells {
 protected:
  off_t tail_of_what_the_victim_writes() const { return control() + 64; }
  off_t head_of_what_the_victim_reads() const { return 256 - control(); }
  void fill() {
    const std::string much(3 * kMiB, 'x');
    const Bytes bytes = bytes_of(much);
    const auto sent = victim().write({&bytes, 1}, Patience::kNow);
    ASSERT_TRUE(sent.ok());
    ASSERT_EQ(*sent, 2 * kMiB);
  }
  void store(off_t position, std::uint64_t value) {
    ASSERT_EQ(::pwrite(memory_.get(), &value, sizeof value, position), 8);
  }
  // The victim waits for what there is to read, which nobody writes.
  void expect_the_end() {
    EXPECT_EQ(victim().wait(kReadable, soon(), nullptr), kReadable);
    std::array<std::byte, 8> out{};
    const MutableBytes into(out);
    const auto got = victim().read({&into, 1}, Patience::kNow);
    ASSERT_FALSE(got.ok());
    EXPECT_NE(got.error().message.find("spoilt"), std::string::npos) << got.error().message;
    const Bytes bytes = bytes_of("x");
    EXPECT_FALSE(victim().write({&bytes, 1}, Patience::kNow).ok());
  }
};

TEST_P(ShmPositions, OfAReaderWhoCannotBeThereAreTheEnd) {
  store(tail_of_what_the_victim_writes(), std::uint64_t{1} << 40);
  expect_the_end();
}

TEST_P(ShmPositions, OfAReaderWhoWentBackAreTheEnd) {
  fill();
  store(tail_of_what_the_victim_writes(), 2 * kMiB);
  fill();
  store(tail_of_what_the_victim_writes(), 2 * kMiB - 1);
  expect_the_end();
}

TEST_P(ShmPositions, OfAWriterWhoCannotBeThereAreTheEnd) {
  store(head_of_what_the_victim_reads(), std::uint64_t{1} << 40);
  expect_the_end();
}

TEST_P(ShmPositions, OfAWriterWhoIsBehindAreTheEnd) {
  store(head_of_what_the_victim_reads(), UINT64_MAX);
  expect_the_end();
}

INSTANTIATE_TEST_SUITE_P(OfClientAndServer, ShmPositions, ::testing::Bool());

TEST(ShmHandover, WhatIsNoBellIsRefused) {
  for (const bool event : {true, false}) {
    Half half = make_half();
    auto rings = SharedRings::make();
    Half near = make_half();
    const int from = near.client->fd();
    auto offered = offer_rings(std::move(near.server), std::move(*rings));
    ASSERT_TRUE(offered.ok());
    for (int i = 0; i < 6; ++i) {
      auto received = receive_fd(from, soon());
      ASSERT_TRUE(received.ok());
      if (i == 4) received->fd = Fd(event ? ::eventfd(0, EFD_CLOEXEC) : ::dup(from));
      ASSERT_TRUE(send_fd(half.server->fd(), received->fd.get(), received->text).ok());
    }
    const auto taken = take_rings(std::move(half.client), soon());
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, ErrorCode::kInvalid);
  }
}

}  // namespace
}  // namespace flyt::transport
