// Floating-point arithmetic as PTX defines it, on one value: flushing, NaNs, small formats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "softgpu/interpreter/lanes.h"

namespace flyt::ptx {

enum class Rounding : std::uint8_t { kNearest, kZero, kDown, kUp, kNearestAway };

inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
inline std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

// Operations on .f32 give this NaN; on .f64 the hardware's own.
inline constexpr std::uint32_t kNan32 = 0x7fffffff;
inline constexpr std::uint16_t kNan16 = 0x7fff;

inline float canonical(float value) { return value == value ? value : float_of(kNan32); }
inline double canonical(double value) { return value; }

// .ftz: subnormal numbers become zeros of their sign.
inline float flush(float value) {
  const std::uint32_t bits = bits_of(value);
  return float_of((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
}
template <bool Ftz, class T>
inline T flushed(T value) {
  if constexpr (Ftz && sizeof(T) == 4) return flush(value);
  return value;
}

// .sat: into [0, 1]; NaN becomes +0.
template <class T>
inline T clamp01(T value) {
  if (!(value > T{0})) return T{0};
  return value > T{1} ? T{1} : value;
}

inline float to_float(Half half) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half.bits & 0x7fff) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000) << 16;
  const std::uint32_t exponent = magnitude & 0x0f800000;
  const std::uint32_t normal = magnitude + ((127u - 15) << 23);
  // Subnormal: a float with the same fraction, less what its implied one adds.
  const float tiny = float_of(normal + (1u << 23)) - float_of(113u << 23);
  std::uint32_t bits = normal;
  if (exponent == 0x0f800000) bits = normal + ((128u - 16) << 23);
  if (exponent == 0) bits = bits_of(tiny);
  return float_of(bits | sign);
}

inline Half to_half(float value) {
  const std::uint32_t all = bits_of(value);
  const std::uint32_t sign = all & 0x80000000;
  const std::uint32_t bits = all ^ sign;
  const auto top = static_cast<std::uint16_t>(sign >> 16);
  if (bits > 0x7f800000) return {kNan16};
  if (bits >= 0x47800000) return {static_cast<std::uint16_t>(top | 0x7c00)};
  if (bits < 0x38800000) {
    // The addition rounds to a multiple of the smallest subnormal.
    constexpr std::uint32_t kMagic = ((127u - 15) + (23 - 10) + 1) << 23;
    const std::uint32_t sum = bits_of(float_of(bits) + float_of(kMagic));
    return {static_cast<std::uint16_t>(top | (sum - kMagic))};
  }
  const std::uint32_t odd = bits >> 13 & 1;
  const std::uint32_t rounded = bits - ((127u - 15) << 23) + 0xfff + odd;
  return {static_cast<std::uint16_t>(top | rounded >> 13)};
}

inline float to_float(Bfloat value) {
  return float_of(static_cast<std::uint32_t>(value.bits) << 16);
}
inline Bfloat to_bfloat(float value) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {kNan16};
  return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

// A small binary format: exponent and fraction bits, and whether its top exponent has infinities
// (otherwise only the all-ones pattern is special, a NaN: e4m3; or nothing is, where there is no
// NaN, which then becomes the largest number).
struct Format {
  int exponent_bits = 5;
  int fraction_bits = 10;
  bool infinities = true;
  std::uint32_t nan = 0x7fff;
  bool numbers_only = false;
};
inline constexpr Format kHalfFormat{5, 10, true, 0x7fff};
inline constexpr Format kBfloatFormat{8, 7, true, 0x7fff};
inline constexpr Format kTf32Format{8, 10, true, 0x3ffff};
inline constexpr Format kE4m3Format{4, 3, false, 0x7f};
inline constexpr Format kE5m2Format{5, 2, true, 0x7f};
inline constexpr Format kE2m1Format{2, 1, false, 0x7, true};
inline constexpr Format kE2m3Format{2, 3, false, 0x1f, true};
inline constexpr Format kE3m2Format{3, 2, false, 0x1f, true};
inline constexpr Format kSingleFormat{8, 23, true, 0x7fffffff};

// The value in the format, rounded once. `finite`: too large values become the largest one, NaN
// stays (.satfinite). The sign stands on top of the exponent and fraction.
std::uint32_t narrow(double value, const Format& format, Rounding rounding, bool finite);
// Exact.
double widen(std::uint32_t bits, const Format& format);

// a * b + c, where the product is exact in double, such that rounding the result once more to a
// format of at most 51 bits gives what rounding the exact value would ("round to odd").
inline double fused_to_odd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (c - back);
  std::uint64_t bits = bits_of(sum);
  if (error != 0 && error == error && (bits & 1) == 0) {
    // One step towards the exact value; sum is not 0, for then there would be no error.
    const bool grow = (error > 0) == (sum > 0);
    bits += grow ? 1 : ~std::uint64_t{0};
  }
  return std::bit_cast<double>(bits);
}

inline float fused(float a, float b, float c) { return static_cast<float>(fused_to_odd(a, b, c)); }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }

// min and max: a NaN gives way to the other operand; -0 is less than +0.
template <class T>
inline T minimum(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
inline T maximum(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// Runs its scope with another rounding direction of the host.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding);
  ~RoundingScope();
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

}  // namespace flyt::ptx
