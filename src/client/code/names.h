// Names of functions and variables on the wire.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"

namespace flyt::client {

// As the commands that carry names allow.
inline constexpr std::size_t kNameBytesMax = 65536;

// Splits a list in which each name ends with a zero byte.
inline std::vector<std::string> split_names(Bytes names) {
  std::vector<std::string> out;
  std::string_view rest = text_of(names);
  while (!rest.empty()) {
    const std::size_t end = rest.find('\0');
    if (end == std::string_view::npos) break;
    out.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace flyt::client
