// What the client library and a session's process may use, counted in processes of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/budget/allocations.h"
#include "tests/budget/client.h"
#include "tests/kill/child.h"
#include "tests/support/server_process.h"

namespace flyt::budget {
namespace {

constexpr double kSlow = 120;
// Beyond what the driver takes in a program that uses it directly.
constexpr long kSessionKibMax = 20 * 1024;

// The number behind "name=" in `text`; -1 if it has none.
long field(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name + "=");
  return at == std::string::npos ? -1 : std::atol(text.c_str() + at + name.size() + 1);
}

class BudgetTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tests::ServerOptions options;
    options.program = tests::server_program();
    options.driver = "soft";
    options.listen = GetParam();
    const auto started = server_.start(options);
    ASSERT_TRUE(started.ok()) << started.error().message;
  }
  tests::ServerProcess server_;
};

TEST(Allocations, AreCountedWhereTheyAreMade) {
  const Allocations before = allocations();
  const std::string one(200, 'x');
  const std::string another(300, 'y');
  const Allocations after = allocations();
  EXPECT_EQ(2, after.here - before.here) << one << another;
}

TEST_P(BudgetTest, PostedLaunchesAllocateNothing) {
  kill::Child client("launches", 0, server_.url());
  ASSERT_TRUE(client.wrote("ready\n", kSlow)) << client.output() << server_.log();
  ASSERT_EQ(0, field(client.output(), "result")) << client.output();
  EXPECT_EQ(0, field(client.output(), "here")) << client.output();
  EXPECT_EQ(0, field(client.output(), "elsewhere")) << client.output();
  client.close_stdin();
  EXPECT_EQ(0, client.wait(kSlow)) << client.output();
}

TEST_P(BudgetTest, ASessionTakesLittleBesideItsDriver) {
  kill::Child native("native", 0, "");
  ASSERT_TRUE(native.wrote("ready\n", kSlow)) << native.output();
  ASSERT_EQ(0, field(native.output(), "result")) << native.output();
  kill::Child client("remote", 0, server_.url());
  ASSERT_TRUE(client.wrote("ready\n", kSlow)) << client.output() << server_.log();
  ASSERT_EQ(0, field(client.output(), "result")) << client.output();
  const std::string log = server_.log();
  const std::size_t started = log.find("session started");
  ASSERT_NE(std::string::npos, started) << log;
  const auto session = static_cast<int>(field(log.substr(log.find(" pid=", started)), " pid"));
  const std::vector<pid_t> children = server_.children();
  ASSERT_NE(children.end(), std::find(children.begin(), children.end(), session)) << log;
  const long resident = status_kib(session, "VmRSS");
  const long anonymous = status_kib(session, "RssAnon");
  ASSERT_GT(resident, 0) << log;
  std::printf("session: %ld KiB resident, %ld of them anonymous; %s", resident, anonymous,
              native.output().c_str());
  EXPECT_LE(resident - field(native.output(), "rss_kib"), kSessionKibMax);
  EXPECT_LE(anonymous - field(native.output(), "anonymous_kib"), kSessionKibMax);
}

INSTANTIATE_TEST_SUITE_P(, BudgetTest, ::testing::Values("shm", "unix", "tcp://127.0.0.1:0"));

}  // namespace
}  // namespace flyt::budget

int main(int argc, char** argv) {
  if (argc >= 3 && std::string(argv[1]) == "--client") return flyt::budget::run_client(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
