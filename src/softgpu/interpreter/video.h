// Video: what instructions on parts of registers compute, one value each or packed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "softgpu/interpreter/select.h"

namespace flyt::ptx {

enum class VideoOp : std::uint8_t {
  kAdd,
  kSubtract,
  kAverage,
  kDifference,
  kMinimum,
  kMaximum,
  kEqual,  // Comparisons, in the order of the names that take_comparison() looks for.
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kShiftLeft,
  kShiftRight,
};

// b of shifts is at most 32.
inline std::int64_t combine(VideoOp op, std::int64_t a, std::int64_t b) {
  // Beyond these all bits that matter are alike: none of the low ones, and more than fits.
  constexpr std::int64_t kFar = std::int64_t{1} << 30;
  switch (op) {
    case VideoOp::kAdd:
      return a + b;
    case VideoOp::kSubtract:
      return a - b;
    case VideoOp::kAverage:
      return (a + b + (a + b < 0 ? 0 : 1)) >> 1;  // A half goes away from zero.
    case VideoOp::kDifference:
      return a < b ? b - a : a - b;
    case VideoOp::kMinimum:
      return std::min(a, b);
    case VideoOp::kMaximum:
      return std::max(a, b);
    case VideoOp::kEqual:
      return a == b;
    case VideoOp::kNotEqual:
      return a != b;
    case VideoOp::kLess:
      return a < b;
    case VideoOp::kLessEqual:
      return a <= b;
    case VideoOp::kGreater:
      return a > b;
    case VideoOp::kGreaterEqual:
      return a >= b;
    case VideoOp::kShiftLeft:
      return b < 32 ? a * (std::int64_t{1} << b) : std::clamp(a, -kFar, kFar) * (kFar << 2);
    case VideoOp::kShiftRight:
      return a >> b;
  }
  return 0;
}

// `bits` of a word from `shift` on.
inline std::int64_t field(std::uint32_t word, unsigned shift, unsigned bits, bool sign) {
  const std::uint32_t up = word << (32 - bits - shift);
  return sign ? static_cast<std::int32_t>(up) >> (32 - bits) : std::int64_t{up >> (32 - bits)};
}

// To what so many bits can hold.
inline std::int64_t saturate(std::int64_t value, unsigned bits, bool sign) {
  const std::int64_t half = std::int64_t{1} << (bits - 1);
  return sign ? std::clamp(value, -half, half - 1)
              : std::clamp<std::int64_t>(value, 0, 2 * half - 1);
}

// The types of a value each, .u32 or .s32, of the instruction's first modifiers.
inline bool take_signs(Selector& s, bool* signs, int count) {
  for (int i = 0; i < count; ++i) {
    Type type = Type::kU32;
    if (!s.take_type(type)) return false;
    if (type != Type::kU32 && type != Type::kS32) return s.refuse_form();
    signs[i] = is_signed(type);
  }
  return true;
}

inline bool take_comparison(Selector& s, VideoOp& op) {
  const int which = s.take_one({"eq"_n, "ne"_n, "lt"_n, "le"_n, "gt"_n, "ge"_n});
  if (which < 0) return s.refuse_form();
  op = static_cast<VideoOp>(static_cast<int>(VideoOp::kEqual) + which);
  return true;
}

}  // namespace flyt::ptx
