#include "control/daemon/metrics_page.h"

namespace flyt::control {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c < ' ' || c > '~' ? '?' : c);
  }
  return out;
}

}  // namespace

void MetricsPage::family(std::string_view name, std::string_view kind, std::string_view help) {
  name_ = name;
  text_.append("# HELP ").append(name).append(" ").append(help);
  text_.append("\n# TYPE ").append(name).append(" ").append(kind).append("\n");
}

void MetricsPage::value(const Labels& labels, std::uint64_t value) {
  text_ += name_;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    text_ += (i == 0 ? "{" : ",") + labels[i].first + "=\"" + escaped(labels[i].second) + "\"";
  }
  text_ += (labels.empty() ? " " : "} ") + std::to_string(value) + "\n";
}

void MetricsPage::one(std::string_view name, std::string_view kind, std::string_view help,
                      std::uint64_t number) {
  family(name, kind, help);
  value({}, number);
}

}  // namespace flyt::control
