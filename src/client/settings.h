// What the environment tells the client libraries: docs/flyt-run.md has the variables.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/log.h"

namespace flyt::client {

// Empty if it is not set.
std::string_view environment(const char* name);

// FLYT_CONNECT_TIMEOUT_MS: for connecting and the hello together.
Duration connect_timeout();

// How long a server may take to say which devices it has: a driver that starts first has tens of
// seconds to do on some machines.
inline constexpr Duration kDescriptionPatience = std::chrono::minutes(2);

// FLYT_RECOVERY_TIMEOUT_MS: how long another process may take until a session goes on in it.
Duration recovery_patience();

// FLYT_WAIT_MS: for a GPU of this machine's client manager.
Duration wait_patience();

// FLYT_FENCE_US: how long a wait looks at a word of its own (client/streams/fences.h).
Duration fence_patience(Duration wished);

// FLYT_LOG.
LogLevel log_level();

}  // namespace flyt::client
