#include "server/recovery/keeper.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>  // lint: allow(sockets): what a session says that is not as it should be
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/testing/forks.h"
#include "server/parent/fd_line.h"

namespace flyt::server {
namespace {

using Known = Keeping::Known;

constexpr std::uint32_t kUser = 7;
constexpr Duration kLong = std::chrono::seconds(60);

Instant soon() { return system_clock().now() + kLong; }
Instant now() { return system_clock().now(); }

Fd file_with(const std::string& text) {
  Fd file(::memfd_create("keeper-test", MFD_CLOEXEC));
  EXPECT_EQ(static_cast<ssize_t>(text.size()), ::pwrite(file.get(), text.data(), text.size(), 0));
  return file;
}
std::string text_in(const Fd& file) {
  char text[32] = {};
  EXPECT_LE(0, ::pread(file.get(), text, sizeof text - 1, 0));
  return text;
}
Kept block(std::uint64_t address, const std::string& text) {
  return {KeptKind::kBlock, address, 2 * kMiB, 1, file_with(text)};
}

// While the keeper's thread is at nothing. It ends with this process.
pid_t fork_child() {
  wait_until_other_threads_sleep();
  const pid_t child = ::fork();
  if (child == 0) ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return child;
}

// A session's process: does its work, tells its token, and waits to be killed.
class Process {
 public:
  using Work = std::function<Token(Keeping&)>;
  Process(int door, const Work& work, std::uint64_t place = 1) {
    int ends[2];
    EXPECT_EQ(0, ::pipe2(ends, O_CLOEXEC));
    const Fd reading(ends[0]);
    Fd writing(ends[1]);
    pid_ = fork_child();
    if (pid_ == 0) {
      Keeping keeping(door, kUser, place);
      const Token told = work(keeping);
      [[maybe_unused]] const ssize_t written = ::write(writing.get(), told.data(), told.size());
      while (true) ::pause();
    }
    // So that a child that dies early is the end of what there is to read.
    writing.close();
    EXPECT_EQ(static_cast<ssize_t>(token.size()),
              ::read(reading.get(), token.data(), token.size()));
  }
  ~Process() { kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  Token token{};

 private:
  pid_t pid_ = -1;
};

Token open_with(Keeping& keeping,
                const std::vector<std::pair<std::uint64_t, std::string>>& blocks) {
  const auto token = keeping.open();
  if (!token) return {};
  for (const auto& [address, text] : blocks) keeping.keep(block(address, text));
  return *token;
}

class KeeperTest : public ::testing::Test {
 protected:
  void start(Duration keeps = kLong) {
    auto door = make_door();
    ASSERT_TRUE(door.ok());
    outside_ = std::move(door->outside);
    options_.keeps = keeps;
    options_.on_keep = [this](std::uint64_t place) { kept_ |= std::uint64_t{1} << place; };
    options_.on_free = [this](std::uint64_t place) { freed_ |= std::uint64_t{1} << place; };
    keeper_ = std::thread([this, inside = std::move(door->inside)]() mutable {
      run_keeper(std::move(inside), options_);
    });
  }
  void TearDown() override {
    outside_.close();
    if (keeper_.joinable()) keeper_.join();
  }
  int door() const { return outside_.get(); }
  bool kept(std::uint64_t place) const { return (kept_ >> place & 1) != 0; }
  bool freed(std::uint64_t place) const { return (freed_ >> place & 1) != 0; }
  void await_freed(std::uint64_t place) const {
    while (!freed(place)) std::this_thread::yield();
  }

  KeeperOptions options_;
  std::atomic<std::uint64_t> kept_{0};
  std::atomic<std::uint64_t> freed_{0};

  Fd outside_;
  std::thread keeper_;
};

TEST_F(KeeperTest, GivesTheFilesOfAKilledProcessToWhoKnowsItsToken) {
  start();
  Process killed(door(), [](Keeping& keeping) {
    return open_with(keeping, {{0x1000, "one"}, {0x2000, "two"}});
  });
  killed.kill();
  Keeping next(door(), kUser, 2);
  const auto kept = next.take_over(killed.token, soon());
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_TRUE(next.await_end(soon()).ok());
  ASSERT_EQ(kept->size(), 2U);
  EXPECT_EQ((*kept)[0].id, 0x1000U);
  EXPECT_EQ((*kept)[0].bytes, 2 * kMiB);
  EXPECT_EQ((*kept)[0].device, 1);
  EXPECT_EQ((*kept)[0].kind, KeptKind::kBlock);
  EXPECT_EQ(text_in((*kept)[0].file), "one");
  EXPECT_EQ(text_in((*kept)[1].file), "two");
  // The old one's place is free when the memory counts elsewhere.
  EXPECT_FALSE(freed(1));
  next.counted();
  await_freed(1);
  EXPECT_FALSE(freed(2));
}

// A process may be killed in the next moment.
TEST_F(KeeperTest, KeepsThePlaceOfASessionBeforeItsProcessIsAnswered) {
  start();
  Process killed(door(), [](Keeping& keeping) { return open_with(keeping, {}); });
  EXPECT_TRUE(kept(1));
  killed.kill();
  Process next(
      door(),
      [&](Keeping& keeping) {
        return keeping.take_over(killed.token, soon()).ok() ? killed.token : Token{};
      },
      2);
  EXPECT_EQ(next.token, killed.token);
  EXPECT_TRUE(kept(2));
  EXPECT_EQ(freed_, 0U);
}

TEST_F(KeeperTest, GivesWhatIsThereAtTheEnd) {
  start();
  Process killed(door(), [](Keeping& keeping) {
    const Token token = open_with(keeping, {{0x1000, "one"}, {0x2000, "two"}});
    keeping.drop(KeptKind::kBlock, 0x1000);
    keeping.keep(block(0x2000, "new"));
    keeping.drop(KeptKind::kBlock, 0x9000);
    return token;
  });
  killed.kill();
  Keeping next(door(), kUser, 2);
  const auto kept = next.take_over(killed.token, soon());
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(text_in(kept->front().file), "new");
}

TEST_F(KeeperTest, GivesManyFilesInTheirOrder) {
  start();
  constexpr std::uint64_t kMany = 300;
  Process killed(door(), [](Keeping& keeping) {
    const auto token = keeping.open();
    for (std::uint64_t i = 0; i < kMany; ++i) keeping.keep(block(i * kMiB, std::to_string(i)));
    return token.ok() ? *token : Token{};
  });
  killed.kill();
  Keeping next(door(), kUser, 2);
  const auto kept = next.take_over(killed.token, soon());
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  ASSERT_EQ(kept->size(), kMany);
  for (std::uint64_t i = 0; i < kMany; ++i) {
    EXPECT_EQ((*kept)[i].id, i * kMiB);
    EXPECT_EQ(text_in((*kept)[i].file), std::to_string(i));
  }
}

TEST_F(KeeperTest, GivesNothingOfAProcessThatIsThere) {
  start();
  const Process alive(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  Keeping next(door(), kUser, 2);
  const auto kept = next.take_over(alive.token, now());
  ASSERT_FALSE(kept.ok());
  EXPECT_EQ(kept.error().code, ErrorCode::kTimeout);
}

TEST_F(KeeperTest, GivesNothingToOthersOrForAForgedToken) {
  start();
  Process killed(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  killed.kill();
  Keeping stranger(door(), kUser + 1, 2);
  EXPECT_FALSE(stranger.take_over(killed.token, soon()).ok());
  for (std::size_t i = 0; i < killed.token.size(); ++i) {
    Token forged = killed.token;
    forged[i] ^= std::byte{1};
    Keeping other(door(), kUser, 2);
    EXPECT_FALSE(other.take_over(forged, soon()).ok()) << i;
  }
  Keeping next(door(), kUser, 2);
  EXPECT_TRUE(next.take_over(killed.token, soon()).ok());
}

TEST_F(KeeperTest, TellsWhetherSomebodyMayGoOnWithASession) {
  start();
  Keeping parent(door(), 0, 5);
  EXPECT_EQ(*parent.knows(Token{}, kUser), Known::kNothing);
  Process killed(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  EXPECT_EQ(*parent.knows(killed.token, kUser), Known::kServed);
  killed.kill();
  while (*parent.knows(killed.token, kUser) == Known::kServed) std::this_thread::yield();
  EXPECT_EQ(*parent.knows(killed.token, kUser), Known::kLeft);
  EXPECT_EQ(*parent.knows(killed.token, kUser + 1), Known::kNothing);
  Token forged = killed.token;
  forged[3] ^= std::byte{1};
  EXPECT_EQ(*parent.knows(forged, kUser), Known::kNothing);
  // It is still there for who goes on with it, and that is one.
  Keeping next(door(), kUser, 2);
  EXPECT_TRUE(next.take_over(killed.token, soon()).ok());
  EXPECT_EQ(*parent.knows(killed.token, kUser), Known::kServed);
  next.end();
  while (*parent.knows(killed.token, kUser) != Known::kNothing) std::this_thread::yield();
}

TEST_F(KeeperTest, GivesASessionOnceAndAgainWhenItsNewProcessIsKilledToo) {
  start();
  Process first(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  first.kill();
  const Token token = first.token;
  const int outside = door();
  Process second(
      outside,
      [token](Keeping& keeping) { return keeping.take_over(token, soon()).ok() ? token : Token{}; },
      2);
  ASSERT_EQ(second.token, token);
  Keeping third(outside, kUser, 3);
  EXPECT_FALSE(third.take_over(token, now()).ok());
  second.kill();
  const auto kept = third.take_over(token, soon());
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(text_in(kept->front().file), "one");
  // The second had counted nothing: its place is free, the first one's is not yet.
  await_freed(2);
  EXPECT_FALSE(freed(1));
  third.counted();
  await_freed(1);
}

// Its memory is gone, and it is not: as one that is killed while its driver lets go of the GPU.
TEST_F(KeeperTest, KnowsEveryProcessThatIsStillEnding) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a fork of a process with threads may have none there";
#endif
  start();
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  const pid_t ending = fork_child();
  ASSERT_GE(ending, 0);
  if (ending == 0) {
    Keeping keeping(door(), kUser, 1);
    const auto token = keeping.open();
    if (!token || ::write(writing.get(), token->data(), token->size()) < 0) ::_exit(1);
    // The line is closed, the first thread exits, and another one stays.
    std::thread([] { ::pause(); }).detach();
    ::close_range(3, ~0U, 0);
    ::syscall(SYS_exit, 0);
  }
  writing.close();
  Token token{};
  ASSERT_EQ(static_cast<ssize_t>(token.size()), ::read(reading.get(), token.data(), token.size()));
  Process next(
      door(),
      [token](Keeping& keeping) { return keeping.take_over(token, soon()).ok() ? token : Token{}; },
      2);
  EXPECT_EQ(token, next.token);
  next.kill();
  Keeping third(door(), kUser, 3);
  EXPECT_TRUE(third.take_over(token, soon()).ok());
  EXPECT_FALSE(third.await_end(now()).ok());
  ASSERT_GT(ending, 1);
  EXPECT_EQ(0, ::kill(ending, SIGKILL));
  EXPECT_EQ(ending, ::waitpid(ending, nullptr, 0));
  EXPECT_TRUE(third.await_end(soon()).ok());
}

TEST_F(KeeperTest, ForgetsASessionThatEndsInOrder) {
  start();
  Process ended(door(), [](Keeping& keeping) {
    const Token token = open_with(keeping, {{1, "one"}});
    keeping.end();
    return token;
  });
  await_freed(1);
  ended.kill();
  Keeping next(door(), kUser, 2);
  EXPECT_FALSE(next.take_over(ended.token, soon()).ok());
}

TEST_F(KeeperTest, GivesNothingOfASessionThatWasEndedOnPurpose) {
  options_.may_return = [](std::uint64_t place) { return place != 1; };
  start();
  Process ended(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  Keeping next(door(), kUser, 2);
  EXPECT_FALSE(next.take_over(ended.token, soon()).ok());
  ended.kill();
  await_freed(1);
  EXPECT_FALSE(next.take_over(ended.token, soon()).ok());
}

TEST_F(KeeperTest, ForgetsWhatIsGivenUpAfterwards) {
  std::atomic<bool> given_up{false};
  options_.may_return = [&](std::uint64_t place) { return place != 1 || !given_up; };
  start();
  Keeping parent(door(), 0, 5);
  Process killed(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  Process alive(
      door(),
      [](Keeping& keeping) {
        return open_with(keeping, {{1, "one"}});
      },
      2);
  killed.kill();
  EXPECT_NE(*parent.knows(killed.token, kUser), Known::kNothing);
  given_up = true;
  EXPECT_EQ(*parent.knows(killed.token, kUser), Known::kNothing);
  await_freed(1);
  EXPECT_EQ(*parent.knows(alive.token, kUser), Known::kServed);
  EXPECT_FALSE(freed(2));
}

TEST_F(KeeperTest, ForgetsAfterItsTime) {
  start(std::chrono::milliseconds(20));
  Process killed(door(), [](Keeping& keeping) { return open_with(keeping, {{1, "one"}}); });
  killed.kill();
  await_freed(1);
  Keeping next(door(), kUser, 2);
  EXPECT_FALSE(next.take_over(killed.token, soon()).ok());
}

TEST(Keeper, WithoutADoorKeepsNothing) {
  Keeping nothing(-1, kUser, 0);
  EXPECT_FALSE(nothing.present());
  EXPECT_FALSE(nothing.open().ok());
  EXPECT_FALSE(nothing.take_over({}, now()).ok());
  nothing.keep(block(1, "one"));
  nothing.drop(KeptKind::kBlock, 1);
  nothing.end();
}

// A session of which something is missing must not go on.
TEST(Keeper, GivesNothingOfASessionForWhichItHadNoRoom) {
  auto door = make_door();
  ASSERT_TRUE(door.ok());
  const pid_t keeper = fork_child();
  if (keeper == 0) {
    door->outside.close();
    const rlimit few{100, 100};
    ::setrlimit(RLIMIT_NOFILE, &few);
    run_keeper(std::move(door->inside), {.keeps = kLong});
    ::_exit(0);
  }
  door->inside.close();
  Process killed(door->outside.get(), [](Keeping& keeping) {
    const auto token = keeping.open();
    for (std::uint64_t i = 0; i < 120; ++i) keeping.keep(block(i * kMiB, "one"));
    return token.ok() ? *token : Token{};
  });
  killed.kill();
  {
    Keeping next(door->outside.get(), kUser, 2);
    EXPECT_FALSE(next.take_over(killed.token, soon()).ok());
  }
  ::kill(keeper, SIGKILL);
  ::waitpid(keeper, nullptr, 0);
}

// One that keeps as much as it can takes nothing of what others may keep.
TEST(Keeper, HasRoomForEachSessionsShare) {
  auto door = make_door();
  ASSERT_TRUE(door.ok());
  const pid_t keeper = fork_child();
  if (keeper == 0) {
    door->outside.close();
    const rlimit few{200, 200};
    ::setrlimit(RLIMIT_NOFILE, &few);
    run_keeper(std::move(door->inside), {.sessions = 8, .keeps = kLong});
    ::_exit(0);
  }
  door->inside.close();
  const auto keeps = [](std::uint64_t count) {
    return [count](Keeping& keeping) {
      const auto token = keeping.open();
      for (std::uint64_t i = 0; i < count; ++i) keeping.keep(block(i * kMiB, "one"));
      // In place of what is there: that takes no room.
      if (count != 0) keeping.keep(block(0, "two"));
      return token.ok() ? *token : Token{};
    };
  };
  const Process greedy(door->outside.get(), keeps(300), 1);
  // A twentieth of all, half of which is for sure.
  std::vector<std::unique_ptr<Process>> modest;
  for (std::uint64_t place = 2; place < 9; ++place) {
    modest.push_back(std::make_unique<Process>(door->outside.get(), keeps(10), place));
  }
  for (const auto& one : modest) {
    one->kill();
    Keeping next(door->outside.get(), kUser, 9);
    const auto kept = next.take_over(one->token, soon());
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    EXPECT_EQ(kept->size(), 10U);
    EXPECT_EQ(text_in(kept->front().file), "two");
  }
  ::kill(keeper, SIGKILL);
  ::waitpid(keeper, nullptr, 0);
}

// A process that says anything at all.
class HostileKeeperTest : public KeeperTest {
 protected:
  static constexpr std::size_t kMessageBytes = 64;
  static constexpr std::uint32_t kHello = 1;
  static constexpr std::uint32_t kOpen = 2;
  static constexpr std::uint32_t kFetch = 4;
  static constexpr std::uint32_t kCounted = 5;
  static constexpr std::uint32_t kKeep = 6;
  static constexpr std::uint32_t kEnd = 8;
  static constexpr std::uint32_t kGone = 10;

  static std::vector<std::byte> message(std::uint32_t ask, std::uint32_t kind = 0,
                                        std::size_t bytes = kMessageBytes) {
    std::vector<std::byte> out(std::max<std::size_t>(bytes, 16));
    std::memcpy(out.data(), &ask, sizeof ask);
    std::memcpy(out.data() + 12, &kind, sizeof kind);
    out.resize(bytes);
    return out;
  }
  Fd line() const {
    auto ends = make_line();
    EXPECT_TRUE(ends.ok());
    EXPECT_TRUE(send_message(door(), message(kHello), ends->second.get(), 0));
    return std::move(ends->first);
  }
  static bool say(const Fd& line, const std::vector<std::byte>& bytes) {
    return send_message(line.get(), bytes, -1, 0);
  }
  static bool answered(const Fd& line) {
    std::vector<std::byte> bytes(kMessageBytes);
    Fd file;
    return receive_message(line.get(), bytes, file, 0);
  }
  // A line that has a session.
  Fd session() const {
    Fd made = line();
    EXPECT_TRUE(say(made, message(kHello)) && answered(made));
    EXPECT_TRUE(say(made, message(kOpen)) && answered(made));
    return made;
  }
  static bool ended(const Fd& line) {
    pollfd wanted{line.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&wanted, 1, 60'000) == 1 && ::recv(line.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }
  bool goes_on() const {
    Keeping keeping(door(), kUser, 5);
    return keeping.open().ok();
  }
};

// Its parent may have given its place to another one.
TEST_F(HostileKeeperTest, KeepsNoPlaceOfAProcessThatHasEnded) {
  const auto way = make_line();
  ASSERT_TRUE(way.ok());
  const pid_t maker = ::fork();
  if (maker == 0) {
    const auto ends = make_line();
    const bool sent = ends.ok() &&
                      send_message(way->second.get(), message(kHello), ends->first.get(), 0) &&
                      send_message(way->second.get(), message(kHello), ends->second.get(), 0);
    ::_exit(sent ? 0 : 1);
  }
  std::vector<std::byte> bytes(kMessageBytes);
  Fd near;
  Fd far;
  ASSERT_TRUE(receive_message(way->first.get(), bytes, near, 0));
  ASSERT_TRUE(receive_message(way->first.get(), bytes, far, 0));
  ASSERT_EQ(maker, ::waitpid(maker, nullptr, 0));
  start();
  ASSERT_TRUE(send_message(door(), message(kHello), far.get(), 0));
  far.close();
  ASSERT_TRUE(say(near, message(kHello)) && answered(near));
  ASSERT_TRUE(say(near, message(kOpen)));
  EXPECT_TRUE(ended(near));
  EXPECT_TRUE(freed(0));
}

TEST_F(HostileKeeperTest, EndsTheLineOfWhoBreaksARule) {
  start();
  for (const auto& nonsense :
       {message(0), message(99), message(kHello, 0, 0), message(kHello, 0, 63),
        message(kHello, 0, 4000), message(kOpen), message(kFetch), message(kKeep, 3),
        message(kCounted), message(kEnd), message(9), message(kGone), message(11), message(12)}) {
    const Fd bad = line();
    EXPECT_TRUE(say(bad, nonsense));
    EXPECT_TRUE(ended(bad)) << nonsense.size();
    EXPECT_TRUE(goes_on());
  }
  for (const auto& nonsense : {message(kOpen), message(kHello), message(kKeep), message(kKeep, 6),
                               message(kKeep, 0xffffffff), message(3), message(9)}) {
    const Fd bad = session();
    EXPECT_TRUE(say(bad, nonsense));
    EXPECT_TRUE(ended(bad));
    EXPECT_TRUE(goes_on());
  }
}

// With a home: it outlives its parent.
class HomeTest : public KeeperTest {
 protected:
  void settle() {
    std::string folder = ::testing::TempDir() + "flyt-keeper-XXXXXX";
    ASSERT_NE(nullptr, ::mkdtemp(folder.data()));
    path_ = folder + "/home";
    auto home = listen_line(path_);
    ASSERT_TRUE(home.ok()) << home.error().message;
    home_ = std::move(*home);
    auto door = make_door();
    ASSERT_TRUE(door.ok());
    outside_ = std::move(door->outside);
    board_ = file_with("board");
    options_.keeps = kLong;
    options_.on_free = [this](std::uint64_t place) { freed_ |= std::uint64_t{1} << place; };
    options_.home = home_.get();
    options_.outside = outside_.get();
    options_.board = board_.get();
    keeper_ = std::thread([this, inside = std::move(door->inside)]() mutable {
      run_keeper(std::move(inside), options_);
      over_ = true;
    });
  }
  // The next parent's, once the one before is gone.
  KeeperLine parent() {
    auto line = KeeperLine::find(path_);
    while (!line && line.error().code == ErrorCode::kDenied) line = KeeperLine::find(path_);
    EXPECT_TRUE(line.ok());
    return std::move(line).value();
  }
  void await_end() {
    keeper_.join();
    EXPECT_TRUE(over_);
    ::unlink(path_.c_str());
    ::rmdir(path_.substr(0, path_.rfind('/')).c_str());
  }

  std::string path_;
  Fd home_;
  Fd board_;
  std::atomic<bool> over_{false};
};

TEST_F(HomeTest, GivesTheNextParentWhatTheSessionsOfTheOneBeforeHave) {
  settle();
  auto first = std::make_unique<KeeperLine>(parent());
  const Fd door = first->take_door();
  EXPECT_EQ("board", text_in(first->take_board()));
  Process process(door.get(), [](Keeping& keeping) {
    return open_with(keeping, {{0x1000, "one"}});
  });
  // One parent at a time.
  EXPECT_EQ(ErrorCode::kDenied, KeeperLine::find(path_).error().code);
  first.reset();
  process.kill();
  KeeperLine second = parent();
  const Fd next_door = second.take_door();
  Keeping keeping(next_door.get(), kUser, 2);
  const auto kept = keeping.take_over(process.token, soon());
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  ASSERT_EQ(1U, kept->size());
  EXPECT_EQ("one", text_in(kept->front().file));
  keeping.counted();
  await_freed(1);
  second.quit();
  await_end();
}

TEST_F(HomeTest, EndsWithItsParentWhenThereIsNothingToKeep) {
  settle();
  static_cast<void>(parent());
  await_end();
}

TEST_F(HomeTest, OutlivesAParentThatSaysNonsense) {
  settle();
  {
    KeeperLine keeps = parent();
    const Fd door = keeps.take_door();
    Keeping keeping(door.get(), kUser, 1);
    ASSERT_TRUE(keeping.open().ok());
    EXPECT_EQ(3, ::send(keeps.fd(), "abc", 3, MSG_NOSIGNAL));
    KeeperLine next = parent();
    EXPECT_FALSE(over_);
    next.quit();
  }
  await_end();
}

// Its queue is full: the system would let the next one wait for ever.
TEST(KeeperLine, OfAKeeperThatHangsIsNotWaitedForForEver) {
  const std::string path = ::testing::TempDir() + "flyt-hung-" + std::to_string(::getpid());
  const auto home = listen_line(path);
  ASSERT_TRUE(home.ok()) << home.error().message;
  std::vector<Fd> waiting;
  auto line = connect_line(path);
  for (; line.ok() && waiting.size() < 64; line = connect_line(path)) {
    waiting.push_back(std::move(*line));
  }
  ASSERT_FALSE(line.ok());
  EXPECT_EQ(ErrorCode::kDenied, line.error().code);
  ::unlink(path.c_str());
}

TEST(KeeperLine, IsNotThereWithoutAKeeper) {
  EXPECT_EQ(ErrorCode::kLost, KeeperLine::find("/nonexistent/keeper").error().code);
  EXPECT_FALSE(KeeperLine::find(std::string(200, 'x')).ok());
}

TEST_F(HostileKeeperTest, EndsTheLineOfWhoDoesNotReadItsAnswers) {
  start();
  const Fd bad = session();
  while (say(bad, message(kFetch))) {
  }
  EXPECT_TRUE(goes_on());
}

TEST_F(HostileKeeperTest, TakesNothingForAFileWithoutOne) {
  start();
  const Fd bad = session();
  EXPECT_TRUE(say(bad, message(kKeep, 3)));
  EXPECT_TRUE(say(bad, message(kFetch)));
  EXPECT_TRUE(answered(bad));
  EXPECT_TRUE(goes_on());
}

}  // namespace
}  // namespace flyt::server
