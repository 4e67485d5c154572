#include "base/text.h"

#include <algorithm>
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

struct Lead {
  unsigned first;  // Of the first byte.
  unsigned last;
  std::size_t size;
  unsigned second_first;  // Of the second one; all others are from 0x80 to 0xbf.
  unsigned second_last;
};
// Neither longer than needed, nor halves of pairs, nor beyond the last character.
constexpr std::array kLeads = {Lead{0xc2, 0xdf, 2, 0x80, 0xbf}, Lead{0xe0, 0xe0, 3, 0xa0, 0xbf},
                               Lead{0xe1, 0xec, 3, 0x80, 0xbf}, Lead{0xed, 0xed, 3, 0x80, 0x9f},
                               Lead{0xee, 0xef, 3, 0x80, 0xbf}, Lead{0xf0, 0xf0, 4, 0x90, 0xbf},
                               Lead{0xf1, 0xf3, 4, 0x80, 0xbf}, Lead{0xf4, 0xf4, 4, 0x80, 0x8f}};

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Bytes of the character at the front that is no ASCII; 0: there is none, or it is a control
// character.
std::size_t character_bytes(std::string_view text) {
  for (const Lead& lead : kLeads) {
    const unsigned first = byte_at(text, 0);
    if (first < lead.first || first > lead.last || text.size() < lead.size) continue;
    const unsigned second = byte_at(text, 1);
    const bool control = first == 0xc2 && second < 0xa0;
    if (second < lead.second_first || second > lead.second_last || control) return 0;
    for (std::size_t i = 2; i < lead.size; ++i) {
      if (byte_at(text, i) < 0x80 || byte_at(text, i) > 0xbf) return 0;
    }
    return lead.size;
  }
  return 0;
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

std::string counted(std::uint64_t count, std::string_view name) {
  std::string text = std::to_string(count) + " ";
  text += name;
  if (count != 1) text += 's';
  return text;
}

std::string plain_text(std::string_view text, std::size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const char c = text.front();
    const bool ascii = c >= ' ' && c <= '~';
    const std::size_t size = ascii ? 1 : character_bytes(text);
    if (out.size() + std::max<std::size_t>(size, 1) > bytes_max) break;
    if (size != 0) {
      out += text.substr(0, size);
    } else {
      out += c == '\n' || c == '\t' ? ' ' : '?';
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

}  // namespace flyt
