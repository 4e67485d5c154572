// LogLimit: how many lines strangers may cause in a log. Whoever is refused, or has a session and
// ends it, may come again as often as he likes, and a line for each time would fill the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace flyt {

// Safe from any thread, and from any process that shares its memory; who uses it may be killed at
// any moment.
class LogLimit {
 public:
  // So many lines are written in a period; the others are counted.
  static constexpr std::uint32_t kLinesMax = 50;
  static constexpr Duration kPeriod = std::chrono::seconds(10);

  LogLimit() : LogLimit(kLinesMax, kPeriod) {}
  LogLimit(std::uint32_t lines_max, Duration period) : lines_max_(lines_max), period_(period) {}

  // Whether one more line may be written.
  bool take(Instant now);
  // How many were not, once the period is over in which there were too many; then they count as
  // told.
  std::uint64_t left_out(Instant now);
  // The same at once.
  std::uint64_t left_out() { return left_out_.exchange(0, std::memory_order_relaxed); }
  // What poll(2) may sleep at most, of `timeout_ms` (-1: for ever), until left_out() has something.
  int limit(int timeout_ms, Instant now) const;

 private:
  // The number of a period in front of how many lines were written in it.
  static constexpr unsigned kCountBits = 16;
  std::uint64_t period_of(Instant now) const;
  bool is_full(std::uint64_t word) const;

  const std::uint32_t lines_max_;  // Less than 1 << kCountBits.
  const Duration period_;
  std::atomic<std::uint64_t> period_and_lines_{0};
  std::atomic<std::uint64_t> left_out_{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

// A log whose lines are limited so. Safe from any thread.
class LimitedLog {
 public:
  // Both outlive it. `of`: what the lines are about, if the number of others is to say so.
  LimitedLog(const Log& log, LogLimit& limit, std::string_view of = {})
      : log_(log), limit_(limit), of_(of) {}

  void info(std::string_view message, std::initializer_list<LogField> fields) const;
  void warn(std::string_view message, std::initializer_list<LogField> fields) const;

  // Says how many lines were left out, once that is known. info() and warn() do so first.
  void tell_left_out() const;
  // The same at the end, when it is known already.
  void finish() const;

 private:
  bool takes() const;
  void tell(std::uint64_t count) const;

  const Log& log_;
  LogLimit& limit_;
  std::string_view of_;
};

// Those of a server's processes. As LogLimit.
class LogLimits {
 public:
  // In the long run as many lines as of others, but those of a few hundred sessions that begin at
  // once, and soon end, are all there.
  static constexpr std::uint32_t kSessionLinesMax = 600;
  static constexpr Duration kSessionPeriod = std::chrono::minutes(2);

  // In memory that processes forked from now on share; where there is none, in this one's own.
  static std::shared_ptr<LogLimits> shared();

  // Of lines about peers who are refused or have to wait.
  LogLimit& refusals() { return refusals_; }
  // Of what sessions log: Log::limited(). Troubles, which are warnings and errors, are not left
  // out because there were too many other lines.
  LogLimit& sessions(LogLevel level) { return level >= LogLevel::kWarn ? troubles_ : sessions_; }
  // For the lines of sessions, as LimitedLog and LogLimit.
  void tell_left_out(const Log& log);
  void finish(const Log& log);
  int limit(int timeout_ms, Instant now) const;

 private:
  LogLimit refusals_;
  LogLimit sessions_{kSessionLinesMax, kSessionPeriod};
  LogLimit troubles_;
};

}  // namespace flyt
