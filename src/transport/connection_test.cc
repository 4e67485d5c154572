// One suite over all kinds of connection.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "transport/shm.h"
#include "transport/sim.h"
#include "transport/transport.h"

namespace flyt::transport {
namespace {

Instant in_milliseconds(int count) {
  return system_clock().now() + std::chrono::milliseconds(count);
}
Instant soon() { return in_milliseconds(120'000); }

enum class PairKind { kPair, kUnix, kTcp4, kTcp6, kSim, kShm };

Result<ConnectionPair> through_listener(const Url& url) {
  Result<std::unique_ptr<Listener>> listener = listen(url);
  if (!listener) return std::move(listener).error();
  Result<std::unique_ptr<Connection>> client = connect((*listener)->url(), soon());
  if (!client) return std::move(client).error();
  Result<std::unique_ptr<Connection>> server = (*listener)->accept(soon(), nullptr);
  if (!server) return std::move(server).error();
  return ConnectionPair(std::move(*client), std::move(*server));
}

Result<ConnectionPair> shared_pair() {
  Result<ConnectionPair> sockets = connection_pair();
  if (!sockets) return sockets;
  Result<SharedRings> rings = SharedRings::make();
  if (!rings) return std::move(rings).error();
  auto server = offer_rings(std::move(sockets->second), std::move(*rings));
  if (!server) return std::move(server).error();
  auto client = take_rings(std::move(sockets->first), soon());
  if (!client) return std::move(client).error();
  return ConnectionPair(std::move(*client), std::move(*server));
}

Result<ConnectionPair> make_pair(PairKind kind) {
  switch (kind) {
    case PairKind::kPair:
      return connection_pair();
    case PairKind::kUnix:
      return through_listener({Kind::kUnix, "@flyt-test-" + std::to_string(::getpid()), {}, 0});
    case PairKind::kTcp4:
      return through_listener({Kind::kTcp, {}, "127.0.0.1", 0});
    case PairKind::kTcp6:
      return through_listener({Kind::kTcp, {}, "::1", 0});
    case PairKind::kSim:
      return sim_pair({.seed = 3});
    case PairKind::kShm:
      return shared_pair();
  }
  return Error{};
}

std::string name_of(PairKind kind) {
  constexpr const char* kNames[] = {"Pair", "Unix", "Tcp4", "Tcp6", "Sim", "Shm"};
  return kNames[static_cast<std::size_t>(kind)];
}

class ConnectionOver : public ::testing::TestWithParam<PairKind> {
 protected:
  void SetUp() override {
    Result<ConnectionPair> pair = make_pair(GetParam());
    if (!pair && GetParam() == PairKind::kTcp6) GTEST_SKIP() << "no IPv6: " << pair.error().message;
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    first = std::move(pair->first);
    second = std::move(pair->second);
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
  static Result<std::size_t> read_now(Connection& connection) {
    std::array<std::byte, 64> space;
    const MutableBytes into(space);
    return connection.read({&into, 1}, Patience::kNow);
  }

  std::unique_ptr<Connection> first;
  std::unique_ptr<Connection> second;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ConnectionOver,
                         ::testing::Values(PairKind::kPair, PairKind::kUnix, PairKind::kTcp4,
                                           PairKind::kTcp6, PairKind::kSim, PairKind::kShm),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(ConnectionOver, CarriesBytesBothWays) {
  send(*first, bytes_of("question"));
  EXPECT_EQ(receive(*second, 8), "question");
  send(*second, bytes_of("answer"));
  EXPECT_EQ(receive(*first, 6), "answer");
  EXPECT_FALSE(first->peer().empty());
}

TEST_P(ConnectionOver, GathersAndScattersPieces) {
  const std::array<Bytes, 4> out{bytes_of("ab"), Bytes{}, bytes_of("cde"), bytes_of("f")};
  std::string sent;
  while (sent.size() < 6) {
    std::vector<Bytes> rest;
    std::size_t skip = sent.size();
    for (const Bytes& piece : out) {
      const std::size_t part = std::min(skip, piece.size());
      rest.push_back(piece.subspan(part));
      skip -= part;
    }
    const Result<std::size_t> taken = first->write(rest, Patience::kWait);
    ASSERT_TRUE(taken.ok());
    sent.append(*taken, '.');
  }
  std::string a(1, ' '), b(5, ' ');
  std::vector<MutableBytes> into{mutable_bytes_at(a.data(), 1), mutable_bytes_at(b.data(), 5)};
  std::size_t got = 0;
  while (got < 6) {
    const Result<std::size_t> part = second->read(into, Patience::kWait);
    ASSERT_TRUE(part.ok());
    got += *part;
    std::size_t drop = *part;
    for (MutableBytes& piece : into) {
      const std::size_t taken = std::min(drop, piece.size());
      piece = piece.subspan(taken);
      drop -= taken;
    }
  }
  EXPECT_EQ(a + b, "abcdef");
}

TEST_P(ConnectionOver, SaysThatNothingIsThereWithoutWaiting) {
  const Result<std::size_t> got = read_now(*first);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, 0u);
}

TEST_P(ConnectionOver, TakesNoMoreThanThereIsRoomForWithoutWaiting) {
  const std::vector<std::byte> block(64 * kKiB);
  const Bytes bytes(block);
  std::size_t total = 0;
  while (total < 1 * kGiB) {
    const Result<std::size_t> sent = first->write({&bytes, 1}, Patience::kNow);
    ASSERT_TRUE(sent.ok());
    if (*sent == 0) break;
    total += *sent;
  }
  EXPECT_LT(total, 1 * kGiB);
  EXPECT_EQ(first->wait(kWritable, in_milliseconds(1), nullptr), kNothing);
  std::vector<std::byte> sink(1 * kMiB);
  const MutableBytes into(sink);
  for (std::size_t got = 0; got < total;) {
    const Result<std::size_t> part = second->read({&into, 1}, Patience::kWait);
    ASSERT_TRUE(part.ok());
    got += *part;
  }
  EXPECT_EQ(first->wait(kWritable, soon(), nullptr), kWritable);
}

TEST_P(ConnectionOver, WaitsForBytesUntilTheDeadline) {
  EXPECT_EQ(second->wait(kReadable, in_milliseconds(2), nullptr), kNothing);
  EXPECT_EQ(second->wait(kReadable, Instant{}, nullptr), kNothing);
  send(*first, bytes_of("x"));
  EXPECT_EQ(second->wait(kReadable, soon(), nullptr), kReadable);
  EXPECT_EQ(second->wait(kReadable | kWritable, soon(), nullptr), kReadable | kWritable);
}

TEST_P(ConnectionOver, EndsAWaitWhenItIsWokenAndKeepsTheSignalUntilThen) {
  Wakeup wakeup;
  wakeup.signal();
  wakeup.signal();
  EXPECT_EQ(first->wait(kReadable, soon(), &wakeup), kWoken);
  EXPECT_EQ(first->wait(kReadable, in_milliseconds(1), &wakeup), kNothing);
  std::thread other([&] { wakeup.signal(); });
  EXPECT_EQ(first->wait(kReadable, soon(), &wakeup), kWoken);
  other.join();
}

TEST_P(ConnectionOver, TellsThatThePeerIsGoneButFirstItsLastBytes) {
  send(*first, bytes_of("last words"));
  first.reset();
  EXPECT_EQ(second->wait(kHangup, soon(), nullptr), kHangup);
  EXPECT_EQ(receive(*second, 10), "last words");
  const Result<std::size_t> got = read_now(*second);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kLost);
  EXPECT_EQ(second->wait(kReadable, soon(), nullptr), kReadable);
}

TEST_P(ConnectionOver, DoesNotCallALivingPeerGone) {
  send(*first, bytes_of("still here"));
  EXPECT_EQ(second->wait(kHangup, in_milliseconds(2), nullptr), kNothing);
}

TEST_P(ConnectionOver, ShutDownEndsAReadOfAnotherThread) {
  std::thread other([&] {
    std::array<std::byte, 8> space;
    const MutableBytes into(space);
    const Result<std::size_t> got = first->read({&into, 1}, Patience::kWait);
    EXPECT_FALSE(got.ok());
  });
  first->shut_down();
  other.join();
  const Bytes bytes = bytes_of("x");
  EXPECT_FALSE(first->write({&bytes, 1}, Patience::kNow).ok());
  EXPECT_EQ(second->wait(kHangup, soon(), nullptr), kHangup);
}

TEST_P(ConnectionOver, RefusesMemoryThatIsNotThereAndLosesNoBytes) {
  if (GetParam() == PairKind::kShm) GTEST_SKIP() << "no system call, no check";
  send(*first, bytes_of("abc"));
  ASSERT_EQ(second->wait(kReadable, soon(), nullptr), kReadable);
  const MutableBytes nowhere = mutable_bytes_at(pointer_at(64), 3);
  const Result<std::size_t> got = second->read({&nowhere, 1}, Patience::kWait);
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(receive(*second, 3), "abc");
}

TEST_P(ConnectionOver, AnAbandonedEndLeavesTheConnectionToOthersThatHoldIt) {
  if (GetParam() == PairKind::kShm) GTEST_SKIP() << "its socket alone is no connection";
  const int copy = ::dup(first->fd());
  first->abandon();
  EXPECT_FALSE(read_now(*first).ok());
  EXPECT_EQ(second->wait(kHangup, in_milliseconds(2), nullptr), kNothing);
  Result<std::unique_ptr<Connection>> heir = adopt(Fd(copy));
  ASSERT_TRUE(heir.ok());
  send(**heir, bytes_of("x"));
  EXPECT_EQ(receive(*second, 1), "x");
}

}  // namespace
}  // namespace flyt::transport
