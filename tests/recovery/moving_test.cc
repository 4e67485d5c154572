// Variables of code that are elsewhere in the process that goes on, and what keeps them in their
// places.
#include "tests/recovery/recovery_fixture.h"

namespace flyt::tests {
namespace {

// Variables are elsewhere in each process, as a driver may have it.
class MovingTest : public RecoveryTest {
 protected:
  MovingTest() { ::setenv("FLYT_SOFTGPU_VARIABLES_MOVE", "1", 1); }
  ~MovingTest() override { ::unsetenv("FLYT_SOFTGPU_VARIABLES_MOVE"); }
  void SetUp() override { need_soft_gpu(); }
  void expect_lost(const std::unique_ptr<kill::Child>& child, const std::string& why) {
    kill_idle();
    EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
    EXPECT_TRUE(server_->logged(why, kSeconds)) << server_->log();
  }
};

TEST_P(MovingTest, VariablesWhoseAddressesNobodyKnowsHoldWhatTheyHeld) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  ASSERT_EQ("0", ask(child, "large 5000000"));
  ASSERT_EQ("0", ask(child, "pools"));
  for (int i = 0; i < 2; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
    EXPECT_TRUE(server_->logged("nothing knows where they were", kSeconds)) << server_->log();
  }
}

TEST_P(MovingTest, InitialAddressesAreThoseOfTheNewProcess) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "pointers"));
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

// What is the same over every transport, and host memory that kernels reach, which has to be
// shared.
class MovingLostTest : public MovingTest {};

TEST_P(MovingLostTest, AnAddressThatTheProgramKnowsIsALostServer) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  ASSERT_EQ("ok", ask(child, "learn-more"));
  expect_lost(child, "the variable counter has another address in this process, and the program");
}

TEST_P(MovingLostTest, AnAddressInMemoryIsALostServer) {
  for (const char* kind : {"memory", "mapping", "pool", "hidden", "closed"}) {
    start();
    const auto child = client();
    ASSERT_EQ("ok", ask(child, "pointers"));
    ASSERT_EQ("0", ask(child, std::string("store-in-") + kind));
    expect_lost(child, "the variable hidden has another address in this process, and memory holds");
  }
}

TEST_P(MovingLostTest, AnAddressInAnotherVariableIsALostServer) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "pointers"));
  ASSERT_EQ("0", ask(child, "store-in-variable"));
  expect_lost(child, "another address in this process, and the variable note holds the old one");
}

TEST_P(MovingLostTest, MemoryThatIsMappedNowhereIsLookedThroughAndStaysAsItIs) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "pointers"));
  ASSERT_EQ("0", ask(child, "hide"));
  for (int i = 0; i < 2; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
    EXPECT_TRUE(server_->logged("nothing knows where they were", kSeconds)) << server_->log();
  }
  EXPECT_EQ("0", ask(child, "show"));
}

TEST_P(MovingLostTest, AnAddressInMemoryOfTheHostIsALostServer) {
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "pointers"));
  ASSERT_EQ("0", ask(child, "store-in-pinned"));
  expect_lost(child, "the variable hidden has another address in this process, and memory holds");
}

TEST_P(MovingLostTest, AServerThatIsToBeReplacedStaysWhereVariablesMustNotMove) {
  for (const auto& [code, pointer] :
       {std::pair("variables", "learn"), std::pair("pointers", "store-in-memory"),
        std::pair("pointers", "store-in-variable")}) {
    start({"--recover", "10", "--keeper", keeper_path(), "--handover-seconds", "1"});
    const auto child = client();
    ASSERT_EQ("ok", ask(child, code));
    ask(child, pointer);
    ASSERT_GT(server_->pid(), 1);
    ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
    EXPECT_TRUE(server_->logged("the server stays", kSeconds)) << pointer << server_->log();
    EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

TEST_P(MovingLostTest, AServerThatIsToBeReplacedEndsWhereVariablesMayMove) {
  start({"--recover", "1", "--keeper", keeper_path()});
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  ASSERT_GT(server_->pid(), 1);
  ASSERT_EQ(0, ::kill(server_->pid(), SIGUSR1));
  EXPECT_TRUE(server_->logged("the next server may take over", kSeconds)) << server_->log();
}

// What a process maps before its driver asks for addresses is another amount in each.
class RangesTest : public RecoveryTest {
 protected:
  RangesTest() { ::setenv("FLYT_SOFTGPU_MEMORY_MOVES", "1", 1); }
  ~RangesTest() override {
    ::unsetenv("FLYT_SOFTGPU_MEMORY_MOVES");
    ::unsetenv("FLYT_SOFTGPU_MEMORY");
  }
  void SetUp() override { need_soft_gpu(); }
};

TEST_P(RangesTest, AddressesThatTheProgramKnowsAreTheSameAgain) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer all addresses are the system's to give";
#endif
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  ASSERT_EQ("ok", ask(child, "learn"));
  ASSERT_EQ("ok", ask(child, "learn-more"));
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
}

TEST_P(RangesTest, AddressesThatAreTheSystemsToGiveAreOthers) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer the system gives every process the same";
#endif
  // A range for that is larger than any slot.
  ::setenv("FLYT_SOFTGPU_MEMORY", "8G", 1);
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  ASSERT_EQ("ok", ask(child, "learn"));
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
}

INSTANTIATE_TEST_SUITE_P(Shm, RangesTest, ::testing::Values("shm"));

// Variables are in chunks, and which the first one is, is another one in each process.
class PlacesTest : public RecoveryTest {
 protected:
  PlacesTest() { of(32); }
  ~PlacesTest() override { ::unsetenv("FLYT_SOFTGPU_VARIABLES_MOVE"); }
  void SetUp() override { need_soft_gpu(); }
  // So many places there are.
  static void of(int places) {
    ::setenv("FLYT_SOFTGPU_VARIABLES_MOVE", std::to_string(places).c_str(), 1);
  }
};

TEST_P(PlacesTest, AddressesThatTheProgramKnowsAreTheSameAgain) {
  start();
  const auto child = client();
  for (const char* code : {"placed-constant", "placed-module 1000", "placed-module 1500000",
                           "placed-module 1500000", "placed-module 5000000", "placed-library 3000",
                           "placed-library 1900000", "placed-elsewhere 1800000"}) {
    ASSERT_EQ("ok", ask(child, code)) << code << server_->log();
  }
  const std::string in_use = ask(child, "info");
  for (int i = 0; i < 3; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "placed-use")) << server_->log();
    // What held the places is gone.
    EXPECT_EQ(in_use, ask(child, "info"));
  }
  EXPECT_TRUE(server_->logged("looked for wanted=5 found=5", kSeconds)) << server_->log();
}

TEST_P(PlacesTest, LibrariesThatWereLoadedAheadGoOn) {
  start({"--recover", "10", "--module-cache", folder() + "/modules"});
  const auto load = [&](const auto& child) {
    for (const char* code : {"placed-library 3000", "placed-library 1900000", "placed-library 64",
                             "placed-library 5000"}) {
      ASSERT_EQ("ok", ask(child, code)) << code << server_->log();
    }
  };
  EXPECT_TRUE(eventually(kSeconds, [&] {
    {
      const auto child = client();
      load(child);
      ask(child, "quit");
    }
    return server_->logged(" foreseen=3 ", 0.1);
  })) << server_->log();
  for (int i = 0; i < 3; ++i) {
    const auto child = client();
    load(child);
    for (int kills = 0; kills < 2; ++kills) {
      kill_idle();
      ASSERT_EQ("ok", ask(child, "placed-use")) << server_->log();
    }
  }
}

TEST_P(PlacesTest, WhatWasLoadedBeforeIsLoadedFirstInALeasesPartOfTheGpu) {
  start({"--recover", "10", "--memory", "1G", "--sms", "8"});
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "library-first"));
  ASSERT_EQ("ok", ask(child, "learn"));
  ASSERT_EQ("ok", ask(child, "learn-more"));
  for (int i = 0; i < 2; ++i) {
    kill_idle();
    ASSERT_EQ("ok", ask(child, "use")) << server_->log();
  }
  EXPECT_TRUE(server_->logged("looked for wanted=1 found=1", kSeconds)) << server_->log();
}

TEST_P(PlacesTest, APlaceThatIsOutOfReachIsLetGo) {
  of(4096);
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "variables"));
  const std::string in_use = ask(child, "info");
  kill_idle();
  EXPECT_EQ(in_use, ask(child, "info")) << server_->log();
  EXPECT_EQ("ok", ask(child, "use")) << server_->log();
  EXPECT_TRUE(server_->logged("looked for wanted=1 found=0", kSeconds)) << server_->log();
  EXPECT_TRUE(server_->logged("nothing knows where they were", kSeconds)) << server_->log();
}

TEST_P(PlacesTest, APlaceThatCannotBeHadIsALostServer) {
  // More than are tried.
  of(4096);
  start();
  const auto child = client();
  ASSERT_EQ("ok", ask(child, "placed-module 1000"));
  kill_idle();
  EXPECT_EQ(kUnavailable, ask(child, "sync")) << server_->log();
  EXPECT_TRUE(
      server_->logged("the variable cell has another address in this process, and the "
                      "program was told the old one",
                      kSeconds))
      << server_->log();
}

INSTANTIATE_TEST_SUITE_P(Shm, PlacesTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, PlacesTest, ::testing::Values("tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(Shm, MovingTest, ::testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(Tcp, MovingTest, ::testing::Values("tcp://127.0.0.1:0"));
INSTANTIATE_TEST_SUITE_P(Shm, MovingLostTest, ::testing::Values("shm"));

}  // namespace
}  // namespace flyt::tests
