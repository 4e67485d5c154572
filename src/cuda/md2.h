// MD2 (RFC 1319) and HMAC over it: the digest that cudart's integrity check uses. No security.
#pragma once

#include <array>
#include <cstddef>

#include "base/bytes.h"

namespace flyt::cuda {

inline constexpr std::size_t kMd2Bytes = 16;
using Md2Digest = std::array<std::byte, kMd2Bytes>;

Md2Digest md2(Bytes message);

// `key` has 16 bytes at most.
Md2Digest hmac_md2(Bytes key, Bytes message);

}  // namespace flyt::cuda
