// What the process of a session knows that its client must not: whoever broke into it would have
// it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "base/random.h"
#include "base/wall_clock.h"
#include "tests/hostile/peer.h"
#include "tests/support/server_process.h"
#include "wire/hello.h"
#include "wire/token.h"

namespace flyt::sim {
namespace {

// Whether a process has these bytes anywhere in its memory.
bool knows(pid_t process, Bytes secret) {
  constexpr std::uint64_t kRegionMax = 256 * kMiB;  // Sanitizers' shadows are larger.
  const std::string folder = "/proc/" + std::to_string(process);
  std::ifstream maps(folder + "/maps");
  std::ifstream memory(folder + "/mem", std::ios::binary);
  EXPECT_TRUE(maps.is_open() && memory.is_open()) << "cannot look into process " << process;
  std::string line;
  while (std::getline(maps, line)) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    char readable = '-';
    if (std::sscanf(line.c_str(), "%lx-%lx %c", &begin, &end, &readable) != 3) continue;
    if (readable != 'r' || end - begin > kRegionMax || line.find("[v") != line.npos) continue;
    std::string bytes(end - begin, '\0');
    memory.clear();
    memory.seekg(static_cast<std::streamoff>(begin));
    memory.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(memory.gcount(), 0)));
    if (bytes.find(text_of(secret)) != std::string::npos) return true;
  }
  return false;
}

// A server of a lease as node managers start them: with a key, and going on with lost sessions.
class HostileTokens : public ::testing::Test {
 protected:
  void SetUp() override {
    random_bytes(key_.data(), key_.size());
    const std::string path =
        ::testing::TempDir() + "flyt-hostile-key-" + std::to_string(::getpid());
    std::ofstream(path, std::ios::binary) << text_of(bytes_at(key_.data(), key_.size()));
    ::chmod(path.c_str(), 0600);
    const auto started =
        server_.start({.program = tests::server_program(),
                       .listen = "tcp://127.0.0.1:0",
                       .arguments = {"--lease", "vm", "--token-key", path, "--recover", "30"}});
    ASSERT_TRUE(started.ok()) << started.error().message;
    ::unlink(path.c_str());
    for (const pid_t process : server_.children()) known_.insert(process);
  }

  struct Served {
    Peer peer;
    wire::Welcome welcome;
    pid_t process = 0;
  };
  // A session; `recovers`: one that goes on.
  Served begin(const wire::SessionToken& recovers = {}) {
    auto peer = Peer::connect(server_.url());
    EXPECT_TRUE(peer.ok()) << peer.error().message;
    wire::ClientHello hello;
    hello.recoverable = true;
    hello.recovers = recovers;
    if (recovers == wire::SessionToken{}) {
      wire::Token token{.lease = "vm", .expiry = unix_seconds() + 60, .sessions = 1};
      random_bytes(token.nonce.data(), token.nonce.size());
      hello.credential = wire::sign(token, key_);
    }
    EXPECT_TRUE(peer->send(wire::encode(hello)).ok());
    auto welcome = peer->read_answer();
    EXPECT_TRUE(welcome.ok()) << welcome.error().message << "\n" << server_.log();
    Served served{std::move(*peer), welcome ? *welcome : wire::Welcome{}};
    for (const pid_t process : server_.children()) {
      if (known_.insert(process).second) served.process = process;
    }
    EXPECT_NE(served.process, 0);
    return served;
  }

  wire::TokenKey key_{};
  tests::ServerProcess server_;
  std::set<pid_t> known_;
};

TEST_F(HostileTokens, SessionsProcessesHaveForgottenTheKey) {
  const Bytes key = bytes_at(key_.data(), key_.size());
  EXPECT_TRUE(knows(server_.pid(), key));
  Served first = begin();
  EXPECT_FALSE(knows(first.process, key));
  ASSERT_EQ(::kill(first.process, SIGKILL), 0);
  const Served second = begin(first.welcome.recovery);
  EXPECT_FALSE(knows(second.process, key));
}

TEST_F(HostileTokens, OneSessionsProcessDoesNotKnowHowToJoinAnotherSession) {
  const Served first = begin();
  const Bytes token = bytes_at(first.welcome.token.data(), first.welcome.token.size());
  ASSERT_NE(first.welcome.token, wire::SessionToken{});
  EXPECT_TRUE(knows(server_.pid(), token));
  const Served second = begin();
  EXPECT_FALSE(knows(second.process, token));
}

}  // namespace
}  // namespace flyt::sim
