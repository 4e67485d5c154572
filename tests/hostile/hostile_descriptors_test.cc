// Descriptors that nobody asked for, sent over the socket of a session: whoever drops the last one
// closes what it is of, and that may take as long as its maker likes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "tests/hostile/hostile.h"
#include "transport/testing/descriptors.h"

namespace flyt::sim {
namespace {

constexpr int kLingerSeconds = 600;

// A connection over TCP whose other end reads nothing. To close it takes minutes: what was written
// shall be taken first.
struct SlowToClose {
  SlowToClose() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* general = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), general, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), general, &size), 0);
    near = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(near.get(), general, size), 0);
    far = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    static const std::array<char, 65536> kBytes{};
    while (::send(near.get(), kBytes.data(), kBytes.size(), MSG_DONTWAIT) > 0) {
    }
    const linger wait{1, kLingerSeconds};
    EXPECT_EQ(::setsockopt(near.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
  }
  Fd near;
  Fd far;  // Goes first, and with it what there is to wait for.
};

class HostileDescriptors : public HostileTest {
 protected:
  // A stranger to the server that has said something and sent a descriptor with it, if the system
  // lets him.
  static std::unique_ptr<transport::Connection> send(SlowToClose& slow, Bytes words) {
    const auto url = transport::parse_url(server().url());
    EXPECT_TRUE(url.ok());
    // So that the last one is the server's, and not this test's own.
    EXPECT_EQ(::kill(server().pid(), SIGSTOP), 0);
    auto connection = transport::connect(*url, system_clock().now() + std::chrono::seconds(20));
    EXPECT_TRUE(connection.ok());
    const std::array<int, 1> files = {slow.near.get()};
    const bool sent = transport::send_with_descriptors((*connection)->fd(), words, files) > 0;
    if (!sent) {
      EXPECT_EQ(errno, EPERM);
      EXPECT_TRUE((*connection)->write({&words, 1}, transport::Patience::kWait).ok());
    }
    if (sent) slow.near.close();
    EXPECT_EQ(::kill(server().pid(), SIGCONT), 0);
    return std::move(*connection);
  }
  // More than one: the first may be let in together with who is sent away.
  static void expect_served() {
    for (int i = 0; i < 3; ++i) {
      auto peer = Peer::greeted(server().url());
      ASSERT_TRUE(peer.ok()) << peer.error().message;
      EXPECT_TRUE(peer->alive());
    }
  }
};

TEST_F(HostileDescriptors, OfOneWhoIsRefusedHoldUpNobody) {
  SlowToClose slow;
  const std::string noise(64, 'x');
  const auto connection = send(slow, bytes_of(noise));
  expect_served();
}

TEST_F(HostileDescriptors, OfManyWhoAreRefusedHoldUpNobody) {
  std::array<SlowToClose, 20> slow;
  const std::string noise(64, 'x');
  for (SlowToClose& one : slow) send(one, bytes_of(noise)).reset();
  expect_served();
}

TEST_F(HostileDescriptors, OfOneWhoIsServedHoldUpNobody) {
  SlowToClose slow;
  send(slow, wire::encode(wire::ClientHello{})).reset();
  expect_served();
}

// Two who say hello in the same moment: neither's process has the other one's socket.
TEST_F(HostileDescriptors, OfSessionsAreThoseOfTheirProcessAlone) {
  const auto hello = wire::encode(wire::ClientHello{});
  std::vector<Peer> both;
  for (int i = 0; i < 2; ++i) {
    both.push_back(stranger());
    // So that it waits, known to the server, for the rest.
    EXPECT_TRUE(both.back().send(Bytes(hello).first(hello.size() - 1)).ok());
  }
  expect_served();
  ASSERT_EQ(::kill(server().pid(), SIGSTOP), 0);
  for (Peer& one : both) EXPECT_TRUE(one.send(Bytes(hello).last(1)).ok());
  ASSERT_EQ(::kill(server().pid(), SIGCONT), 0);
  std::vector<wire::Welcome> welcomes;
  for (Peer& one : both) {
    auto welcome = one.read_answer();
    ASSERT_TRUE(welcome.ok()) << welcome.error().message;
    welcomes.push_back(*welcome);
  }
  ASSERT_EQ(::kill(static_cast<pid_t>(welcomes[1].process_id), SIGKILL), 0);
  EXPECT_EQ(both[1].read_frame(5).what, Heard::What::kClosed);
}

}  // namespace
}  // namespace flyt::sim
