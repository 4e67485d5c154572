// ServerInfo: what a server says about itself when greeted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace flyt::control {

inline constexpr Duration kGreetTime = std::chrono::seconds(5);

struct ServerInfo {
  std::string url;
  std::string server;
  std::string driver;  // "nvidia", "soft" or a path.
  std::uint32_t cuda_version = 0;
  std::uint16_t protocol_version = 0;
};

// Connects, greets and leaves. The error names the address and what is wrong.
Result<ServerInfo> greet(std::string_view url);

// As text for people, or as one JSON object.
std::string describe(const ServerInfo& info, bool json);

}  // namespace flyt::control
