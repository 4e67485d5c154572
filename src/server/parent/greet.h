// Greet: how connections that are no sessions of CUDA are welcomed.
#pragma once

#include "base/result.h"
#include "server/nvml/fleet.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::server {

// From accepting a client to its welcome; a driver may start slowly.
inline constexpr Duration kWelcomeTime = std::chrono::seconds(30);

// Agrees on versions and limits, or refuses.
Result<wire::Limits> greet_without_session(transport::Connection& connection,
                                           const wire::ClientHello& hello,
                                           const nvml::Fleet& fleet);

}  // namespace flyt::server
