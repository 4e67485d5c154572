// Listeners: their files, ports, deadlines and errors.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "transport/transport.h"

namespace flyt::transport {
namespace {

Instant in_milliseconds(int count) {
  return system_clock().now() + std::chrono::milliseconds(count);
}
Instant soon() { return in_milliseconds(120'000); }

class UnixListener : public ::testing::Test {
 protected:
  void SetUp() override {
    directory = ::testing::TempDir() + "flyt-listener-" + std::to_string(::getpid());
    ::mkdir(directory.c_str(), 0700);
    url = {Kind::kUnix, directory + "/socket", {}, 0};
  }
  void TearDown() override {
    ::unlink(url.path.c_str());
    ::rmdir(directory.c_str());
  }
  bool file_exists() const { return ::access(url.path.c_str(), F_OK) == 0; }

  std::string directory;
  Url url;
};

TEST_F(UnixListener, MakesAFileThatOnlyItsOwnerMayUse) {
  auto listener = listen(url);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  struct stat file {};
  ASSERT_EQ(::stat(url.path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0600u);
  EXPECT_EQ((*listener)->url(), url);
}

TEST_F(UnixListener, RemovesItsFileAtTheEnd) {
  { auto listener = listen(url); }
  EXPECT_FALSE(file_exists());
}

TEST_F(UnixListener, LeavesTheFileToTheProcessThatMadeIt) {
  auto listener = listen(url);
  ASSERT_TRUE(listener.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    listener->reset();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(file_exists());
}

TEST_F(UnixListener, ReplacesAFileThatNobodyListensOn) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto listener = listen(url);
    ::_exit(listener.ok() ? 0 : 1);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(file_exists());
  const auto orphaned = connect(url, soon());
  ASSERT_FALSE(orphaned.ok());
  auto listener = listen(url);
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  EXPECT_TRUE(connect(url, soon()).ok());
}

TEST_F(UnixListener, DoesNotTakeAFileFromALivingListenerNorAnOrdinaryFile) {
  {
    auto first = listen(url);
    ASSERT_TRUE(first.ok());
    EXPECT_FALSE(listen(url).ok());
    EXPECT_TRUE(connect(url, soon()).ok());
  }
  std::ofstream(url.path) << "data";
  EXPECT_FALSE(listen(url).ok());
  EXPECT_TRUE(file_exists());
}

// Where the system can: since Linux 6.16.
TEST_F(UnixListener, TakesNoDescriptorsFromWhoConnects) {
  auto listener = listen(url);
  ASSERT_TRUE(listener.ok());
  constexpr int kSoPassRights = 83;
  int pass = 1;
  socklen_t size = sizeof pass;
  if (::getsockopt((*listener)->fd(), SOL_SOCKET, kSoPassRights, &pass, &size) != 0) {
    GTEST_SKIP() << "the system cannot refuse them";
  }
  auto client = connect(url, soon());
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE(send_fd((*client)->fd(), 0, {}).ok());
  auto server = (*listener)->accept(soon(), nullptr);
  ASSERT_TRUE(server.ok());
  EXPECT_FALSE(send_fd((*client)->fd(), 0, {}).ok());
  EXPECT_TRUE(send_fd((*server)->fd(), 0, {}).ok());
}

TEST_F(UnixListener, IsMissedAtOnceWithTheAddressInTheMessage) {
  const auto connection = connect(url, soon());
  ASSERT_FALSE(connection.ok());
  EXPECT_NE(connection.error().message.find(to_string(url)), std::string::npos);
}

TEST(TcpListener, TellsThePortThatTheSystemChose) {
  auto listener = listen({Kind::kTcp, {}, "127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  EXPECT_NE((*listener)->url().port, 0);
  EXPECT_TRUE(connect((*listener)->url(), soon()).ok());
}

TEST(TcpListener, IsMissedAtOnceWhenNobodyListens) {
  Url url;
  {
    auto listener = listen({Kind::kTcp, {}, "127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    url = (*listener)->url();
  }
  const Instant begin = system_clock().now();
  const auto connection = connect(url, soon());
  ASSERT_FALSE(connection.ok());
  EXPECT_LT(system_clock().now() - begin, std::chrono::seconds(60));
  EXPECT_NE(connection.error().message.find(to_string(url)), std::string::npos);
}

TEST(TcpListener, NamesAHostThatDoesNotExist) {
  const auto connection = connect({Kind::kTcp, {}, "no-such-host.invalid", 1}, soon());
  ASSERT_FALSE(connection.ok());
  EXPECT_NE(connection.error().message.find("no-such-host.invalid"), std::string::npos);
}

TEST(Listener, StopsWaitingAtTheDeadlineWhenWokenAndWhenShutDown) {
  auto listener = listen({Kind::kTcp, {}, "127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ((*listener)->accept(in_milliseconds(2), nullptr).error().code, ErrorCode::kTimeout);
  Wakeup wakeup;
  wakeup.signal();
  EXPECT_EQ((*listener)->accept(kNever, &wakeup).error().code, ErrorCode::kTimeout);
  std::thread other([&] { (*listener)->shut_down(); });
  EXPECT_EQ((*listener)->accept(kNever, nullptr).error().code, ErrorCode::kLost);
  other.join();
  EXPECT_EQ((*listener)->accept(kNever, nullptr).error().code, ErrorCode::kLost);
}

TEST(PeerIdentity, IsTheUserOrTheAddress) {
  for (const auto& [url, identity] :
       {std::pair{Url{Kind::kUnix, "@flyt-identity-" + std::to_string(::getpid()), {}, 0},
                  "unix-" + std::to_string(::getuid())},
        std::pair{Url{Kind::kTcp, {}, "127.0.0.1", 0}, std::string("tcp-127.0.0.1")}}) {
    Result<std::unique_ptr<Listener>> listener = listen(url);
    ASSERT_TRUE(listener.ok());
    Result<std::unique_ptr<Connection>> client = connect((*listener)->url(), kNever);
    Result<std::unique_ptr<Connection>> server = (*listener)->accept(kNever, nullptr);
    ASSERT_TRUE(client.ok() && server.ok());
    EXPECT_EQ(identity_of_peer((*server)->fd()), identity);
  }
  EXPECT_EQ(identity_of_peer(-1), "");
}

}  // namespace
}  // namespace flyt::transport
