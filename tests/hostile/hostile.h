// Hostile: a fixture with one real server that tests attack, and an innocent session that must
// never notice.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/hostile/peer.h"
#include "tests/support/server_process.h"

namespace flyt::sim {

class HostileTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { start_server({}); }
  static void TearDownTestSuite();
  void SetUp() override;
  // The server lives, nobody is a zombie, the innocent session answers.
  void TearDown() override;

  static void start_server(const std::vector<std::string>& arguments,
                           const std::string& listen = {});
  // One for all tests of the program: starting costs more than an attack.
  static tests::ServerProcess& server();
  Peer attacker();
  Peer stranger();  // Connected, not greeted.

  std::unique_ptr<Peer> innocent;
};

}  // namespace flyt::sim
