#include "base/log.h"

#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_limit.h"

namespace flyt {
namespace {

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
    case LogLevel::kOff:
      return "off";
  }
  return "off";
}

void append_time(std::string& line) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  ::gmtime_r(&now.tv_sec, &parts);
  char text[32];
  line.append(text, ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.", &parts));
  const std::string millis = std::to_string(now.tv_nsec / 1'000'000);
  line.append(3 - millis.size(), '0').append(millis).append("Z");
}

bool is_bare(std::string_view value) {
  if (value.empty()) return false;
  for (const char c : value) {
    const auto u = static_cast<unsigned char>(c);
    if (u <= ' ' || c == '"' || c == '=' || c == '\\' || u >= 0x7f) return false;
  }
  return true;
}

// Control characters of a peer's text must not reach a terminal; those beyond ASCII neither, which
// are not told from the bytes of other letters here.
void append_value(std::string& line, std::string_view value) {
  if (is_bare(value)) {
    line.append(value);
    return;
  }
  constexpr char kHex[] = "0123456789abcdef";
  line.push_back('"');
  for (const char c : value) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      line.append({'\\', c});
    } else if (c == '\n') {
      line.append("\\n");
    } else if (u < ' ' || u >= 0x7f) {
      line.append({'\\', 'x', kHex[u >> 4], kHex[u & 15]});
    } else {
      line.push_back(c);
    }
  }
  line.push_back('"');
}

}  // namespace

LogLevel log_level_of(std::string_view text, LogLevel otherwise) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError, LogLevel::kOff}) {
    if (text == name_of(level)) return level;
  }
  return otherwise;
}

Log Log::limited(LogLimits& limits) const {
  Log log = *this;
  log.limits_ = &limits;
  return log;
}

bool Log::takes(LogLevel level) const {
  if (limits_ == nullptr || level == LogLevel::kDebug) return true;
  limits_->tell_left_out({component_, level_, fd_});
  return limits_->sessions(level).take(system_clock().now());
}

void Log::write(LogLevel level, std::string_view message,
                std::initializer_list<LogField> fields) const {
  if (!enabled(level) || !takes(level)) return;
  std::string line;
  append_time(line);
  line.append(" ").append(name_of(level)).append(" ").append(component_).append(": ");
  line.append(message);
  for (const LogField& field : fields) {
    line.append(" ").append(field.name).append("=");
    append_value(line, field.value);
  }
  line.push_back('\n');
  // There is nowhere to report that the log cannot be written.
  [[maybe_unused]] const ssize_t written = ::write(fd_, line.data(), line.size());
}

}  // namespace flyt
