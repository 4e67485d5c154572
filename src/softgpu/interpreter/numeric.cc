#include "softgpu/interpreter/numeric.h"

#include <cfenv>

namespace flyt::ptx {
namespace {

// Does cutting off `rest` (of `bits` bits, below a last kept bit `odd`) round the magnitude up?
bool rounds_up(std::uint64_t rest, int bits, bool odd, bool negative, Rounding rounding) {
  if (rest == 0) return false;
  const std::uint64_t half = 1ull << (bits - 1);
  switch (rounding) {
    case Rounding::kNearest:
      return rest > half || (rest == half && odd);
    case Rounding::kNearestAway:
      return rest >= half;
    case Rounding::kZero:
      return false;
    case Rounding::kDown:
      return negative;
    case Rounding::kUp:
      return !negative;
  }
  return false;
}

}  // namespace

std::uint32_t narrow(double value, const Format& format, Rounding rounding, bool finite) {
  const std::uint64_t all = bits_of(value);
  const bool negative = all >> 63 != 0;
  const int width = format.exponent_bits + format.fraction_bits;
  const std::uint32_t sign = negative ? 1u << width : 0;
  if (value != value) return format.nan;
  const std::uint32_t top = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
  const std::uint32_t largest = format.infinities     ? top - 1
                                : format.numbers_only ? (1u << width) - 1
                                                      : (1u << width) - 2;
  if (std::isinf(value)) {
    if (finite) return sign | largest;
    return format.infinities ? sign | top : format.nan;
  }
  if (value == 0) return sign;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent = static_cast<int>(all >> 52 & 0x7ff);
  std::uint64_t fraction = all & ((1ull << 52) - 1);
  if (exponent != 0) {
    fraction |= 1ull << 52;
  } else {
    exponent = 1;
  }
  int scaled = exponent - 1023 + bias;  // The exponent field, if it is a normal number.
  int drop = 52 - format.fraction_bits;
  if (scaled < 1) {
    drop += 1 - scaled;
    scaled = 1;
  }
  std::uint64_t kept = 0;
  std::uint64_t rest = fraction;
  if (drop > 62) {
    // Far below the smallest number: anything but zero rounds like a tiny bit.
    drop = 62;
    rest = 1;
  } else {
    kept = fraction >> drop;
    rest = fraction & ((1ull << drop) - 1);
  }
  if (rounds_up(rest, drop, (kept & 1) != 0, negative, rounding)) ++kept;
  // A carry out of the fraction goes into the exponent field by itself.
  const std::int64_t magnitude = (static_cast<std::int64_t>(scaled - 1) << format.fraction_bits) +
                                 static_cast<std::int64_t>(kept);
  if (magnitude > largest) {
    const bool away = rounding == Rounding::kNearest || rounding == Rounding::kNearestAway ||
                      (rounding == Rounding::kUp && !negative) ||
                      (rounding == Rounding::kDown && negative);
    if (finite || !away) return sign | largest;
    return format.infinities ? sign | top : format.nan;
  }
  return sign | static_cast<std::uint32_t>(magnitude);
}

double widen(std::uint32_t bits, const Format& format) {
  const int width = format.exponent_bits + format.fraction_bits;
  const bool negative = (bits >> width & 1) != 0;
  const std::uint32_t magnitude = bits & ((1u << width) - 1);
  const auto exponent = static_cast<int>(magnitude >> format.fraction_bits);
  const std::uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
  const int top = (1 << format.exponent_bits) - 1;
  double result = 0;
  if (!format.infinities && !format.numbers_only && magnitude == (1u << width) - 1) {
    result = std::numeric_limits<double>::quiet_NaN();
  } else if (format.infinities && exponent == top) {
    result = fraction == 0 ? std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
  } else {
    const int bias = (1 << (format.exponent_bits - 1)) - 1;
    const std::uint32_t whole = exponent == 0 ? fraction : fraction | 1u << format.fraction_bits;
    const int power = (exponent == 0 ? 1 : exponent) - bias - format.fraction_bits;
    result = std::ldexp(static_cast<double>(whole), power);
  }
  return negative ? -result : result;
}

RoundingScope::RoundingScope(Rounding rounding) : before_(std::fegetround()) {
  switch (rounding) {
    case Rounding::kNearest:
    case Rounding::kNearestAway:
      std::fesetround(FE_TONEAREST);
      break;
    case Rounding::kZero:
      std::fesetround(FE_TOWARDZERO);
      break;
    case Rounding::kDown:
      std::fesetround(FE_DOWNWARD);
      break;
    case Rounding::kUp:
      std::fesetround(FE_UPWARD);
      break;
  }
}

RoundingScope::~RoundingScope() { std::fesetround(before_); }

}  // namespace flyt::ptx
