// Results of commands that use code, beyond CUDA's own: the code was named by its hash alone.
#pragma once

#include <cstdint>

namespace flyt::wire {

// The server has no such code: it waits for its bytes, and for the command again.
inline constexpr std::uint32_t kResultSendCode = 0x10000001;
// The same, and the server keeps no code: naming it is of no use in this session.
inline constexpr std::uint32_t kResultNoStore = 0x10000002;

// Bytes of the hash that names code: SHA-256.
inline constexpr std::uint32_t kCodeHashBytes = 32;

}  // namespace flyt::wire
