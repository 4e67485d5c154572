#include "transport/delayed.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "transport/delay_line.h"

namespace flyt::transport {
namespace {

constexpr Duration kDelay = std::chrono::milliseconds(20);

Instant soon() { return system_clock().now() + std::chrono::seconds(60); }

TEST(DelayLine, LetsBytesOutInOrderAndNotBeforeTheyAreDue) {
  DelayLine line(Duration(100));
  line.push(bytes_of("ab"), Instant{1000});
  line.push(bytes_of("c"), Instant{1050});
  line.end(Instant{1060});
  EXPECT_EQ(line.next_due(), Instant{1100});
  EXPECT_TRUE(line.due(Instant{1099}).empty());
  EXPECT_EQ(text_of(line.due(Instant{1200})), "ab");
  line.take(1);
  EXPECT_EQ(text_of(line.due(Instant{1200})), "b");
  line.take(1);
  EXPECT_TRUE(line.due(Instant{1149}).empty());
  line.take(line.due(Instant{1150}).size());
  EXPECT_FALSE(line.over(Instant{1159}));
  EXPECT_TRUE(line.over(Instant{1160}));
  EXPECT_FALSE(line.has_room());
}

TEST(DelayLine, HoldsNoMoreThanItsLimit) {
  DelayLine line(Duration(1));
  const std::vector<std::byte> part(DelayLine::kBytesMax / 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(line.has_room());
    line.push(part, Instant{});
  }
  EXPECT_FALSE(line.has_room());
  line.take(line.due(Instant{1}).size());
  EXPECT_TRUE(line.has_room());
}

class Delayed : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Listener>> listener =
        listen({Kind::kUnix, "@flyt-delayed-test-" + std::to_string(::getpid()), {}, 0});
    ASSERT_TRUE(listener.ok());
    Url url = (*listener)->url();
    url.delay = kDelay;
    Result<std::unique_ptr<Connection>> one = connect(url, soon());
    ASSERT_TRUE(one.ok()) << one.error().message;
    near = std::move(*one);
    Result<std::unique_ptr<Connection>> other = (*listener)->accept(soon(), nullptr);
    ASSERT_TRUE(other.ok());
    far = std::move(*other);
  }

  static void send(Connection& connection, Bytes bytes) {
    while (!bytes.empty()) {
      const Result<std::size_t> sent = connection.write({&bytes, 1}, Patience::kWait);
      ASSERT_TRUE(sent.ok()) << sent.error().message;
      bytes = bytes.subspan(*sent);
    }
  }
  static std::string receive(Connection& connection, std::size_t size) {
    std::string text(size, '\0');
    MutableBytes rest = mutable_bytes_at(text.data(), size);
    while (!rest.empty()) {
      const Result<std::size_t> got = connection.read({&rest, 1}, Patience::kWait);
      if (!got) return "error: " + got.error().message;
      rest = rest.subspan(*got);
    }
    return text;
  }

  std::unique_ptr<Connection> near;
  std::unique_ptr<Connection> far;
};

TEST_F(Delayed, ARoundTripTakesBothDelays) {
  const Instant start = system_clock().now();
  send(*near, bytes_of("question"));
  EXPECT_EQ(receive(*far, 8), "question");
  EXPECT_GE(system_clock().now() - start, kDelay);
  send(*far, bytes_of("answer"));
  EXPECT_EQ(receive(*near, 6), "answer");
  EXPECT_GE(system_clock().now() - start, 2 * kDelay);
}

// Were each to wait for its delay, they would take far longer than the limit here.
TEST_F(Delayed, AThousandSmallWritesAreUnderWayTogether) {
  constexpr int kWrites = 1000;
  const Instant start = system_clock().now();
  for (int i = 0; i < kWrites; ++i) send(*near, bytes_of("posted"));
  EXPECT_EQ(receive(*far, kWrites * 6).substr(kWrites * 6 - 6), "posted");
  const Duration took = system_clock().now() - start;
  EXPECT_GE(took, kDelay);
  EXPECT_LT(took, kWrites * kDelay / 2);
}

TEST_F(Delayed, KeepsOrderAndEveryByteOfMuchData) {
  std::string sent(8 * kMiB, '\0');
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 2654435761U >> 24);
  std::thread writer([&] { send(*near, bytes_of(sent)); });
  EXPECT_TRUE(receive(*far, sent.size()) == sent);
  writer.join();
  std::thread other([&] { send(*far, bytes_of(sent)); });
  EXPECT_TRUE(receive(*near, sent.size()) == sent);
  other.join();
}

TEST_F(Delayed, TheLastBytesArriveBeforeTheEnd) {
  send(*near, bytes_of("goodbye"));
  near.reset();
  EXPECT_EQ(receive(*far, 7), "goodbye");
  std::array<std::byte, 8> space;
  const MutableBytes into(space);
  EXPECT_FALSE(far->read({&into, 1}, Patience::kWait).ok());
}

TEST_F(Delayed, APeerThatIsGoneIsNoticedAfterItsLastBytes) {
  send(*far, bytes_of("last words"));
  far.reset();
  EXPECT_EQ(near->wait(kHangup, soon(), nullptr), kHangup);
  EXPECT_EQ(receive(*near, 10), "last words");
  std::array<std::byte, 8> space;
  const MutableBytes into(space);
  EXPECT_FALSE(near->read({&into, 1}, Patience::kWait).ok());
}

TEST_F(Delayed, ShutDownEndsAReadOfAnotherThread) {
  std::thread other([&] {
    std::array<std::byte, 8> space;
    const MutableBytes into(space);
    EXPECT_FALSE(near->read({&into, 1}, Patience::kWait).ok());
  });
  near->shut_down();
  other.join();
  EXPECT_EQ(far->wait(kHangup, soon(), nullptr), kHangup);
}

// Nobody reads at the far end, so that both directions are full, and the end comes all the same.
TEST_F(Delayed, EndsThoughThePeerTakesNothing) {
  const std::vector<std::byte> block(1 * kMiB);
  for (int i = 0; i < 8; ++i) {
    const Bytes bytes(block);
    const Result<std::size_t> sent = near->write({&bytes, 1}, Patience::kNow);
    ASSERT_TRUE(sent.ok());
  }
  near.reset();
  EXPECT_EQ(far->wait(kHangup, soon(), nullptr), kHangup);
}

TEST(DelayedLoss, IsToldOfThePeerAndNotOfThisProcess) {
  Result<std::unique_ptr<Listener>> listener = listen(*parse_url("tcp://127.0.0.1:0"));
  ASSERT_TRUE(listener.ok());
  Url url = (*listener)->url();
  url.delay = kDelay;
  Result<std::unique_ptr<Connection>> near = connect(url, soon());
  ASSERT_TRUE(near.ok()) << near.error().message;
  ASSERT_TRUE((*listener)->accept(soon(), nullptr).ok());  // And closed.
  std::array<std::byte, 8> space;
  const MutableBytes into(space);
  const Result<std::size_t> got = (*near)->read({&into, 1}, Patience::kWait);
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.error().message.find("tcp://127.0.0.1:"), std::string::npos) << got.error().message;
}

TEST(DelayedListener, IsRefused) {
  const Result<Url> url = parse_url("tcp://127.0.0.1:0?delay=1ms");
  ASSERT_TRUE(url.ok());
  EXPECT_FALSE(listen(*url).ok());
}

}  // namespace
}  // namespace flyt::transport
