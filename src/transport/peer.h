// Peer: the process at the other end of a Unix socket, as far as the system vouches for it.
#pragma once

#include <cstdint>
#include <optional>

namespace flyt::transport {

// As it was when it connected.
struct PeerProcess {
  std::int32_t process = 0;  // 0: of a namespace that this one cannot see.
  std::uint32_t user = 0;
};

// None of other sockets.
std::optional<PeerProcess> process_of_peer(int fd);

}  // namespace flyt::transport
