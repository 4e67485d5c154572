// End to end by seeds: partial reads and writes, delays, and cuts at any byte.
#include <gtest/gtest.h>

#include "base/random.h"
#include "tests/sim/seeds.h"
#include "tests/sim/simulation.h"

namespace flyt::sim {
namespace {

transport::SimOptions rough(std::uint64_t seed) {
  Random random(seed);
  transport::SimOptions options;
  options.seed = seed;
  options.to_first.delay_max = std::chrono::microseconds(random.below(100));
  options.to_second.delay_max = std::chrono::microseconds(random.below(100));
  return options;
}

TEST_F(Simulation, ARoughConnectionLosesNothing) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    SCOPED_TRACE("FLYT_SIM_FIRST_SEED=" + std::to_string(seed));
    expect_whole(simulate({.seed = seed, .calls = 60, .main = rough(seed)}));
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
    expect_honest(simulate({.seed = seed, .calls = 60, .main = options}));
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
      expect_honest(simulate({.seed = cut, .calls = 10, .main = options}));
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace flyt::sim
