// Log: one line an event: time, level, message, named fields.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace flyt {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };

// "debug", "info", "warn", "error", "off"; anything else is `otherwise`.
LogLevel log_level_of(std::string_view text, LogLevel otherwise);

class LogLimits;  // base/log_limit.h

struct LogField {
  std::string_view name;
  std::string value;

  LogField(std::string_view field, std::string_view text) : name(field), value(text) {}
  LogField(std::string_view field, const char* text) : name(field), value(text) {}
  LogField(std::string_view field, const std::string& text) : name(field), value(text) {}
  LogField(std::string_view field, bool flag) : name(field), value(flag ? "true" : "false") {}
  template <std::integral T>
  LogField(std::string_view field, T number) : name(field), value(std::to_string(number)) {}
};

// Writes whole lines to a file descriptor with one write(2) each. Safe from any thread; cheap to
// copy.
class Log {
 public:
  Log(std::string_view component, LogLevel level, int fd = 2)
      : component_(component), level_(level), fd_(fd) {}

  // The same, but only so many lines are written, as those of sessions; lines of level debug, which
  // somebody has asked for, all. The limits outlive it.
  Log limited(LogLimits& limits) const;

  void debug(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kDebug, message, fields);
  }
  void info(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kInfo, message, fields);
  }
  void warn(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kWarn, message, fields);
  }
  void error(std::string_view message, std::initializer_list<LogField> fields = {}) const {
    write(LogLevel::kError, message, fields);
  }
  bool enabled(LogLevel level) const { return level >= level_; }
  LogLevel level() const { return level_; }

 private:
  bool takes(LogLevel level) const;
  void write(LogLevel level, std::string_view message,
             std::initializer_list<LogField> fields) const;

  std::string_view component_;
  LogLevel level_;
  int fd_;
  LogLimits* limits_ = nullptr;
};

}  // namespace flyt
