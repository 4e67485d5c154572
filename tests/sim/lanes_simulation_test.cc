// Sessions of several connections by seeds: lanes that overtake the main connection, are overtaken,
// and are cut.
#include <gtest/gtest.h>

#include <array>

#include "base/random.h"
#include "tests/sim/seeds.h"
#include "tests/sim/simulation.h"

namespace flyt::sim {
namespace {

class LanesSimulation : public Simulation {};

// One connection is slow and another one is not, so that blocks of a lane come before the commands
// that name them, or after, and lanes overtake each other.
void hurry_or_linger(Random& random, transport::SimOptions& options) {
  const std::uint64_t most_us = random.one_in(2) ? 1 : 1500;
  options.to_first.delay_max = std::chrono::microseconds(random.below(most_us));
  options.to_second.delay_max = std::chrono::microseconds(random.below(most_us));
}

Plan with_lanes(std::uint64_t seed) {
  Random random(seed);
  Plan plan{.seed = seed, .calls = 30};
  plan.main.seed = random.next();
  hurry_or_linger(random, plan.main);
  plan.lanes.resize(2 + random.below(3));
  for (transport::SimOptions& lane : plan.lanes) {
    lane.seed = random.next();
    hurry_or_linger(random, lane);
  }
  constexpr std::array kPackings = {wire::LanePacking::kAuto, wire::LanePacking::kOff,
                                    wire::LanePacking::kOn};
  plan.packing = kPackings[random.below(kPackings.size())];
  return plan;
}

TEST_F(LanesSimulation, LanesThatOvertakeAndAreOvertakenLoseNothing) {
  std::uint64_t to_server = 0;
  std::uint64_t to_client = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + seeds(); ++seed) {
    SCOPED_TRACE("FLYT_SIM_FIRST_SEED=" + std::to_string(seed));
    const Outcome outcome = simulate(with_lanes(seed));
    ASSERT_TRUE(outcome.finished);
    expect_whole(outcome);
    to_server += outcome.lane_bytes_to_server;
    to_client += outcome.lane_bytes_to_client;
    if (HasFailure()) return;
  }
  // Else hardly a copy went by them, and nothing was shown. One seed alone may have none.
  if (seeds() < kSeedsUsual) return;
  EXPECT_GT(to_server, seeds() * kMiB);
  EXPECT_GT(to_client, seeds() * kMiB);
}

TEST_F(LanesSimulation, ACutOfAnyConnectionIsAnErrorFromThenOn) {
  int lost = 0;
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 2 * seeds(); ++seed) {
    SCOPED_TRACE("FLYT_SIM_FIRST_SEED=" + std::to_string(seed));
    Plan plan = with_lanes(seed);
    Random random(seed * 11 + 1);
    const std::uint64_t which = random.below(plan.lanes.size() + 1);
    auto& options = which == 0 ? plan.main : plan.lanes[which - 1];
    auto& direction = random.one_in(2) ? options.to_first : options.to_second;
    // The greeting; among a few blocks; anywhere.
    constexpr std::array<std::uint64_t, 3> kWithin = {400, 3 * kMiB, 12 * kMiB};
    direction.cut_after = random.below(kWithin[random.below(kWithin.size())]);
    const Outcome outcome = simulate(plan);
    ASSERT_TRUE(outcome.finished);
    expect_honest(outcome);
    lost += outcome.errors > 0 ? 1 : 0;
    if (HasFailure()) return;
  }
  if (seeds() < kSeedsUsual) return;
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace flyt::sim
