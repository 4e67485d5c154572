// Which machine or container a peer is in.
#pragma once

#include <cstddef>
#include <string>

#include "transport/transport.h"

namespace flyt::transport {

// The same text means that process numbers mean the same. At most kMachineBytesMax bytes; of two
// clients behind one address translation it is the same as well.
inline constexpr std::size_t kMachineBytesMax = 63;
std::string machine_of(const Connection& peer);

}  // namespace flyt::transport
