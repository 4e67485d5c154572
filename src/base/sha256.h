// Sha256: the hash of FIPS 180-4, by the processor's own instructions where it has them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace flyt {

using Digest = std::array<std::byte, 32>;

// About 2 GB/s with SHA instructions (all x86-64 servers since 2019 or so), else 0.2 GB/s.
Digest sha256(Bytes bytes);

// The same without those instructions: for tests.
Digest sha256_portable(Bytes bytes);

// 64 lower-case hexadecimal digits.
std::string to_hex(const Digest& digest);

}  // namespace flyt
