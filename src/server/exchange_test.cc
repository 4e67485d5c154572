#include "server/exchange.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>  // lint: allow(sockets): what a session says that is not as it should be
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace flyt::server {
namespace {

class ExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override { start(0); }
  void start(std::size_t files_max) {
    auto door = make_door();
    ASSERT_TRUE(door.ok());
    outside_ = std::move(door->outside);
    keeper_ = std::thread([inside = std::move(door->inside), files_max]() mutable {
      run_exchange(std::move(inside), files_max);
    });
  }
  void TearDown() override {
    outside_.close();
    if (keeper_.joinable()) keeper_.join();
  }
  int door() const { return outside_.get(); }

  static SharedObject event(std::uint8_t mark) {
    SharedObject object{.kind = SharedKind::kEvent};
    object.facts[0] = std::byte{mark};
    return object;
  }
  static SharedObject memory(const char* text) {
    SharedObject object;
    object.file = Fd(::memfd_create("exchange-test", MFD_CLOEXEC));
    EXPECT_EQ(static_cast<ssize_t>(std::strlen(text)),
              ::pwrite(object.file.get(), text, std::strlen(text), 0));
    return object;
  }
  static std::string text_of(const Fd& file) {
    char text[16] = {};
    EXPECT_LT(0, ::pread(file.get(), text, sizeof text - 1, 0));
    return text;
  }

 private:
  Fd outside_;
  std::thread keeper_;
};

TEST_F(ExchangeTest, HandsFilesAndFactsToSessionsOfTheSameUser) {
  Exchange giver(door(), 7);
  Exchange taker(door(), 7);
  const auto file = giver.share(memory("hello"));
  const auto fact = giver.share(event(42));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(fact.ok());
  EXPECT_NE(*file, *fact);
  const auto found = taker.find(*file, SharedKind::kMemory);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ("hello", text_of(found->file));
  const auto other = taker.find(*fact, SharedKind::kEvent);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(std::byte{42}, other->facts[0]);
}

TEST_F(ExchangeTest, ShowsNothingToOtherUsers) {
  Exchange giver(door(), 7);
  Exchange stranger(door(), 8);
  const auto token = giver.share(event(1));
  ASSERT_TRUE(token.ok());
  EXPECT_FALSE(stranger.find(*token, SharedKind::kEvent).ok());
  stranger.withdraw(*token);
  EXPECT_TRUE(giver.find(*token, SharedKind::kEvent).ok());
}

TEST_F(ExchangeTest, KnowsNoForgedTokenAndNoOtherKind) {
  Exchange giver(door(), 7);
  const auto token = giver.share(event(1));
  ASSERT_TRUE(token.ok());
  EXPECT_FALSE(giver.find(*token, SharedKind::kMemory).ok());
  EXPECT_FALSE(giver.find(Token{}, SharedKind::kEvent).ok());
  for (std::size_t i = 0; i < token->size(); ++i) {
    Token forged = *token;
    forged[i] ^= std::byte{1};
    EXPECT_FALSE(giver.find(forged, SharedKind::kEvent).ok()) << i;
  }
}

TEST_F(ExchangeTest, ForgetsWhatIsWithdrawnAndWhatASessionLeaves) {
  Exchange taker(door(), 7);
  std::optional<Exchange> giver(std::in_place, door(), 7);
  const auto first = giver->share(memory("first"));
  const auto second = giver->share(memory("second"));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(second.ok());
  const auto held = taker.find(*second, SharedKind::kMemory);
  ASSERT_TRUE(held.ok());
  taker.withdraw(*first);  // Not its own.
  EXPECT_TRUE(taker.find(*first, SharedKind::kMemory).ok());
  giver->withdraw(*first);
  EXPECT_FALSE(taker.find(*first, SharedKind::kMemory).ok());
  giver.reset();
  // The exchange may see the question before the end of the session that it asks about.
  while (taker.find(*second, SharedKind::kMemory).ok()) std::this_thread::yield();
  EXPECT_EQ("second", text_of(held->file));
}

TEST_F(ExchangeTest, TakesOnlySoMuchFromOneSession) {
  Exchange giver(door(), 7);
  for (std::size_t i = 0; i < Exchange::kObjectsMax; ++i) {
    ASSERT_TRUE(giver.share(event(0)).ok()) << i;
  }
  EXPECT_FALSE(giver.share(event(0)).ok());
  Exchange other(door(), 7);
  EXPECT_TRUE(other.share(event(0)).ok());
}

// One in a process that may have few files open.
class SmallExchangeTest : public ExchangeTest {
 protected:
  static constexpr std::size_t kFilesMax = 256;
  void SetUp() override { start(kFilesMax); }
};

TEST_F(SmallExchangeTest, LeavesOneSessionNoMoreThanTheOthers) {
  std::vector<std::unique_ptr<Exchange>> sessions;
  std::vector<std::size_t> shared;
  for (int i = 0; i < 3; ++i) {
    sessions.push_back(std::make_unique<Exchange>(door(), 7));
    std::size_t objects = 0;
    while (objects < kFilesMax && sessions.back()->share(event(0)).ok()) ++objects;
    shared.push_back(objects);
  }
  EXPECT_GE(shared[0], kFilesMax / 4);
  EXPECT_LE(shared[0], kFilesMax / 2);
  EXPECT_GE(shared[1], shared[0] / 3);
  EXPECT_GE(shared[2], shared[1] / 3);
}

// A session that says anything at all.
class HostileExchangeTest : public ExchangeTest {
 protected:
  static constexpr std::uint32_t kHello = 1;
  static constexpr std::uint32_t kShare = 2;
  static constexpr std::uint32_t kFind = 3;
  static constexpr std::size_t kMessageBytes = 128;
  static constexpr timeval kLong{2, 0};

  static std::vector<std::byte> message(std::uint32_t ask, std::size_t bytes = kMessageBytes) {
    std::vector<std::byte> out(bytes);
    if (!out.empty()) std::memcpy(out.data(), &ask, std::min(bytes, sizeof ask));
    return out;
  }
  static bool send(int socket, Bytes bytes, std::initializer_list<int> files = {}) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> space{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (files.size() != 0) {
      header.msg_control = space.data();
      header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
      cmsghdr* control = CMSG_FIRSTHDR(&header);
      control->cmsg_level = SOL_SOCKET;
      control->cmsg_type = SCM_RIGHTS;
      control->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
      std::memcpy(CMSG_DATA(control), files.begin(), files.size() * sizeof(int));
    }
    return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // A line that has said hello.
  Fd line() const {
    std::array<int, 2> ends{};
    EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()));
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    ::setsockopt(ours.get(), SOL_SOCKET, SO_SNDTIMEO, &kLong, sizeof kLong);
    EXPECT_TRUE(send(door(), message(kHello), {theirs.get()}));
    EXPECT_TRUE(send(ours.get(), message(kHello)));
    std::array<std::byte, kMessageBytes> answer{};
    EXPECT_EQ(static_cast<ssize_t>(answer.size()),
              ::recv(ours.get(), answer.data(), answer.size(), 0));
    return ours;
  }
  static bool ended(const Fd& line) {
    pollfd wanted{line.get(), 0, 0};
    return ::poll(&wanted, 1, 2000) == 1 && (wanted.revents & POLLHUP) != 0;
  }
  bool goes_on() const {
    Exchange giver(door(), 7);
    Exchange taker(door(), 7);
    const auto token = giver.share(event(5));
    return token.ok() && taker.find(*token, SharedKind::kEvent).ok();
  }
  static std::ptrdiff_t open_files() {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  }
};

TEST_F(HostileExchangeTest, KeepsItsDoorOpenWhateverIsSaidThere) {
  Exchange giver(door(), 7);
  const auto token = giver.share(event(1));
  ASSERT_TRUE(token.ok());
  const SharedObject file = memory("no socket");
  for (const std::size_t bytes : {0, 1, 127, 129, 5000}) {
    EXPECT_TRUE(send(door(), message(kHello, bytes)));
    EXPECT_TRUE(goes_on()) << bytes;
  }
  EXPECT_TRUE(send(door(), message(kHello)));
  EXPECT_TRUE(send(door(), message(kFind), {file.file.get()}));
  EXPECT_TRUE(send(door(), message(kHello), {file.file.get()}));
  EXPECT_TRUE(send(door(), message(kHello), {file.file.get(), file.file.get()}));
  EXPECT_TRUE(goes_on());
  EXPECT_TRUE(giver.find(*token, SharedKind::kEvent).ok());
}

TEST_F(HostileExchangeTest, EndsTheLineOfWhoBreaksARule) {
  for (const auto& nonsense : {message(kHello), message(0), message(5), message(99),
                               message(kFind, 127), message(kFind, 0), message(kFind, 4000)}) {
    const Fd bad = line();
    EXPECT_TRUE(send(bad.get(), nonsense));
    EXPECT_TRUE(ended(bad)) << nonsense.size();
    EXPECT_TRUE(goes_on());
  }
}

TEST_F(HostileExchangeTest, EndsTheLineOfWhoDoesNotReadItsAnswers) {
  const Fd bad = line();
  while (send(bad.get(), message(kFind))) {
  }
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << std::strerror(errno);
  EXPECT_TRUE(goes_on());
}

TEST_F(HostileExchangeTest, KeepsNoFileThatNobodyAskedItToKeep) {
  const SharedObject file = memory("a file");
  ASSERT_TRUE(goes_on());
  const std::ptrdiff_t before = open_files();
  for (int i = 0; i < 10; ++i) {
    const Fd bad = line();
    EXPECT_TRUE(send(bad.get(), message(kShare), {file.file.get(), file.file.get()}));
    EXPECT_TRUE(ended(bad));
  }
  // Those of lines that end late were counted before; the last of these goes after its line.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (open_files() > before && std::chrono::steady_clock::now() < until) ::usleep(1000);
  EXPECT_LE(open_files(), before);
}

TEST_F(HostileExchangeTest, AdmitsOnlyAFewLinesOfOneProcess) {
  std::vector<Fd> kept;
  std::vector<Fd> refused;
  for (int i = 0; i < 100; ++i) {
    std::array<int, 2> ends{};
    ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()));
    Fd ours(ends[0]);
    const Fd theirs(ends[1]);
    ASSERT_TRUE(send(door(), message(kHello), {theirs.get()}));
    (i < 16 ? kept : refused).push_back(std::move(ours));
  }
  for (const Fd& one : refused) EXPECT_TRUE(ended(one));
  for (const Fd& one : kept) {
    pollfd wanted{one.get(), 0, 0};
    EXPECT_EQ(0, ::poll(&wanted, 1, 0));
  }
  kept.clear();
  // The exchange may hear the newcomer before it sees that the others have gone.
  bool admitted = false;
  for (int i = 0; i < 10'000 && !admitted; ++i) admitted = goes_on();
  EXPECT_TRUE(admitted);
}

TEST(Exchange, WithoutADoorSharesNothing) {
  Exchange nothing(-1, 0);
  EXPECT_FALSE(nothing.present());
  EXPECT_FALSE(nothing.share(SharedObject{.kind = SharedKind::kEvent}).ok());
}

}  // namespace
}  // namespace flyt::server
