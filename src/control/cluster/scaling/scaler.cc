#include "control/cluster/scaling/scaler.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace flyt::scaling {
namespace {

// At or beyond it a virtual GPU whose work waits doubles.
constexpr std::uint32_t kMuchQueued = 50;
// Of a window, between two samples that are kept.
constexpr int kParts = 16;
static_assert(kParts + 2 <= Scaler::kSamplesMax);

// Several sessions together may have more than the whole.
std::uint32_t percent(std::uint64_t part, std::uint64_t whole) {
  return static_cast<std::uint32_t>(std::min(part, whole) * 100 / whole);
}

std::uint64_t seconds(Duration time) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(time).count());
}

std::uint32_t rounded_up(std::uint64_t value, std::uint64_t by) {
  return static_cast<std::uint32_t>((value + by - 1) / by);
}

// In whole groups.
std::uint64_t whole_groups(const Size& size, std::uint64_t sms) {
  const std::uint64_t group = std::max(size.group, 1u);
  return rounded_up(sms, group) * group;
}

std::string words(const Use& use) {
  std::string text =
      "busy for " + std::to_string(use.busy_percent) + " % of " + seconds_text(use.seconds);
  if (use.queued_percent != 0) {
    text += ", launches waiting for " + std::to_string(use.queued_percent) + " %";
  }
  return text;
}

Decision hold(std::string why) { return {Decision::Step::kHold, 0, std::move(why)}; }

// Half as many again, or twice as many if much waits: after that it is busy for more than half of
// the limit at least.
Decision grow(const Rules& rules, const Size& size, const Use& use) {
  if (size.asked >= size.most || size.granted >= size.most) {
    return hold(words(use) + "; it has its most");
  }
  const std::uint64_t wanted =
      use.queued_percent >= kMuchQueued
          ? 2ull * size.granted
          : std::max<std::uint64_t>(size.granted + 1ull, rounded_up(3ull * size.granted, 2));
  const std::uint64_t whole = whole_groups(size, wanted);
  return {Decision::Step::kGrow,
          static_cast<std::uint32_t>(std::clamp<std::uint64_t>(whole, size.least, size.most)),
          words(use) + ", more than " + std::to_string(rules.grow_above) + " %"};
}

// To what would be busy for the middle between the limits, but at most by half.
Decision shrink(const Rules& rules, const Size& size, const Use& use) {
  if (size.asked <= size.least) return hold(words(use) + "; it has its least");
  const std::uint32_t middle = (rules.grow_above + rules.shrink_below) / 2;
  const std::uint64_t needed =
      std::max({rounded_up(std::uint64_t{size.granted} * (use.busy_percent + 1ull), middle),
                rounded_up(size.granted, 2), 1u});
  const std::uint64_t whole = whole_groups(size, needed);
  if (whole >= size.granted) return hold(words(use) + "; with less it would be too busy");
  const auto sms =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>(whole, size.least, size.most));
  if (whole_groups(size, sms) >= size.granted) {
    return hold(words(use) + "; it has its least");
  }
  // With a larger last group it may have more than whole groups of the usual size would be.
  if (sms >= size.asked) return hold(words(use) + "; it has asked for no more");
  return {Decision::Step::kShrink, sms,
          words(use) + ", less than " + std::to_string(rules.shrink_below) + " %"};
}

}  // namespace

Status check(const Rules& rules) {
  const auto invalid = [](const char* why) { return Error{ErrorCode::kInvalid, why}; };
  if (rules.window < std::chrono::seconds(1) || rules.cool_down < std::chrono::seconds(1)) {
    return invalid("scaling.window and scaling.cool_down are 1 s at least");
  }
  if (rules.grow_above > 99 || rules.shrink_below * 2 > rules.grow_above) {
    return invalid(
        "scaling.grow_above is at most 99, and scaling.shrink_below at most half of it: a virtual"
        " GPU would grow and shrink in turn");
  }
  return {};
}

void Scaler::take(const Rules& rules, const Sample& sample, Instant now) {
  const bool sane = sample.measured_us != 0 && sample.measured_us <= kMicrosecondsMax &&
                    sample.busy_us <= kMicrosecondsMax && sample.queued_us <= sample.busy_us;
  if (!sane) return heard_.clear();
  if (!heard_.empty()) {
    const Sample& last = heard_.back().sample;
    if (sample.measured_us == last.measured_us) return;
    // Another server has begun.
    const bool again = sample.measured_us < last.measured_us || sample.busy_us < last.busy_us ||
                       sample.queued_us < last.queued_us;
    if (again) heard_.clear();
  }
  // What comes often takes the place of the last one, so that few are kept.
  const auto count = heard_.size();
  if (count >= 2 && heard_[count - 1].at - heard_[count - 2].at < rules.window / kParts) {
    heard_.pop_back();
  }
  heard_.push_back({sample, now});
  if (heard_.size() > kSamplesMax) heard_.pop_front();
}

void Scaler::settle(Instant now) {
  settled_ = now;
  heard_.clear();
}

std::optional<Use> Scaler::use(const Rules& rules, Instant now) const {
  if (heard_.size() < 2 || now - heard_.back().at > rules.window) return std::nullopt;
  const Heard& last = heard_.back();
  // The latest that is a window away.
  const auto first = std::find_if(heard_.rbegin(), heard_.rend(), [&](const Heard& heard) {
    return last.at - heard.at >= rules.window;
  });
  if (first == heard_.rend()) return std::nullopt;
  const std::uint64_t whole = last.sample.measured_us - first->sample.measured_us;
  return Use{percent(last.sample.busy_us - first->sample.busy_us, whole),
             percent(last.sample.queued_us - first->sample.queued_us, whole),
             seconds(last.at - first->at)};
}

Decision Scaler::decide(const Rules& rules, const Size& size, Instant now) const {
  const Duration since = now - settled_;
  if (since < rules.cool_down) {
    return hold("it may change again in " + seconds_text(seconds(rules.cool_down - since) + 1));
  }
  if (size.asked < size.least) {
    return {Decision::Step::kGrow, size.least, "it has less than its least"};
  }
  if (size.asked > size.most) {
    return {Decision::Step::kShrink, size.most, "it has more than its most"};
  }
  const auto measured = use(rules, now);
  if (!measured) return hold("its use is not known for long enough yet");
  if (measured->busy_percent > rules.grow_above) return grow(rules, size, *measured);
  if (measured->busy_percent < rules.shrink_below) return shrink(rules, size, *measured);
  return hold(words(*measured));
}

}  // namespace flyt::scaling
