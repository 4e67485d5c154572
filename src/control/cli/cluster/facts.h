// Facts: what a command has done, a line for each, or as one JSON object.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace flyt::cli {

void tell(bool json, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace flyt::cli
