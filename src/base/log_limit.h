// LogLimit: how many lines strangers may cause in a log. Whoever is refused may come again as often
// as he likes, and a line for each time would fill the disk.
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

  // In memory that processes forked from now on share; where there is none, in this one's own.
  static std::shared_ptr<LogLimit> shared();

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
  static_assert(kLinesMax < (1U << kCountBits));
  static std::uint64_t period_of(Instant now);
  static bool is_full(std::uint64_t word);

  std::atomic<std::uint64_t> period_and_lines_{0};
  std::atomic<std::uint64_t> left_out_{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

// A log whose lines are limited so. Safe from any thread.
class LimitedLog {
 public:
  // Both outlive it.
  LimitedLog(const Log& log, LogLimit& limit) : log_(log), limit_(limit) {}

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
};

}  // namespace flyt
