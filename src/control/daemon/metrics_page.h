// MetricsPage: numbers as Prometheus reads them, text exposition format 0.0.4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flyt::control {

class MetricsPage {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Begins a family: what value() adds from now on. `kind`: "gauge" or "counter".
  void family(std::string_view name, std::string_view kind, std::string_view help);
  // A label's value may be any text: what is no printable ASCII becomes '?'.
  void value(const Labels& labels, std::uint64_t value);
  // A family of one value.
  void one(std::string_view name, std::string_view kind, std::string_view help,
           std::uint64_t value);
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

// A page's type.
inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4";

}  // namespace flyt::control
