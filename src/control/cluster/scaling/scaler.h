// Scaler: how many multiprocessors a virtual GPU should have, by how much it uses those it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace flyt::scaling {

struct Rules {
  Duration window = std::chrono::seconds(15);     // Use is what it was on average over that.
  Duration cool_down = std::chrono::seconds(60);  // Between two changes.
  // Percent of the window in which it had kernels on the GPU.
  std::uint32_t grow_above = 80;
  std::uint32_t shrink_below = 40;
};
// kInvalid where a change could bring about its opposite.
Status check(const Rules& rules);

// What a virtual GPU has, and between what it may be changed.
struct Size {
  std::uint32_t asked = 0;
  std::uint32_t granted = 0;  // Whole groups.
  std::uint32_t group = 1;    // Multiprocessors of a group.
  std::uint32_t least = 0;    // Of what is asked for.
  std::uint32_t most = 0;
};

// What its server has counted since it started: all three only grow.
struct Sample {
  std::uint64_t measured_us = 0;  // 0: it does not measure.
  std::uint64_t busy_us = 0;
  std::uint64_t queued_us = 0;
};

struct Use {
  std::uint32_t busy_percent = 0;
  std::uint32_t queued_percent = 0;
  std::uint64_t seconds = 0;  // Over how long.
};

struct Decision {
  enum class Step : std::uint8_t { kHold, kGrow, kShrink };
  Step step = Step::kHold;
  std::uint32_t sms = 0;  // To ask for.
  std::string why;
};

// Of one virtual GPU. Decides by what it was told, and nothing else. If a virtual GPU's use does
// not change, what it is given settles: a change is made only if the use that follows from it, were
// all work spread evenly, lies between the two limits. Not thread-safe; holds no clock.
class Scaler {
 public:
  // What is kept, whatever comes, spread over a window.
  static constexpr std::size_t kSamplesMax = 20;
  // About 35 years. What has counted more is not believed.
  static constexpr std::uint64_t kMicrosecondsMax = 1ull << 50;

  // Times come in order.
  void take(const Rules& rules, const Sample& sample, Instant now);
  // It has changed, or could not: use is measured anew, and nothing changes before the cool-down is
  // over. Also when it comes into being.
  void settle(Instant now);
  // None where too little is known, or nothing has been heard for a while.
  std::optional<Use> use(const Rules& rules, Instant now) const;
  Decision decide(const Rules& rules, const Size& size, Instant now) const;

 private:
  struct Heard {
    Sample sample;
    Instant at;
  };
  std::deque<Heard> heard_;
  Instant settled_;
};

}  // namespace flyt::scaling
