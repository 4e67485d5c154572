// A child of the server that serves a monitor and then ends.
#pragma once

#include <memory>

#include "server/session_process.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::server::nvml {

// Serves one client to its end. The process has nothing left to do after it.
void serve_monitor(std::unique_ptr<transport::Connection> connection,
                   const wire::ClientHello& hello, const SessionOptions& options);

}  // namespace flyt::server::nvml
