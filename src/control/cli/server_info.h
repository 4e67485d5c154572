// ServerInfo: what a server says about itself when greeted.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "wire/hello.h"

namespace flyt::cli {

inline constexpr Duration kGreetTime = std::chrono::seconds(5);

// Connects, greets and leaves. The error names the address and what is wrong.
Result<wire::Welcome> greet(std::string_view url);

// As text for people, or as one JSON object.
std::string describe(std::string_view url, const wire::Welcome& welcome, bool json);

}  // namespace flyt::cli
