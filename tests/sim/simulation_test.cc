// End to end by seeds: partial reads and writes, delays, and cuts at any byte.
//   FLYT_SIM_SEEDS=N how many (default 12)     FLYT_SIM_FIRST_SEED=S (printed when a test fails)
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/random.h"
#include "tests/sim/simulation.h"

namespace flyt::sim {
namespace {

std::uint64_t seeds() {
  const char* given = std::getenv("FLYT_SIM_SEEDS");
  return given ? std::strtoull(given, nullptr, 10) : 12;
}

std::uint64_t first_seed() {
  const char* given = std::getenv("FLYT_SIM_FIRST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

transport::SimOptions rough(std::uint64_t seed) {
  Random random(seed);
  transport::SimOptions options;
  options.seed = seed;
  options.to_first.delay_max = std::chrono::microseconds(random.below(100));
  options.to_second.delay_max = std::chrono::microseconds(random.below(100));
  return options;
}

class Simulation : public ::testing::Test {
 protected:
  void expect_whole(const Outcome& outcome) const {
    EXPECT_TRUE(outcome.opened) << outcome.server_reason;
    EXPECT_EQ(0, outcome.errors) << outcome.server_reason;
    EXPECT_EQ(0, outcome.wrong_results);
  }
  // Once something failed nothing succeeds, and what succeeded was right.
  void expect_honest(const Outcome& outcome) const {
    EXPECT_EQ(0, outcome.successes_after_an_error) << outcome.server_reason;
    EXPECT_EQ(0, outcome.wrong_results) << outcome.server_reason;
  }
};

TEST_F(Simulation, ARoughConnectionLosesNothing) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    SCOPED_TRACE("FLYT_SIM_FIRST_SEED=" + std::to_string(seed));
    expect_whole(simulate(seed, rough(seed), 60));
    if (HasFailure()) return;
  }
}

TEST_F(Simulation, ACutAnywhereIsAnErrorFromThenOn) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 2 * seeds(); ++seed) {
    SCOPED_TRACE("FLYT_SIM_FIRST_SEED=" + std::to_string(seed));
    auto options = rough(seed);
    Random random(seed * 7 + 1);
    auto& direction = random.one_in(2) ? options.to_first : options.to_second;
    direction.cut_after = random.below(random.one_in(3) ? 400000 : 6000);
    expect_honest(simulate(seed, options, 60));
    if (HasFailure()) return;
  }
}

TEST_F(Simulation, EveryByteOfTheStartCanBeTheLast) {
  // All bytes when many seeds are asked for; a sample otherwise.
  const std::uint64_t step = seeds() >= 500 ? 1 : 1 + 2000 / seeds();
  for (std::uint64_t cut = first_seed() % step; cut < 2000; cut += step) {
    SCOPED_TRACE("cut after " + std::to_string(cut));
    for (const bool to_first : {false, true}) {
      transport::SimOptions options;
      options.seed = cut;
      (to_first ? options.to_first : options.to_second).cut_after = cut;
      expect_honest(simulate(cut, options, 10));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace flyt::sim
