#include "bench/figures.h"

#include <sstream>

namespace flyt::bench {

std::string size_text(std::size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string copy_name(bool to_device, bool pinned, std::size_t bytes) {
  return std::string(to_device ? "h2d" : "d2h") + (pinned ? "_pinned_" : "_pageable_") +
         std::to_string(bytes) + "_us";
}

std::string bulk_name(std::size_t bytes) { return "bulk_" + std::to_string(bytes) + "_us"; }

Figures parse_figures(const std::string& text) {
  Figures figures;
  std::istringstream lines(text);
  std::string name;
  double value = 0;
  while (lines >> name >> value) figures[name] = value;
  return figures;
}

}  // namespace flyt::bench
