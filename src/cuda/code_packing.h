// Packing: code made smaller for a slow link, and taken apart again.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace flyt::cuda {

// Packed code that unpacks to more than this many times its size is a bomb, not code.
inline constexpr std::uint64_t kPackedRatioMax = 64;

// A zstd frame; empty where that would save less than an eighth, as with what is packed already, or
// where it would look like a bomb.
std::vector<std::byte> pack_code(Bytes code);

// What was packed, exactly `size` bytes, with a zero byte behind it. kInvalid for anything else,
// kLimit for a bomb, before memory is taken for it.
Result<std::vector<std::byte>> unpack_code(Bytes packed, std::uint64_t size);

}  // namespace flyt::cuda
