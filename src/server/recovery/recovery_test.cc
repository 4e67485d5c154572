// Recovery: a session that goes on has so much time to be as it was.
#include "server/recovery/recovery.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/testing/forks.h"

namespace flyt::server {
namespace {

constexpr std::uint32_t kUser = 7;

TEST(Recovery, IsOverdueWhenItTakesTooLong) {
  auto door = make_door();
  ASSERT_TRUE(door.ok());
  const KeeperOptions options{.keeps = std::chrono::seconds(60)};
  std::thread keeper([&] { run_keeper(std::move(door->inside), options); });
  int ends[2];
  ASSERT_EQ(0, ::pipe2(ends, O_CLOEXEC));
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  wire::ClientHello hello;
  hello.recoverable = true;
  wait_until_other_threads_sleep();
  const pid_t killed = ::fork();
  if (killed == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Recovery before(door->outside.get(), kUser, 1);
    static_cast<void>(before.begin(hello));
    const wire::SessionToken token = before.token();
    [[maybe_unused]] const ssize_t told = ::write(writing.get(), token.data(), token.size());
    while (true) ::pause();
  }
  writing.close();
  ASSERT_EQ(static_cast<ssize_t>(hello.recovers.size()),
            ::read(reading.get(), hello.recovers.data(), hello.recovers.size()));
  ::kill(killed, SIGKILL);
  ::waitpid(killed, nullptr, 0);
  {
    Recovery recovery(door->outside.get(), kUser, 2);
    const Status begun = recovery.begin(hello);
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    const Instant now = system_clock().now();
    const Instant late = now + kRestoringMax + std::chrono::seconds(1);
    EXPECT_TRUE(recovery.restoring());
    EXPECT_FALSE(recovery.overdue(now));
    EXPECT_TRUE(recovery.overdue(late));
    recovery.end_restoring();
    EXPECT_FALSE(recovery.overdue(late));
    recovery.end();
  }
  door->outside.close();
  keeper.join();
}

}  // namespace
}  // namespace flyt::server
