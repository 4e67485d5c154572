#include "base/log_limit.h"

#include <sys/mman.h>

#include <algorithm>
#include <memory>

namespace flyt {

namespace {

constexpr std::string_view kOfSessions = "sessions";
constexpr std::string_view kOfTroubles = "troubles of sessions";

}  // namespace

std::uint64_t LogLimit::period_of(Instant now) const {
  return (static_cast<std::uint64_t>(now.ns / period_.count()) << kCountBits) >> kCountBits;
}

bool LogLimit::take(Instant now) {
  const std::uint64_t period = period_of(now);
  std::uint64_t word = period_and_lines_.load(std::memory_order_relaxed);
  while (true) {
    // A process whose clock was read just before another period began does not begin an old one.
    const bool same = word >> kCountBits >= period;
    if (same && is_full(word)) {
      left_out_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    const std::uint64_t next = same ? word + 1 : period << kCountBits | 1;
    if (period_and_lines_.compare_exchange_weak(word, next, std::memory_order_relaxed)) return true;
  }
}

bool LogLimit::is_full(std::uint64_t word) const {
  return (word & ((std::uint64_t{1} << kCountBits) - 1)) >= lines_max_;
}

std::uint64_t LogLimit::left_out(Instant now) {
  const std::uint64_t word = period_and_lines_.load(std::memory_order_relaxed);
  const bool goes_on = word >> kCountBits >= period_of(now) && is_full(word);
  return goes_on ? 0 : left_out();
}

int LogLimit::limit(int timeout_ms, Instant now) const {
  if (left_out_.load(std::memory_order_relaxed) == 0) return timeout_ms;
  const auto left = Duration(period_.count() - now.ns % period_.count());
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
  return timeout_ms < 0 ? static_cast<int>(ms) : std::min(timeout_ms, static_cast<int>(ms));
}

void LimitedLog::info(std::string_view message, std::initializer_list<LogField> fields) const {
  if (log_.enabled(LogLevel::kInfo) && takes()) log_.info(message, fields);
}

void LimitedLog::warn(std::string_view message, std::initializer_list<LogField> fields) const {
  if (log_.enabled(LogLevel::kWarn) && takes()) log_.warn(message, fields);
}

bool LimitedLog::takes() const {
  tell_left_out();
  return limit_.take(system_clock().now());
}

void LimitedLog::tell_left_out() const { tell(limit_.left_out(system_clock().now())); }

void LimitedLog::finish() const { tell(limit_.left_out()); }

void LimitedLog::tell(std::uint64_t count) const {
  constexpr std::string_view kMessage = "lines were left out, of which there were too many";
  if (count == 0) return;
  if (of_.empty()) return log_.warn(kMessage, {{"lines", count}});
  log_.warn(kMessage, {{"lines", count}, {"of", of_}});
}

std::shared_ptr<LogLimits> LogLimits::shared() {
  void* const memory =
      ::mmap(nullptr, sizeof(LogLimits), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::make_shared<LogLimits>();
  return {std::construct_at(static_cast<LogLimits*>(memory)),
          [](LogLimits* limits) { ::munmap(limits, sizeof(LogLimits)); }};
}

void LogLimits::tell_left_out(const Log& log) {
  LimitedLog(log, sessions_, kOfSessions).tell_left_out();
  LimitedLog(log, troubles_, kOfTroubles).tell_left_out();
}

void LogLimits::finish(const Log& log) {
  LimitedLog(log, sessions_, kOfSessions).finish();
  LimitedLog(log, troubles_, kOfTroubles).finish();
}

int LogLimits::limit(int timeout_ms, Instant now) const {
  return troubles_.limit(sessions_.limit(refusals_.limit(timeout_ms, now), now), now);
}

}  // namespace flyt
