// Seeds: which ones the simulations run, and what each has to keep.
//   FLYT_SIM_SEEDS=N how many (default 12)     FLYT_SIM_FIRST_SEED=S (printed when a test fails)
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "tests/sim/simulation.h"

namespace flyt::sim {

inline constexpr std::uint64_t kSeedsUsual = 12;

inline std::uint64_t seeds() {
  const char* given = std::getenv("FLYT_SIM_SEEDS");
  return given ? std::strtoull(given, nullptr, 10) : kSeedsUsual;
}

inline std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_SIM_FIRST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

class Simulation : public ::testing::Test {
 protected:
  void expect_whole(const Outcome& outcome) const {
    EXPECT_TRUE(outcome.opened) << outcome.server_reason.data();
    EXPECT_EQ(0, outcome.errors) << outcome.server_reason.data();
    EXPECT_EQ(0, outcome.wrong_results);
  }
  // Once something failed nothing succeeds, and what succeeded was right.
  void expect_honest(const Outcome& outcome) const {
    EXPECT_EQ(0, outcome.successes_after_an_error) << outcome.server_reason.data();
    EXPECT_EQ(0, outcome.wrong_results) << outcome.server_reason.data();
  }
};

}  // namespace flyt::sim
