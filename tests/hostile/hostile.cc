#include "tests/hostile/hostile.h"

#include <cstdlib>

namespace flyt::sim {
namespace {

std::unique_ptr<tests::ServerProcess>& shared() {
  static std::unique_ptr<tests::ServerProcess> server;
  return server;
}

}  // namespace

void HostileTest::start_server(const std::vector<std::string>& arguments,
                               const std::string& listen) {
  shared() = std::make_unique<tests::ServerProcess>();
  tests::ServerOptions options;
  options.program = tests::server_program();
  options.arguments = arguments;
  options.listen = listen;
  const auto started = shared()->start(options);
  ASSERT_TRUE(started.ok()) << started.error().message;
}

void HostileTest::TearDownTestSuite() { shared().reset(); }

tests::ServerProcess& HostileTest::server() { return *shared(); }

void HostileTest::SetUp() {
  auto peer = Peer::greeted(server().url());
  ASSERT_TRUE(peer.ok()) << peer.error().message << "\n" << server().log();
  innocent = std::make_unique<Peer>(std::move(*peer));
}

void HostileTest::TearDown() {
  ASSERT_TRUE(server().running()) << server().log();
  ASSERT_TRUE(innocent != nullptr && innocent->alive()) << server().log();
  innocent.reset();
  EXPECT_TRUE(tests::eventually(60, [] { return server().children().empty(); }))
      << server().children().size() << " session processes are left\n"
      << server().log();
}

Peer HostileTest::attacker() {
  auto peer = Peer::greeted(server().url());
  if (!peer) {
    ADD_FAILURE() << peer.error().message << "\n" << server().log();
    std::abort();
  }
  return std::move(*peer);
}

Peer HostileTest::stranger() {
  auto peer = Peer::connect(server().url());
  if (!peer) {
    ADD_FAILURE() << peer.error().message << "\n" << server().log();
    std::abort();
  }
  return std::move(*peer);
}

}  // namespace flyt::sim
