// CodeTurns: what came before has its turn before, and no longer.
#include "client/code/code_turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace flyt::client {
namespace {

using Take = CodeTurns::Turn (CodeTurns::*)();

// How long one waits for its turn while several threads have turns of the other kind all the time.
Duration wait_among(Take many, Take one) {
  CodeTurns turns;
  std::atomic<bool> stopping{false};
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      while (!stopping) {
        const CodeTurns::Turn turn = (turns.*many)();
        ++taken;
        const Instant until = system_clock().now() + std::chrono::milliseconds(5);
        while (system_clock().now() < until) std::this_thread::yield();
      }
    });
  }
  while (taken < 20) std::this_thread::yield();
  const Instant begun = system_clock().now();
  CodeTurns::Turn turn = (turns.*one)();
  const Duration waited = system_clock().now() - begun;
  turn.reset();
  stopping = true;
  for (std::thread& thread : threads) thread.join();
  return waited;
}

TEST(CodeTurns, CopiesThatNeverCeaseDoNotHoldUpALoad) {
  EXPECT_LT(wait_among(&CodeTurns::copy, &CodeTurns::load), CodeTurns::kPatience / 2);
}

TEST(CodeTurns, LoadsThatNeverCeaseDoNotHoldUpACopy) {
  EXPECT_LT(wait_among(&CodeTurns::load, &CodeTurns::copy), CodeTurns::kPatience / 2);
}

TEST(CodeTurns, OneKindIsNotInItsOwnWay) {
  CodeTurns turns;
  const Instant begun = system_clock().now();
  const CodeTurns::Turn first = turns.copy();
  const CodeTurns::Turn second = turns.copy();
  EXPECT_LT(system_clock().now() - begun, CodeTurns::kPatience / 2);
}

TEST(CodeTurns, ALoadWaitsForTheCopiesBeforeIt) {
  CodeTurns turns;
  CodeTurns::Turn copy = turns.copy();
  std::atomic<bool> loading{false};
  std::thread loader([&] {
    const CodeTurns::Turn load = turns.load();
    loading = true;
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_FALSE(loading);
  copy.reset();
  loader.join();
  EXPECT_TRUE(loading);
}

}  // namespace
}  // namespace flyt::client
