#include "client/settings.h"

#include <charconv>
#include <cstdlib>

namespace flyt::client {
namespace {

constexpr std::int64_t kConnectTimeoutMs = 5000;
constexpr std::int64_t kWaitMs = 60000;
// As long as a server does: server/recovery/recovery.h.
constexpr std::int64_t kRecoveryTimeoutMs = 10 * 60 * 1000;

// A number of the environment; negative where there is none.
std::int64_t number(const char* name) {
  const std::string_view text = environment(name);
  std::int64_t value = -1;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? value : -1;
}

}  // namespace

std::string_view environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

Duration connect_timeout() {
  const std::int64_t ms = number("FLYT_CONNECT_TIMEOUT_MS");
  return std::chrono::milliseconds(ms > 0 ? ms : kConnectTimeoutMs);
}

Duration recovery_patience() {
  const std::int64_t ms = number("FLYT_RECOVERY_TIMEOUT_MS");
  return std::chrono::milliseconds(ms > 0 ? ms : kRecoveryTimeoutMs);
}

Duration wait_patience() {
  const std::int64_t ms = number("FLYT_WAIT_MS");
  return std::chrono::milliseconds(ms >= 0 ? ms : kWaitMs);
}

Duration fence_patience(Duration wished) {
  const std::int64_t us = number("FLYT_FENCE_US");
  return us >= 0 ? std::chrono::microseconds(us) : wished;
}

LogLevel log_level() { return log_level_of(environment("FLYT_LOG"), LogLevel::kWarn); }

}  // namespace flyt::client
