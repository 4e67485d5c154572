// What a client says of host memory that it wants kernels to reach, beside cuMemHostRegister's
// flags.
#pragma once

#include <cstdint>

namespace flyt::wire {

// In the flags of map_host and share_host: it is managed memory, which counts as the GPU's.
inline constexpr std::uint32_t kMapManaged = 0x80000000;

}  // namespace flyt::wire
