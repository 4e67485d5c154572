// What float.cc takes from rounding.cc: directed rounding and the fused multiply-add of the host.
#pragma once

#include <cstdint>

#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/types.h"

namespace flyt::ptx {

enum class Directed : std::uint8_t {
  kNone,
  kAdd,
  kSubtract,
  kMultiply,
  kFused,
  kDivide,
  kReciprocal,
  kSquareRoot
};

// Step::value of a directed operation.
constexpr std::int64_t directed_options(Rounding rounding, bool ftz, bool sat) {
  return static_cast<std::int64_t>(rounding) | (ftz ? 16 : 0) | (sat ? 32 : 0);
}

// .rz, .rm and .rp of any operation.
Handler directed_handler(Directed operation, Type type);

// fma.rn by the processor's own instruction; null where it has none.
Handler fast_fused(Type type, bool ftz, bool sat);

}  // namespace flyt::ptx
