// Table: what is told to people: columns, and texts that a terminal shows as they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flyt::cli {

// Columns as wide as their widest cell.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { rows_.push_back(std::move(head)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Names may hold what a terminal takes for a command.
std::string clean(const std::string& text);
std::string or_dash(const std::string& text);

// "2026-01-31T12:00:00Z", of milliseconds since 1970.
std::string time_text(std::int64_t at_ms);

}  // namespace flyt::cli
