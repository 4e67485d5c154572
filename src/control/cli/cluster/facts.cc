#include "control/cli/cluster/facts.h"

#include <iostream>
#include <nlohmann/json.hpp>

namespace flyt::cli {

void tell(bool json, const std::vector<std::pair<std::string, std::string>>& facts) {
  nlohmann::ordered_json all;
  for (const auto& [key, value] : facts) {
    all[key] = value;
    if (json) continue;
    std::cout << key << std::string(key.size() < 12 ? 12 - key.size() : 1, ' ') << value << "\n";
  }
  if (json) {
    std::cout << all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  }
  std::cout << std::flush;
}

}  // namespace flyt::cli
