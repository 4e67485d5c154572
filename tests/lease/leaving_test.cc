// The process of a program that has ended may take a driver a while to let go. Natively a program's
// memory is free and its place is empty when it has ended, so the next one may begin at once.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <thread>

#include "tests/lease/tenant.h"

namespace flyt::tests {
namespace {

class Leaving : public LeaseTest {
 protected:
  // Has a program that had `mebibytes` end, but not its process at the server, which the server's
  // parent hears of when let_go() has. Skips the test where nobody can be traced.
  void leave(std::uint64_t mebibytes) {
    auto first = tenant();
    ASSERT_EQ(ask(first, "alloc", mebibytes), "0");
    process_ = newest();
    if (::ptrace(PTRACE_SEIZE, process_, nullptr, nullptr) != 0) GTEST_SKIP() << "traces nobody";
    first.reset();
    ASSERT_TRUE(server_.logged("session ended", kSeconds)) << server_.log();
  }
  void let_go() { EXPECT_EQ(process_, ::waitpid(process_, nullptr, __WALL)); }

  // The process of the session that came last.
  pid_t newest() {
    const auto sessions = control()->sessions();
    return sessions.ok() && !sessions->empty() ? static_cast<pid_t>(sessions->back().server_process)
                                               : 0;
  }

 private:
  pid_t process_ = 0;
};

TEST_F(Leaving, IsInNobodysWayInAFullServer) {
  start({"--max-sessions", "1"});
  leave(1);
  if (IsSkipped()) return;
  std::thread lets_go([&] {
    EXPECT_TRUE(server_.logged("client waits for a place", kSeconds)) << server_.log();
    let_go();
  });
  EXPECT_EQ(ask(tenant(), "alloc", 1), "0") << server_.log();
  lets_go.join();
}

// Its process has not heard of that yet.
TEST_F(Leaving, IsInNobodysWayBeforeTheServerKnows) {
  start({"--max-sessions", "1"});
  auto first = tenant();
  const pid_t process = newest();
  ASSERT_EQ(::kill(process, SIGSTOP), 0);
  first.reset();
  std::thread goes_on([&] {
    EXPECT_TRUE(server_.logged("client waits for a place", kSeconds)) << server_.log();
    EXPECT_EQ(::kill(process, SIGCONT), 0);
  });
  EXPECT_EQ(ask(tenant(), "alloc", 1), "0") << server_.log();
  goes_on.join();
}

TEST_F(Leaving, IsInTheWayOnlyForSoLong) {
  start({"--max-sessions", "1"});
  leave(1);
  if (IsSkipped()) return;
  const auto refused = tenant(true);
  EXPECT_TRUE(server_.logged("too many sessions", kSeconds)) << server_.log();
  let_go();
  EXPECT_EQ(ask(tenant(), "alloc", 1), "0") << server_.log();
}

TEST_F(Leaving, HasNoMoreMemoryThanTheNextOneFinds) {
  start({"--memory", "64M"});
  leave(48);
  if (IsSkipped()) return;
  const auto next = tenant();
  const pid_t process = newest();
  const std::uint64_t before = sleeps(process);
  std::string found;
  std::thread asks([&] { found = ask(next, "info"); });
  EXPECT_TRUE(eventually(kSeconds, [&] { return sleeps(process) >= before + 20; }));
  let_go();
  asks.join();
  EXPECT_EQ(found.substr(0, found.rfind(' ')), "64 64");
  EXPECT_EQ(ask(next, "alloc", 48), "0");
}

// As in a call that a driver does not return from: the process ends itself a while later.
TEST_F(Leaving, HasNoMoreMemoryWhileItsProcessIsInTheDriver) {
  start({"--memory", "64M"});
  auto first = tenant();
  ASSERT_EQ(ask(first, "alloc", 48), "0");
  const pid_t process = newest();
  // Its main thread alone.
  if (::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) != 0) GTEST_SKIP() << "traces nobody";
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(process, nullptr, __WALL), process);
  std::thread ends([&] {
    EXPECT_TRUE(server_.logged("while the driver was busy", kSeconds)) << server_.log();
    EXPECT_EQ(process, ::waitpid(process, nullptr, __WALL));
  });
  first.reset();
  EXPECT_EQ(ask(tenant(), "alloc", 48), "0") << server_.log();
  ends.join();
}

TEST_F(Leaving, IsNotWaitedForWithoutEnd) {
  start({"--memory", "64M"});
  leave(48);
  if (IsSkipped()) return;
  const std::string found = ask(tenant(), "info");
  EXPECT_EQ(found.substr(0, found.rfind(' ')), "16 64");
  let_go();
}

}  // namespace
}  // namespace flyt::tests
