// Greeting: moving whole hellos over a connection before a deadline; both sides use it.
#pragma once

#include <vector>

#include "base/result.h"
#include "transport/transport.h"
#include "wire/hello.h"

namespace flyt::rpc {

// Reads one hello of any kind, prefix included, and not a byte more.
Result<std::vector<std::byte>> read_hello(transport::Connection& connection, Instant deadline);

// Writes all of `bytes`.
Status write_hello(transport::Connection& connection, Bytes bytes, Instant deadline);

}  // namespace flyt::rpc
