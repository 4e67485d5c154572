#include "control/cli/table.h"

#include <algorithm>

namespace flyt::cli {

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string clean(const std::string& text) {
  std::string out;
  for (const char c : text) out.push_back(c >= ' ' && c <= '~' ? c : '?');
  return out;
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : clean(text); }

std::string time_text(std::int64_t at_ms) {
  const std::int64_t day = at_ms / 86'400'000;
  const std::int64_t second = at_ms / 1000 % 86'400;
  // Days since 1970 as a date of the civil calendar.
  const std::int64_t shifted = day + 719'468;
  const std::int64_t era = shifted / 146'097;
  const std::int64_t in_era = shifted % 146'097;
  const std::int64_t year_in_era =
      (in_era - in_era / 1460 + in_era / 36'524 - in_era / 146'096) / 365;
  const std::int64_t in_year = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
  const std::int64_t from_march = (5 * in_year + 2) / 153;
  const std::int64_t month = from_march < 10 ? from_march + 3 : from_march - 9;
  const std::int64_t year = year_in_era + era * 400 + (month <= 2 ? 1 : 0);
  const auto two = [](std::int64_t value) {
    return (value < 10 ? "0" : "") + std::to_string(value);
  };
  return std::to_string(year) + "-" + two(month) + "-" +
         two(in_year - (153 * from_march + 2) / 5 + 1) + "T" + two(second / 3600) + ":" +
         two(second / 60 % 60) + ":" + two(second % 60) + "Z";
}

}  // namespace flyt::cli
