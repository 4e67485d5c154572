// Sessions that go on with links, memory of the host and of other devices that kernels reach,
// arrays, textures and surfaces.
#include "tests/recovery/recovery_fixture.h"

namespace flyt::tests {
namespace {

class BelongingsTest : public RecoveryTest {
 protected:
  // The session has not ended with its process, and is as good as before.
  void expect_use(const std::unique_ptr<kill::Child>& child, const std::string& use) {
    kill_idle();
    // Who waits notices; work that is sent to a process that is gone is lost.
    ASSERT_EQ("0", ask(child, "sync")) << server_->log();
    ASSERT_EQ("ok", ask(child, use)) << server_->log();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
  // It goes on in one process, and in the next.
  void expect_uses(const std::unique_ptr<kill::Child>& child, const std::string& use) {
    ASSERT_EQ("ok", ask(child, use)) << server_->log();
    for (int i = 0; i < 2; ++i) ASSERT_NO_FATAL_FAILURE(expect_use(child, use));
  }
  void expect_lost(const std::unique_ptr<kill::Child>& child) {
    kill_idle();
    EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
  }
  static void do_all(const std::unique_ptr<kill::Child>& child,
                     const std::vector<std::string>& requests) {
    for (const std::string& request : requests) ASSERT_EQ("0", ask(child, request)) << request;
  }
};

TEST_P(BelongingsTest, ALinkGoesOnAtEachOfItsSteps) {
  start();
  const auto child = client();
  for (const char* step : {"link-begin", "link-caller", "link-callee", "link-complete"}) {
    ASSERT_EQ("0", ask(child, step)) << server_->log();
    kill_idle();
  }
  EXPECT_EQ("ok", ask(child, "link-run")) << server_->log();
  kill_idle();
  EXPECT_EQ("0", ask(child, "link-end")) << server_->log();
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "link-run"));
}

TEST_P(BelongingsTest, ALinkThatFailedSpoilsAsLongAsItLives) {
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"link-begin", "link-caller"}));
  ASSERT_NE("0", ask(child, "link-nonsense"));
  ASSERT_EQ("0", ask(child, "link-end"));
  // Nobody waits for its end otherwise.
  ASSERT_EQ("0", ask(child, "sync"));
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "use"));
  ASSERT_EQ("0", ask(child, "link-begin"));
  ASSERT_NE("0", ask(child, "link-nonsense"));
  expect_lost(child);
}

TEST_P(BelongingsTest, HostMemoryThatKernelsReachHoldsWhatItHeld) {
  start({"--recover", "10", "--memory", "1G"});
  const auto child = client();
  // Its code counts, too.
  ASSERT_EQ("ok", ask(child, "reach-check"));
  const std::uint64_t before = used();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"reach-managed", "reach-registered", "reach-pinned"}));
  ASSERT_NO_FATAL_FAILURE(expect_uses(child, "reach-use"));
  // What kernels wrote arrives although nobody has waited for it.
  ASSERT_EQ("0", ask(child, "reach-launch"));
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "reach-check"));
  ASSERT_EQ("0", ask(child, "reach-end")) << server_->log();
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "reach-use"));
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() == before; })) << used() << " " << before;
}

TEST_P(BelongingsTest, ArraysTexturesAndSurfacesAreWhatTheyWere) {
  start({"--recover", "10", "--memory", "1G"});
  const auto child = client();
  const std::uint64_t before = used();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"image-linear", "image-array", "image-gap 5",
                                         "image-surface", "image-layers", "image-mipmapped"}));
  ASSERT_NO_FATAL_FAILURE(expect_uses(child, "image-use"));
  ASSERT_EQ("0", ask(child, "image-end")) << server_->log();
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "image-use"));
  // Its linear memory is left.
  EXPECT_TRUE(eventually(kSeconds, [&] { return used() <= before + 2 * kMiB; })) << used();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"image-array", "image-surface"}));
  ASSERT_NO_FATAL_FAILURE(expect_uses(child, "image-use"));
}

TEST_P(BelongingsTest, ATextureThatMayNotBeUsedAnyMoreIsNotMissed) {
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"image-linear", "image-array", "image-forget-memory"}));
  ASSERT_NO_FATAL_FAILURE(expect_uses(child, "image-use"));
}

INSTANTIATE_TEST_SUITE_P(Shm, BelongingsTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Unix, BelongingsTest, ::testing::Values("unix"));
INSTANTIATE_TEST_SUITE_P(Tcp, BelongingsTest, ::testing::Values("tcp://127.0.0.1:0"));

// What is the same over every transport.
class BelongingsOnceTest : public BelongingsTest {};

TEST_P(BelongingsOnceTest, MoreArraysThanAreSavedSpoilAsLongAsTheyLive) {
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"image-array", "image-large 268435456"}));
  ASSERT_EQ("0", ask(child, "image-large-end"));
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "image-use"));
  ASSERT_EQ("0", ask(child, "image-large 268435456"));
  expect_lost(child);
}

TEST_P(BelongingsOnceTest, ATextureThatCannotHaveItsValueIsALostServer) {
  if (!over_soft_gpu()) GTEST_SKIP() << "other drivers give values in another order";
  start();
  const auto child = client();
  ASSERT_NO_FATAL_FAILURE(do_all(child, {"image-linear", "image-gap 16400", "image-array"}));
  expect_lost(child);
}

TEST_P(BelongingsOnceTest, WhatKernelsWriteToHostMemoryUnderWayIsAnError) {
  start();
  const auto child = client();
  ASSERT_EQ("0", ask(child, "reach-managed"));
  ASSERT_NO_FATAL_FAILURE(begin_work(child, "hang"));
  kill_at_work();
  EXPECT_EQ(kLaunchFailed, ask(child, "sync")) << server_->log();
  EXPECT_EQ("ok", ask(child, "rescue")) << server_->log();
  EXPECT_EQ("ok", ask(child, "reset")) << server_->log();
  ASSERT_NO_FATAL_FAILURE(expect_use(child, "use"));
}

INSTANTIATE_TEST_SUITE_P(Tcp, BelongingsOnceTest, ::testing::Values("tcp://127.0.0.1:0"));

// A server of two devices that reach each other's memory.
class PeersTest : public BelongingsTest {
 protected:
  PeersTest() { ::setenv("FLYT_SOFTGPU_DEVICES", "2", 1); }
  ~PeersTest() override { ::unsetenv("FLYT_SOFTGPU_DEVICES"); }
  void SetUp() override { need_soft_gpu(); }
};

TEST_P(PeersTest, MemoryOfAnotherDeviceIsReachedAgain) {
  for (const char* kind : {"reach-peer", "reach-pool", "reach-mapped"}) {
    start();
    const auto child = client();
    ASSERT_EQ("0", ask(child, kind));
    ASSERT_NO_FATAL_FAILURE(expect_uses(child, "reach-use"));
  }
}

// It is as it is in a process that nobody has killed.
TEST_P(PeersTest, MemoryThatWasClosedStaysSo) {
  for (const char* kind : {"reach-peer", "reach-pool"}) {
    start();
    const auto child = client();
    ASSERT_NO_FATAL_FAILURE(do_all(child, {kind, "reach-close"}));
    kill_idle();
    ASSERT_EQ("0", ask(child, "sync"));
    ASSERT_EQ("0", ask(child, "reach-launch")) << server_->log();
    EXPECT_NE("0", ask(child, "reach-sync"));
  }
}

INSTANTIATE_TEST_SUITE_P(Tcp, PeersTest, ::testing::Values("tcp://127.0.0.1:0"));

}  // namespace
}  // namespace flyt::tests
