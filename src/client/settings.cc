#include "client/settings.h"

#include <charconv>
#include <cstdlib>

namespace flyt::client {
namespace {

constexpr std::int64_t kConnectTimeoutMs = 5000;

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

std::string_view server_url(const Log& log) {
  const std::string_view url = environment("FLYT_SERVER");
  if (url.empty()) {
    log.warn(
        "no GPU server: set FLYT_SERVER to unix:///PATH or tcp://HOST:PORT, or start the"
        " program with `flyt run --server URL -- PROGRAM`");
  }
  return url;
}

Duration connect_timeout() {
  const std::int64_t ms = number("FLYT_CONNECT_TIMEOUT_MS");
  return std::chrono::milliseconds(ms > 0 ? ms : kConnectTimeoutMs);
}

Duration fence_patience(Duration wished) {
  const std::int64_t us = number("FLYT_FENCE_US");
  return us >= 0 ? std::chrono::microseconds(us) : wished;
}

LogLevel log_level() { return log_level_of(environment("FLYT_LOG"), LogLevel::kWarn); }

}  // namespace flyt::client
