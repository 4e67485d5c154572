// How much memory of a GPU code may take once it is loaded, told from the code alone.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace flyt::cuda {

// Code that declares more than can be told counts as that.
inline constexpr std::uint64_t kCodeBytesUnknown = ~std::uint64_t{0};

// The size of the image, or of the largest file of a fat binary unpacked, and of the variables that
// it declares: `.global` and `.const` of PTX, sections without contents of a cubin. Code that a
// driver makes of PTX may be larger, variables never are. None of the bytes is trusted.
std::uint64_t code_bytes(Bytes image);

}  // namespace flyt::cuda
