// What holds for every load, every size and every rule: a scaler keeps its bounds and its
// cool-down, settles under a steady load and follows one that changes.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "control/cluster/scaling/scaler.h"

namespace flyt::scaling {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Step = Decision::Step;

constexpr std::uint64_t kSeeds = 400;

Rules random_rules(Random& random) {
  Rules rules;
  rules.window = seconds(1 + random.below(40));
  rules.cool_down = seconds(1 + random.below(120));
  rules.grow_above = static_cast<std::uint32_t>(60 + random.below(40));
  rules.shrink_below = static_cast<std::uint32_t>(1 + random.below(rules.grow_above / 2 - 4));
  EXPECT_TRUE(check(rules));
  return rules;
}

Size random_size(Random& random) {
  Size size;
  size.group = 1u << random.below(5);
  size.least = static_cast<std::uint32_t>(1 + random.below(64));
  size.most = static_cast<std::uint32_t>(size.least + random.below(256));
  size.asked = static_cast<std::uint32_t>(size.least + random.below(size.most - size.least + 1));
  return size;
}

// A virtual GPU with work for so many multiprocessors, which it spreads evenly over those it has.
class World {
 public:
  explicit World(std::uint64_t seed)
      : random_(seed), rules_(random_rules(random_)), size_(random_size(random_)) {
    grant();
    scaler_.settle(now_);
    changed_ = now_;
  }

  double demand = 0;
  unsigned noise_percent = 0;
  bool queues = false;

  void live(Duration time) {
    for (const Instant end = now_ + time; now_ < end;) turn();
  }
  Duration long_enough() const { return 20 * (rules_.window + rules_.cool_down + seconds(10)); }
  Random& random() { return random_; }
  const Size& size() const { return size_; }
  unsigned grown() const { return grown_; }
  unsigned shrunk() const { return shrunk_; }

 private:
  void grant() { size_.granted = (size_.asked + size_.group - 1) / size_.group * size_.group; }

  void turn() {
    const Duration step = milliseconds(200 + random_.below(2000));
    now_ = now_ + step;
    const auto us = static_cast<std::uint64_t>(step.count() / 1000);
    double share = std::min(1.0, demand / size_.granted);
    if (noise_percent != 0) {
      share += (static_cast<double>(random_.below(2 * noise_percent + 1)) - noise_percent) / 100;
    }
    sample_.measured_us += us;
    const auto busy =
        static_cast<std::uint64_t>(static_cast<double>(us) * std::clamp(share, 0.0, 1.0));
    sample_.busy_us += busy;
    if (queues && demand > size_.granted) sample_.queued_us += busy;
    scaler_.take(rules_, sample_, now_);
    const Decision decision = scaler_.decide(rules_, size_, now_);
    if (decision.step == Step::kHold) return;
    ASSERT_GE(decision.sms, size_.least);
    ASSERT_LE(decision.sms, size_.most);
    ASSERT_GE(now_ - changed_, rules_.cool_down);
    ASSERT_FALSE(decision.why.empty());
    const std::uint32_t before = size_.granted;
    size_.asked = decision.sms;
    grant();
    // No decision is in vain.
    if (decision.step == Step::kGrow) {
      ASSERT_GT(size_.granted, before);
      ++grown_;
    } else {
      ASSERT_LT(size_.granted, before);
      ++shrunk_;
    }
    changed_ = now_;
    scaler_.settle(now_);
  }

  Random random_;
  const Rules rules_;
  Size size_;
  Scaler scaler_;
  Sample sample_{.measured_us = 1};
  Instant now_{1'000'000'000'000};
  Instant changed_;
  unsigned grown_ = 0;
  unsigned shrunk_ = 0;
};

TEST(ScalerProperties, ASteadyLoadSettlesWithoutSwinging) {
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.demand = static_cast<double>(world.random().below(400));
    world.noise_percent = static_cast<unsigned>(world.random().below(3));
    world.queues = world.random().one_in(2);
    world.live(world.long_enough());
    const unsigned changes = world.grown() + world.shrunk();
    EXPECT_TRUE(world.grown() == 0 || world.shrunk() == 0);
    world.live(world.long_enough());
    EXPECT_EQ(world.grown() + world.shrunk(), changes);
  }
}

TEST(ScalerProperties, AlwaysBusyGetsItsMostAndIdleItsLeast) {
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.demand = 1e6;
    world.live(world.long_enough());
    const Size& size = world.size();
    const auto whole = [&](std::uint32_t sms) {
      return (sms + size.group - 1) / size.group * size.group;
    };
    EXPECT_GE(size.granted, std::min(whole(size.most), size.most));
    world.demand = 0;
    world.live(world.long_enough());
    EXPECT_EQ(size.granted, whole(size.least));
    EXPECT_EQ(world.noise_percent, 0u);
  }
}

TEST(ScalerProperties, ALoadThatChangesKeepsBoundsAndCoolDown) {
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    for (int i = 0; i < 30; ++i) {
      world.demand = static_cast<double>(world.random().below(400));
      world.noise_percent = static_cast<unsigned>(world.random().below(30));
      world.queues = world.random().one_in(2);
      world.live(seconds(world.random().below(200)));
    }
  }
}

TEST(ScalerProperties, WhateverItIsToldItKeepsItsBounds) {
  for (std::uint64_t seed = 1; seed <= kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Rules rules = random_rules(random);
    Scaler scaler;
    Instant now{1'000'000'000'000};
    scaler.settle(now);
    const auto number = [&] { return random.next() >> random.below(64); };
    for (int i = 0; i < 300; ++i) {
      now = now + milliseconds(random.below(10'000));
      scaler.take(rules, {number(), number(), number()}, now);
      Size size = random_size(random);
      size.asked = static_cast<std::uint32_t>(number());
      size.granted = static_cast<std::uint32_t>(number() >> 20);
      size.group = static_cast<std::uint32_t>(random.below(20));
      const Decision decision = scaler.decide(rules, size, now);
      if (decision.step == Step::kHold) continue;
      ASSERT_GE(decision.sms, size.least);
      ASSERT_LE(decision.sms, size.most);
    }
  }
}

}  // namespace
}  // namespace flyt::scaling
