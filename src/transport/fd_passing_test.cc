// Handing sockets to another process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "transport/testing/descriptors.h"
#include "transport/transport.h"

namespace flyt::transport {
namespace {

struct Channel {
  Channel() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    here = Fd(fds[0]);
    there = Fd(fds[1]);
  }
  Fd here;
  Fd there;
};

Instant in_time() { return system_clock().now() + std::chrono::seconds(20); }

TEST(FdPassing, HandsAConnectionToAnotherProcess) {
  Channel channel;
  auto pair = connection_pair();
  ASSERT_TRUE(pair.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    Result<ReceivedFd> received = receive_fd(channel.there.get(), in_time());
    if (!received || received->text != "session 7") ::_exit(1);
    auto connection = adopt(std::move(received->fd));
    const Bytes bytes = bytes_of("from the child");
    ::_exit(connection && (*connection)->write({&bytes, 1}, Patience::kWait).ok() ? 0 : 2);
  }
  ASSERT_TRUE(send_fd(channel.here.get(), pair->second->fd(), "session 7").ok());
  pair->second.reset();
  std::array<std::byte, 14> bytes;
  const MutableBytes into(bytes);
  const Result<std::size_t> got = pair->first->read({&into, 1}, Patience::kWait);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(text_of(Bytes(bytes).first(*got)), "from the child");
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(FdPassing, MarksWhatItReceivedToBeClosedOnExec) {
  Channel channel;
  ASSERT_TRUE(send_fd(channel.here.get(), 0, "").ok());
  const Result<ReceivedFd> received = receive_fd(channel.there.get(), in_time());
  ASSERT_TRUE(received.ok());
  EXPECT_NE(::fcntl(received->fd.get(), F_GETFD) & FD_CLOEXEC, 0);
}

std::ptrdiff_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

TEST(FdPassing, RefusesTwoAndKeepsNeither) {
  Channel channel;
  const std::ptrdiff_t before = open_files();
  const std::byte no_text{0};
  const std::array<int, 2> files = {0, 0};
  ASSERT_EQ(1, send_with_descriptors(channel.here.get(), {&no_text, 1}, files));
  EXPECT_FALSE(receive_fd(channel.there.get(), in_time()).ok());
  EXPECT_EQ(open_files(), before);
}

TEST(FdPassing, NoticesThatTheOtherEndIsGone) {
  Channel channel;
  channel.here.close();
  EXPECT_EQ(receive_fd(channel.there.get(), in_time()).error().code, ErrorCode::kLost);
  EXPECT_FALSE(send_fd(channel.there.get(), 0, "").ok());
}

TEST(FdPassing, ASenderWhoKeepsTheTextToItselfIsNotWaitedForForEver) {
  Channel channel;
  const std::byte length{5};
  const std::array<int, 1> files = {0};
  ASSERT_EQ(1, send_with_descriptors(channel.here.get(), {&length, 1}, files));
  ASSERT_EQ(::send(channel.here.get(), "ab", 2, 0), 2);
  const std::ptrdiff_t before = open_files();
  const auto received =
      receive_fd(channel.there.get(), system_clock().now() + std::chrono::milliseconds(50));
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(open_files(), before);
}

TEST(FdPassing, RefusesAMessageWithoutADescriptor) {
  Channel channel;
  const char byte = 0;
  ASSERT_EQ(::send(channel.here.get(), &byte, 1, 0), 1);
  EXPECT_EQ(receive_fd(channel.there.get(), in_time()).error().code, ErrorCode::kInvalid);
}

TEST(Adopt, RefusesWhatIsNoSocket) {
  EXPECT_FALSE(adopt(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC))).ok());
}

}  // namespace
}  // namespace flyt::transport
