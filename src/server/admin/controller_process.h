// A child of the server that answers whoever controls it, and then ends.
#pragma once

#include <memory>

#include "server/session_process.h"
#include "transport/transport.h"

namespace flyt::server::admin {

// Whether the peer of a Unix socket may control this server: the same user, or root.
bool may_control(const transport::Connection& connection);

// Hears the hello, and serves the peer to its end. The process has nothing left to do after it.
void serve_control(std::unique_ptr<transport::Connection> connection, const SessionOptions& options,
                   std::uint32_t sessions_max, int wake);

}  // namespace flyt::server::admin
