// peek(): what has come, without taking it.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/result.h"

namespace flyt::transport {

// Looks at what has arrived at a connected socket and leaves it there; 0 if there is nothing. kLost
// when the peer has gone and nothing is left of what it said.
Result<std::size_t> peek(int fd, MutableBytes into);

}  // namespace flyt::transport
