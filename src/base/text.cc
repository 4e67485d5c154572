#include "base/text.h"

#include <array>
#include <charconv>

namespace flyt {
namespace {

struct Unit {
  char letter;
  std::uint64_t value;
};
constexpr std::array kSizes = {Unit{'T', 1ull << 40}, Unit{'G', 1ull << 30}, Unit{'M', 1ull << 20},
                               Unit{'K', 1ull << 10}};
constexpr std::array kTimes = {Unit{'d', 86400}, Unit{'h', 3600}, Unit{'m', 60}, Unit{'s', 1}};

Error no_size(std::string_view text) {
  return {ErrorCode::kInvalid,
          "'" + std::string(text) + "' is no size; sizes are bytes, or like 512M or 1.5G"};
}

Error no_time(std::string_view text) {
  return {ErrorCode::kInvalid,
          "'" + std::string(text) + "' is no time; times are seconds, or like 15m, 12h or 7d"};
}

// A whole number at the front of the text, taken off it.
bool take_number(std::string_view& text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::string size_text(std::uint64_t bytes) {
  for (const Unit& unit : kSizes) {
    if (bytes < unit.value) continue;
    std::string text = std::to_string(bytes / unit.value);
    const std::uint64_t tenths = bytes % unit.value * 10 / unit.value;
    if (tenths != 0) text += "." + std::to_string(tenths);
    return text + " " + unit.letter + "iB";
  }
  return std::to_string(bytes) + " bytes";
}

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view left = text;
  std::uint64_t whole = 0;
  if (!take_number(left, whole)) return no_size(text);
  std::uint64_t tenths = 0;
  bool fraction = false;
  if (left.size() >= 2 && left[0] == '.' && left[1] >= '0' && left[1] <= '9') {
    tenths = static_cast<std::uint64_t>(left[1] - '0');
    left.remove_prefix(2);
    fraction = true;
  }
  std::uint64_t unit = 1;
  for (const Unit& known : kSizes) {
    if (!left.empty() && upper(left[0]) == known.letter) unit = known.value;
  }
  if (unit != 1) left.remove_prefix(1);
  if (unit != 1 && (left == "iB" || left == "B")) left = {};
  if (!left.empty() || (fraction && unit == 1)) return no_size(text);
  if (whole > (UINT64_MAX >> 1) / unit) return no_size(text);
  return whole * unit + tenths * unit / 10;
}

Result<std::uint64_t> parse_seconds(std::string_view text) {
  std::string_view left = text;
  std::uint64_t value = 0;
  if (!take_number(left, value) || left.size() > 1) return no_time(text);
  std::uint64_t unit = left.empty() ? 1 : 0;
  for (const Unit& known : kTimes) {
    if (!left.empty() && left[0] == known.letter) unit = known.value;
  }
  if (unit == 0 || value > UINT32_MAX) return no_time(text);
  return value * unit;
}

std::string seconds_text(std::uint64_t seconds) {
  for (std::size_t i = 0; i < kTimes.size(); ++i) {
    const Unit& unit = kTimes[i];
    if (seconds < unit.value && unit.value != 1) continue;
    std::string text = std::to_string(seconds / unit.value) + unit.letter;
    if (i + 1 < kTimes.size()) {
      const std::uint64_t rest = seconds % unit.value / kTimes[i + 1].value;
      if (rest != 0) text += " " + std::to_string(rest) + kTimes[i + 1].letter;
    }
    return text;
  }
  return "0s";
}

}  // namespace flyt
