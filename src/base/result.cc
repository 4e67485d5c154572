#include "base/result.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace flyt {
namespace {

void write_text(std::string_view text) {
  // A failed write leaves nothing better to do: the process is about to end.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kLimit:
      return "limit";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kLost:
      return "lost";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kDenied:
      return "denied";
    case ErrorCode::kSystem:
      return "system";
  }
  return "unknown";
}

Error system_error(std::string_view what, int system_error) {
  char buffer[128];
  const char* text = ::strerror_r(system_error, buffer, sizeof buffer);
  return Error{ErrorCode::kSystem, std::string(what) + ": " + text};
}

void assertion_failed(const char* condition, const char* file, int line) {
  std::string text = "flyt: assertion failed: ";
  text.append(condition).append(" at ").append(file).append(":");
  text.append(std::to_string(line)).append("\n");
  write_text(text);
  std::abort();
}

}  // namespace flyt
