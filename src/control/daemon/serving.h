// Why gRPC does not serve at an address: it says no more than that.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace flyt::control {

// `key` of the configuration has the address, HOST:PORT.
Error cannot_serve(std::string_view key, const std::string& address);

}  // namespace flyt::control
