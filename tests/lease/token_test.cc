// Tokens: who gets a session of a server that wants them.
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "base/wall_clock.h"
#include "control/client/server_info.h"
#include "rpc/no_pushes.h"
#include "tests/lease/tenant.h"
#include "transport/transport.h"
#include "wire/hello.h"
#include "wire/token.h"

namespace flyt::tests {
namespace {

class Tokens : public LeaseTest {
 protected:
  void SetUp() override { start_with({}); }
  void start_with(const std::vector<std::string>& further) {
    key_[3] = std::byte{7};
    const std::string path = ::testing::TempDir() + "flyt-token-key-" + std::to_string(::getpid());
    std::ofstream(path).write(static_cast<const char*>(static_cast<const void*>(key_.data())),
                              static_cast<std::streamsize>(key_.size()));
    ::chmod(path.c_str(), 0600);
    std::vector<std::string> arguments = {"--lease", "vm", "--memory", "64M", "--token-key", path};
    arguments.insert(arguments.end(), further.begin(), further.end());
    start(std::move(arguments));
    ::unlink(path.c_str());
  }
  void TearDown() override {
    ::unsetenv("FLYT_TOKEN");
    ::unsetenv("FLYT_TOKEN_FILE");
  }

  std::string token(std::uint32_t sessions = 1, std::int64_t seconds = 60,
                    const std::string& lease = "vm") {
    wire::Token made{.lease = lease, .expiry = unix_seconds() + seconds, .sessions = sessions};
    made.nonce[0] = static_cast<std::byte>(++made_);
    return wire::sign(made, key_);
  }
  // Whether a client with that token gets a session.
  bool admits(const std::string& text) {
    ::setenv("FLYT_TOKEN", text.c_str(), 1);
    const auto client = tenant(true);
    return client->wrote("\n", kSeconds) && client->output() == "ready\n";
  }

  wire::TokenKey key_{};
  int made_ = 0;
};

TEST_F(Tokens, AdmitTheSessionsThatTheySay) {
  const std::string two = token(2);
  EXPECT_TRUE(admits(two));
  EXPECT_TRUE(admits(two));
  EXPECT_FALSE(admits(two));
  EXPECT_TRUE(server_.logged("the token is used up", kSeconds)) << server_.log();
  EXPECT_TRUE(admits(token()));
}

TEST_F(Tokens, AreNeededAndMustBeGood) {
  EXPECT_FALSE(admits(""));
  EXPECT_TRUE(server_.logged("a token is needed", kSeconds));
  EXPECT_FALSE(admits("let me in"));
  EXPECT_TRUE(server_.logged("the credential is no token", kSeconds));
  EXPECT_FALSE(admits(token(1, -1)));
  EXPECT_TRUE(server_.logged("the token has expired", kSeconds));
  EXPECT_FALSE(admits(token(1, 100000)));
  EXPECT_TRUE(server_.logged("the token is valid for too long", kSeconds));
  EXPECT_FALSE(admits(token(1, 60, "vm-2")));
  EXPECT_TRUE(server_.logged("the token is of another lease", kSeconds));
  std::string forged = token();
  forged.back() = forged.back() == '0' ? '1' : '0';
  EXPECT_FALSE(admits(forged));
  EXPECT_TRUE(server_.logged("the token is not of this server", kSeconds));
  EXPECT_TRUE(admits(token()));
}

class TokensInAFullServer : public Tokens {
 protected:
  void SetUp() override { start_with({"--max-sessions", "1"}); }
};

TEST_F(TokensInAFullServer, AreJudgedBeforeAnybodyWaits) {
  const std::string used = token();
  ::setenv("FLYT_TOKEN", used.c_str(), 1);
  const auto first = tenant();
  EXPECT_FALSE(admits(""));
  EXPECT_TRUE(server_.logged("a token is needed", kSeconds)) << server_.log();
  EXPECT_FALSE(admits(used));
  EXPECT_TRUE(server_.logged("the token is used up", kSeconds)) << server_.log();
  EXPECT_EQ(server_.log().find("client waits for a place"), std::string::npos) << server_.log();
}

TEST_F(TokensInAFullServer, AreNotUsedByWaiting) {
  const std::string one = token();
  ::setenv("FLYT_TOKEN", token().c_str(), 1);
  auto first = tenant();
  EXPECT_FALSE(admits(one));
  EXPECT_TRUE(server_.logged("too many sessions", kSeconds)) << server_.log();
  first.reset();
  EXPECT_TRUE(admits(one)) << server_.log();
}

class TokensOnAFullGpu : public Tokens {
 protected:
  void SetUp() override { start_with({"--gpu-room", room_, "--gpu-sessions", "1"}); }
  ~TokensOnAFullGpu() override { ::unlink(room_.c_str()); }

 private:
  const std::string room_ = ::testing::TempDir() + "flyt-token-room-" + std::to_string(::getpid());
};

TEST_F(TokensOnAFullGpu, AreNotUsedByWhoIsRefused) {
  const std::string one = token();
  ::setenv("FLYT_TOKEN", token().c_str(), 1);
  auto first = tenant();
  EXPECT_FALSE(admits(one));
  EXPECT_TRUE(server_.logged("the GPU is full", kSeconds)) << server_.log();
  // The process that has said so has ended.
  EXPECT_TRUE(eventually(kSeconds, [&] { return server_.children().size() == 1; }));
  first.reset();
  EXPECT_TRUE(admits(one)) << server_.log();
  EXPECT_FALSE(admits(one));
}

TEST_F(Tokens, ComeFromTheServersControl) {
  const auto client = control();
  EXPECT_TRUE(client->describe()->tokens);
  const auto made = client->new_token(60, 1);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(admits(*made));
  EXPECT_FALSE(admits(*made));
  EXPECT_EQ(client->new_token(0, 1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(client->new_token(60, 0).error().code, ErrorCode::kInvalid);
}

TEST_F(Tokens, AreReadFromAFileAtEverySession) {
  const std::string path = folder() + "/token";
  ::setenv("FLYT_TOKEN_FILE", path.c_str(), 1);
  const auto ready = [&] {
    const auto client = tenant(true);
    return client->wrote("\n", kSeconds) && client->output() == "ready\n";
  };
  EXPECT_FALSE(ready());
  std::ofstream(path) << token() << "\n";
  EXPECT_TRUE(ready());
  EXPECT_FALSE(ready());
  std::ofstream(path, std::ios::trunc) << token();
  EXPECT_TRUE(ready());
  std::ofstream(path, std::ios::trunc) << std::string(5000, 'x');
  EXPECT_FALSE(ready());
}

// `flyt run` asks first whether there is a server; that takes no session of the token.
TEST_F(Tokens, AreForTheProgramThatIsRun) {
  const std::string path = folder() + "/token";
  std::ofstream(path) << token();
  const std::string flyt = "'" + server_program().substr(0, server_program().rfind('/')) +
                           "/flyt' run --server '" + server_.url() + "' --token-file '" + path +
                           "' -- /bin/true";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(std::system(flyt.c_str()), 0);
  ::setenv("FLYT_TOKEN_FILE", path.c_str(), 1);
  EXPECT_TRUE(control::greet(server_.url()).ok());
  ::unsetenv("FLYT_TOKEN_FILE");
  const auto refused = control::greet(server_.url());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDenied);
  EXPECT_TRUE(admits([&] {
    std::string text;
    std::ifstream(path) >> text;
    return text;
  }()));
}

class TokensWithRecovery : public Tokens {
 protected:
  void SetUp() override { start_with({"--recover", "10"}); }
  // What becomes of a hello without a credential that says which session it goes on with.
  ErrorCode knock(wire::ConnectionRole role) {
    wire::ClientHello hello;
    hello.role = role;
    hello.recoverable = true;
    hello.recovers[0] = 1;
    return knock(hello);
  }
  ErrorCode knock(const wire::ClientHello& hello) {
    rpc::NoPushes pushes;
    const auto url = transport::parse_url(server_.url());
    const Instant deadline = system_clock().now() + std::chrono::seconds(10);
    auto connection = transport::connect(*url, deadline);
    if (!connection) return connection.error().code;
    const auto channel = rpc::Channel::open(std::move(*connection), hello, deadline, pushes);
    return channel ? ErrorCode::kInvalid : channel.error().code;
  }
};

TEST_F(TokensWithRecovery, AreNeededByMonitorsThatSayTheyGoOn) {
  EXPECT_EQ(knock(wire::ConnectionRole::kMonitor), ErrorCode::kDenied) << server_.log();
  EXPECT_TRUE(server_.logged("a token is needed", kSeconds)) << server_.log();
}

TEST_F(TokensWithRecovery, OfSessionsMustBeOfOneThatIsKept) {
  EXPECT_EQ(knock(wire::ConnectionRole::kCommands), ErrorCode::kDenied) << server_.log();
  EXPECT_TRUE(server_.logged("nothing is kept of such a session", kSeconds)) << server_.log();
}

class TokensOfWarmServers : public TokensWithRecovery {
 protected:
  void SetUp() override {
    start_with({"--recover", "10", "--warm", "1"});
    ASSERT_TRUE(eventually(kSeconds, [&] { return server_.children().size() == 1; }));
    warm_ = server_.children();
  }

  std::vector<pid_t> warm_;
};

TEST_F(TokensOfWarmServers, ThatAreMadeUpCostNoWarmProcess) {
  for (int i = 0; i < 3; ++i) knock(wire::ConnectionRole::kCommands);
  EXPECT_EQ(server_.children(), warm_) << server_.log();
  wire::ClientHello hello;
  EXPECT_EQ(knock(hello), ErrorCode::kDenied);
  hello.credential = "let me in";
  EXPECT_EQ(knock(hello), ErrorCode::kDenied);
  EXPECT_EQ(server_.children(), warm_) << server_.log();
  EXPECT_TRUE(admits(token()));
}

TEST_F(TokensOfWarmServers, AreNotEvenLookedForInWhatIsNoHello) {
  const auto connection = transport::connect(*transport::parse_url(server_.url()),
                                             system_clock().now() + std::chrono::seconds(10));
  ASSERT_TRUE(connection.ok());
  const std::vector<std::byte> nonsense(wire::kHelloPrefixBytes, std::byte{7});
  const Bytes bytes(nonsense);
  ASSERT_TRUE((*connection)->write({&bytes, 1}, transport::Patience::kWait).ok());
  EXPECT_TRUE(server_.logged("client refused", kSeconds));
  EXPECT_EQ(server_.children(), warm_) << server_.log();
}

TEST_F(Tokens, AreNotMadeWhereNoneAreNeeded) {
  LeaseTest::server_.kill();
  ServerProcess plain;
  const std::string url = "unix://" + folder() + "/plain";
  ASSERT_TRUE(
      plain.start({.program = server_program(), .listen = "", .arguments = {"--control", url}})
          .ok());
  const auto client = control::ControlClient::connect(url);
  ASSERT_TRUE(client.ok());
  EXPECT_FALSE((*client)->describe()->tokens);
  EXPECT_EQ((*client)->new_token(60, 1).error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace flyt::tests
