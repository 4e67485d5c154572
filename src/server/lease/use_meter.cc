#include "server/lease/use_meter.h"

#include <algorithm>

namespace flyt::server {
namespace {

constexpr int kCostShare = 50;

}  // namespace

Instant UseMeter::next(Instant now) {
  if (!looking_) {
    if (!launched_) return Instant{INT64_MAX};
    looking_ = true;
    last_ = now;
    quiet_at_ = now + kQuiet;
    plan(now, Duration{0});
  }
  return next_;
}

void UseMeter::looked(Instant begun, Instant ended, Seen seen) {
  // What only copies is not at work on multiprocessors.
  const bool busy = seen.busy && launched_;
  const Duration passed = begun - last_;
  if (busy) busy_ += passed;
  if (busy && seen.queued) queued_ += passed;
  last_ = begun;
  if (launched_) quiet_at_ = ended + kQuiet;
  if (!seen.busy) launched_ = false;
  looking_ = launched_ || ended < quiet_at_;
  plan(ended, ended - begun);
}

void UseMeter::plan(Instant now, Duration cost) {
  const Duration period = std::max(kPeriod, cost * kCostShare);
  // From half of it to one and a half.
  const auto width = static_cast<std::uint64_t>(period.count());
  next_ = now + period / 2 + Duration(static_cast<std::int64_t>(random_.below(width)));
}

}  // namespace flyt::server
