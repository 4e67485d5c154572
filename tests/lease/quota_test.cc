// One quota of memory for all sessions of a lease, whatever allocates.
#include <signal.h>

#include <array>

#include "tests/lease/tenant.h"

namespace flyt::tests {
namespace {

constexpr const char* kOk = "0";
constexpr const char* kFull = "2";

class Quota : public LeaseTest {};

TEST_F(Quota, IsWhatTheTenantSeesOfTheGpu) {
  ::setenv("FLYT_SOFTGPU_DEVICES", "3", 1);
  start({"--lease", "vm-7", "--gpu", "1", "--memory", "256M"});
  ::unsetenv("FLYT_SOFTGPU_DEVICES");
  const auto a = tenant();
  EXPECT_EQ(ask(a, "info"), "256 256 256");
  EXPECT_EQ(ask(a, "devices"), "1 0000:02:00.0");
  EXPECT_EQ(ask(a, "alloc", 100), kOk);
  EXPECT_EQ(ask(a, "info"), "156 256 256");
  const auto b = tenant();
  EXPECT_EQ(ask(b, "info"), "156 256 256");
  const auto state = control()->describe();
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->lease, "vm-7");
  EXPECT_EQ(state->memory_limit, 256 * kMiB);
  EXPECT_EQ(state->memory_used, 100 * kMiB);
  EXPECT_EQ(state->gpu_memory, 2 * kGiB);
  EXPECT_EQ(state->sessions, 2U);
  EXPECT_EQ(state->gpu_uuid, "GPU-f11750f7-6b70-4a31-9c2e-5d0e77130001");
}

TEST_F(Quota, IsSharedByTheProcessesOfALease) {
  start({"--memory", "256M"});
  const auto a = tenant();
  const auto b = tenant();
  EXPECT_EQ(ask(a, "alloc", 150), kOk);
  EXPECT_EQ(ask(b, "alloc", 150), kFull);
  EXPECT_EQ(ask(b, "alloc", 106), kOk);
  EXPECT_EQ(ask(b, "info"), "0 256 256");
  EXPECT_EQ(ask(a, "alloc", 2), kFull);
  EXPECT_EQ(ask(b, "free"), kOk);
  // The other process gives up what lies idle there as soon as it comes to that.
  EXPECT_TRUE(eventually(kSeconds, [&] { return ask(a, "alloc", 106) == kOk; }));
}

TEST_F(Quota, OfAKilledProcessIsBack) {
  start({"--memory", "256M"});
  auto a = tenant();
  const auto b = tenant();
  EXPECT_EQ(ask(a, "alloc", 200), kOk);
  EXPECT_EQ(ask(a, "array", 20), kOk);
  EXPECT_EQ(ask(b, "alloc", 200), kFull);
  a->kill();
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; }));
  EXPECT_EQ(ask(b, "alloc", 256), kOk);
}

TEST_F(Quota, HoldsForAServerProcessThatIsKilled) {
  start({"--memory", "256M"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "alloc", 256), kOk);
  const auto sessions = control()->sessions();
  ASSERT_TRUE(sessions.ok());
  ASSERT_EQ(sessions->size(), 1U);
  ::kill(static_cast<pid_t>(sessions->front().server_process), SIGKILL);
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == 0; }));
  const auto b = tenant();
  EXPECT_EQ(ask(b, "alloc", 256), kOk);
}

// Each takes all but a little of the lease, and gives it back.
TEST_F(Quota, HoldsForWhateverAllocates) {
  start({"--memory", "64M"});
  const auto a = tenant();
  const std::array<std::array<const char*, 2>, 7> pairs = {{{"alloc", "free"},
                                                            {"create", "release"},
                                                            {"array", "array-free"},
                                                            {"module", "module-free"},
                                                            {"library", "library-free"},
                                                            {"managed", "managed-free"},
                                                            {"graph", "graph-free"}}};
  for (const auto& [take, give] : pairs) {
    SCOPED_TRACE(take);
    EXPECT_EQ(ask(a, take, 70), kFull);
    // What was freed before is given back when the GPU has passed.
    EXPECT_TRUE(eventually(kSeconds, [&] { return ask(a, take, 40) == kOk; }));
    EXPECT_EQ(ask(a, "alloc", 30), kFull);
    EXPECT_EQ(ask(a, give, 0), kOk);
    EXPECT_EQ(ask(a, "alloc", 64), kOk);
    EXPECT_EQ(ask(a, "free"), kOk);
  }
  EXPECT_EQ(ask(a, "mipmap", 60), kFull);
  EXPECT_EQ(ask(a, "mipmap", 40), kOk);
  EXPECT_EQ(ask(a, "alloc", 16), kFull);
}

TEST_F(Quota, HoldsForPools) {
  start({"--memory", "64M"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "pool", 70), kFull);
  EXPECT_EQ(ask(a, "pool", 40), kOk);
  EXPECT_EQ(ask(a, "alloc", 32), kFull);
  EXPECT_EQ(ask(a, "pool-free"), kOk);
  EXPECT_EQ(ask(a, "alloc", 60), kOk);
}

TEST_F(Quota, HoldsForCapturedAllocations) {
  start({"--memory", "64M"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "capture", 70), kFull);
  EXPECT_EQ(ask(a, "capture", 40), kOk);
  EXPECT_EQ(ask(a, "alloc", 30), kFull);
  EXPECT_EQ(ask(a, "graph-free"), kOk);
  EXPECT_EQ(ask(a, "alloc", 60), kOk);
}

TEST_F(Quota, CountsReleasedMemoryUntilItIsUnmapped) {
  start({"--memory", "64M"});
  const auto a = tenant();
  EXPECT_EQ(ask(a, "create", 64), kOk);
  EXPECT_EQ(ask(a, "map", 64), kOk);
  EXPECT_EQ(ask(a, "release"), kOk);
  EXPECT_EQ(ask(a, "alloc", 2), kFull);
  EXPECT_EQ(ask(a, "unmap", 64), kOk);
  EXPECT_EQ(ask(a, "alloc", 64), kOk);
}

TEST_F(Quota, IsNotOvercomeByImpossibleSizes) {
  start({"--memory", "64M"});
  const auto a = tenant();
  constexpr std::array<std::uint64_t, 5> kSizes = {~std::uint64_t{0}, ~std::uint64_t{0} - (2 << 20),
                                                   std::uint64_t{1} << 63, std::uint64_t{1} << 48,
                                                   std::uint64_t{65} << 20};
  for (const std::uint64_t size : kSizes) {
    for (const char* what : {"alloc", "create", "pool", "module", "library", "graph", "managed"}) {
      EXPECT_NE(ask(a, std::string(what) + " " + std::to_string(size)), kOk) << what << size;
    }
  }
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(ask(a, "alloc", 64), kOk);
}

// What lies idle in one process for its next allocation is there for the others, at once.
TEST_F(Quota, IsNotHeldByWhatLiesIdle) {
  start({"--memory", "64M"});
  const auto a = tenant();
  const auto b = tenant();
  EXPECT_EQ(ask(a, "alloc", 60), kOk);
  EXPECT_EQ(ask(a, "free"), kOk);
  EXPECT_EQ(ask(a, "wait"), kOk);
  EXPECT_EQ(ask(b, "alloc", 60), kOk);
}

TEST_F(Quota, IsRefusedWhereTheGpuHasLess) {
  using Arguments = std::vector<std::string>;
  for (const Arguments& arguments :
       {Arguments{"--memory", "3G"}, Arguments{"--gpu", "7"}, Arguments{"--gpu", "GPU-1"},
        Arguments{"--lease", "a/b"}, Arguments{"--control", "tcp://127.0.0.1:0"}}) {
    ServerProcess server;
    const Status started =
        server.start({.program = server_program(), .listen = "", .arguments = arguments});
    EXPECT_FALSE(started.ok()) << arguments.front() << " " << arguments.back();
  }
}

// A session that has no place would have no quota either, and one whose client does not come back
// keeps nobody out. What is given up for a newcomer is the oldest, and one alone.
TEST_F(Quota, IsNotGotRoundByLeavingSessionsThatMayGoOn) {
  start({"--memory", "64M", "--max-sessions", "1", "--recover", "600"});
  // Of the sessions, those that go on, and those who only ask.
  constexpr std::size_t kPlaces = 1 + 1 + 16;
  for (std::size_t sessions = 0; sessions < kPlaces + 3; ++sessions) {
    const auto program = tenant();
    ASSERT_EQ(ask(program, "alloc", 2), kOk) << server_.log();
    const auto there = control()->sessions();
    ASSERT_TRUE(there.ok() && there->size() == 1) << server_.log();
    const auto process = static_cast<pid_t>(there->front().server_process);
    // It shall not come back.
    ASSERT_EQ(::kill(program->pid(), SIGSTOP), 0);
    ASSERT_EQ(::kill(process, SIGKILL), 0);
    ASSERT_TRUE(eventually(kSeconds, [&] { return ::kill(process, 0) != 0; }));
  }
  EXPECT_EQ(used(), kPlaces * 2 * kMiB);
}

}  // namespace
}  // namespace flyt::tests
