// cvt: PTX ISA, "Data Movement and Conversion Instructions: cvt".
#include <algorithm>
#include <limits>

#include "softgpu/interpreter/convert.h"
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

// How a conversion is done; packed into Step::value.
struct How {
  Type to = Type::kU32;
  Type from = Type::kU32;
  Rounding rounding = Rounding::kNearest;
  bool ftz = false;
  bool sat = false;
  bool relu = false;
  bool finite = false;
  bool integral = false;  // .rni and the like: rounds to an integer.

  std::int64_t packed() const {
    return static_cast<std::int64_t>(to) | static_cast<std::int64_t>(from) << 8 |
           static_cast<std::int64_t>(rounding) << 16 | std::int64_t{ftz} << 24 |
           std::int64_t{sat} << 25 | std::int64_t{relu} << 26 | std::int64_t{finite} << 27 |
           std::int64_t{integral} << 28;
  }
  static How unpacked(std::int64_t value) {
    const auto bit = [&](int place) { return (value >> place & 1) != 0; };
    return {static_cast<Type>(value & 0xff),
            static_cast<Type>(value >> 8 & 0xff),
            static_cast<Rounding>(value >> 16 & 0xff),
            bit(24),
            bit(25),
            bit(26),
            bit(27),
            bit(28)};
  }
};

template <class D>
struct Cast {
  template <class S>
  static D apply(S value) {
    return static_cast<D>(value);
  }
};

template <class F>
Handler pick_any_integer(Type type, F&& f) {
  if (type == Type::kU8 || type == Type::kB8) return f(std::uint8_t{});
  if (type == Type::kS8) return f(std::int8_t{});
  if (type == Type::kB16) return f(std::uint16_t{});
  if (type == Type::kB32) return f(std::uint32_t{});
  if (type == Type::kB64) return f(std::uint64_t{});
  return pick_integer(type, f);
}

bool is_integer(Type type) {
  return !is_floating(type) && type_bytes(type) >= 1 && type_bytes(type) <= 8 &&
         static_cast<int>(type) <= static_cast<int>(Type::kB64);
}

// Any integer of up to 64 bits.
__int128 read_integer(Type type, const std::byte* row, unsigned lane) {
  switch (type) {
    case Type::kU8:
      return get<std::uint8_t>(row, lane);
    case Type::kS8:
      return get<std::int8_t>(row, lane);
    case Type::kU16:
      return get<std::uint16_t>(row, lane);
    case Type::kS16:
      return get<std::int16_t>(row, lane);
    case Type::kU32:
      return get<std::uint32_t>(row, lane);
    case Type::kS32:
      return get<std::int32_t>(row, lane);
    case Type::kU64:
      return get<std::uint64_t>(row, lane);
    default:
      return get<std::int64_t>(row, lane);
  }
}

void write_integer(Type type, std::byte* row, unsigned lane, __int128 value) {
  switch (type_bytes(type)) {
    case 1:
      return put<std::uint8_t>(row, lane, static_cast<std::uint8_t>(value));
    case 2:
      return put<std::uint16_t>(row, lane, static_cast<std::uint16_t>(value));
    case 4:
      return put<std::uint32_t>(row, lane, static_cast<std::uint32_t>(value));
    default:
      return put<std::uint64_t>(row, lane, static_cast<std::uint64_t>(value));
  }
}

double read_float(Type type, const std::byte* row, unsigned lane) {
  switch (type) {
    case Type::kF16:
      return to_float(get<Half>(row, lane));
    case Type::kBF16:
      return to_float(get<Bfloat>(row, lane));
    case Type::kF32:
      return get<float>(row, lane);
    default:
      return get<double>(row, lane);
  }
}

const Format& format_of(Type type) {
  if (type == Type::kF16) return kHalfFormat;
  if (type == Type::kBF16) return kBfloatFormat;
  return kSingleFormat;
}

void write_float(const How& how, std::byte* row, unsigned lane, double value) {
  if (how.sat) value = clamp01(value);
  if (how.relu && value < 0) value = 0;
  if (how.to == Type::kF64) return put<double>(row, lane, value);
  std::uint32_t bits = narrow(value, format_of(how.to), how.rounding, how.finite);
  if (how.to != Type::kF32) {
    return put<std::uint16_t>(row, lane, static_cast<std::uint16_t>(bits));
  }
  if (how.ftz) bits = bits_of(flush(float_of(bits)));
  put<std::uint32_t>(row, lane, bits);
}

// The whole range of an integer type, as doubles; the upper bound is the first value beyond.
__int128 clamp_to(Type type, __int128 value) {
  const unsigned bits = type_bytes(type) * 8;
  const __int128 one = 1;
  const __int128 low = is_signed(type) ? -(one << (bits - 1)) : 0;
  const __int128 high = is_signed(type) ? (one << (bits - 1)) - 1 : (one << bits) - 1;
  return value < low ? low : value > high ? high : value;
}

double round_integral(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return std::nearbyint(value);
    case Rounding::kZero:
      return std::trunc(value);
    case Rounding::kDown:
      return std::floor(value);
    case Rounding::kUp:
      return std::ceil(value);
    case Rounding::kNearestAway:
      return std::round(value);
  }
  return value;
}

__int128 float_to_integer(const How& how, double value) {
  if (value != value) {
    // NaN: the top bit where 64 bits are involved, otherwise 0.
    const unsigned bits = type_bytes(how.to) * 8;
    const bool wide = how.from == Type::kF64 || bits == 64;
    return wide ? static_cast<__int128>(1) << (bits - 1) : 0;
  }
  value = round_integral(value, how.rounding);
  if (value >= 0x1p65) value = 0x1p65;
  if (value <= -0x1p65) value = -0x1p65;
  return clamp_to(how.to, static_cast<__int128>(value));
}

// An integer as a double whose last bit tells that something was cut off.
double integer_to_odd(__int128 value) {
  const bool negative = value < 0;
  auto magnitude = static_cast<std::uint64_t>(negative ? -value : value);
  const int extra = 11 - std::countl_zero(magnitude | 1);
  if (extra > 0) {
    const std::uint64_t cut = magnitude & ((1ull << extra) - 1);
    magnitude &= ~((1ull << extra) - 1);
    if (cut != 0) magnitude |= 1ull << extra;
  }
  const auto result = static_cast<double>(magnitude);
  return negative ? -result : result;
}

double integer_to_double(__int128 value, Rounding rounding) {
  const RoundingScope scope(rounding);
  // Read after the rounding direction was set.
  volatile std::uint64_t magnitude = static_cast<std::uint64_t>(value);
  volatile double result = value < 0 ? static_cast<double>(static_cast<std::int64_t>(magnitude))
                                     : static_cast<double>(magnitude);
  return result;
}

// The one that does everything; the frequent conversions have their own below.
Flow convert_any(Warp& warp, const Step& step, Mask lanes) {
  const How how = How::unpacked(step.value);
  const std::byte* a = warp.row(step.a);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    if (is_integer(how.from)) {
      const __int128 value = read_integer(how.from, a, lane);
      if (is_integer(how.to)) {
        return write_integer(how.to, d, lane, how.sat ? clamp_to(how.to, value) : value);
      }
      const double wide =
          how.to == Type::kF64 ? integer_to_double(value, how.rounding) : integer_to_odd(value);
      return write_float(how, d, lane, wide);
    }
    double value = read_float(how.from, a, lane);
    // Nothing of a NaN is left, as in cvt.ftz.f64.f32 on an H100.
    if (how.ftz && how.from == Type::kF32) value = canonical(flush(static_cast<float>(value)));
    if (is_integer(how.to)) return write_integer(how.to, d, lane, float_to_integer(how, value));
    if (how.integral) value = round_integral(value, how.rounding);
    write_float(how, d, lane, value);
  });
  return Flow::kNext;
}

template <class I, class F, bool Ftz>
struct Truncate {
  static I apply(F value) {
    value = flushed<Ftz>(value);
    constexpr unsigned kBits = sizeof(I) * 8;
    constexpr bool kWide = kBits == 64 || sizeof(F) == 8;
    if (value != value) return static_cast<I>(std::uint64_t{kWide} << (kBits - 1));
    constexpr F kLow = static_cast<F>(std::numeric_limits<I>::min());
    constexpr F kBeyond = static_cast<F>(std::numeric_limits<I>::max() / 2 + 1) * 2;
    if (value <= kLow) return std::numeric_limits<I>::min();
    return value >= kBeyond ? std::numeric_limits<I>::max() : static_cast<I>(value);
  }
};
struct Widen {
  template <class S>
  static float apply(S value) {
    // ptxas makes a shift of it, so of a NaN all is left.
    if constexpr (std::is_same_v<S, Bfloat>) return to_float(value);
    return canonical(to_float(value));
  }
};
struct Narrow16 {
  static Half apply(float value) { return to_half(value); }
};
struct NarrowB16 {
  static Bfloat apply(float value) { return to_bfloat(value); }
};
struct NarrowSingle {
  // A NaN keeps its sign and the upper bits of its payload, as on an H100.
  static float apply(double value) { return static_cast<float>(value); }
};

// To integers of 32 and 64 bits.
template <class F, bool Ftz>
Handler truncate(Type to) {
  const auto made = [](auto t) -> Handler {
    using I = decltype(t);
    return &lanewise<Truncate<I, F, Ftz>, I, F>;
  };
  if (type_bytes(to) == 8) return is_signed(to) ? made(std::int64_t{}) : made(std::uint64_t{});
  return is_signed(to) ? made(std::int32_t{}) : made(std::uint32_t{});
}

// A faster way for what occurs often; null where there is none.
Handler frequent(const How& how) {
  if (how.relu || how.finite || how.sat) return nullptr;
  const Type to = how.to;
  const Type from = how.from;
  if (is_integer(from) && (to == Type::kF32 || to == Type::kF64)) {
    if (how.rounding != Rounding::kNearest) return nullptr;
    if (to == Type::kF32) {
      return pick_any_integer(
          from, [](auto t) -> Handler { return &lanewise<Cast<float>, float, decltype(t)>; });
    }
    return pick_any_integer(
        from, [](auto t) -> Handler { return &lanewise<Cast<double>, double, decltype(t)>; });
  }
  if (how.rounding == Rounding::kZero && how.integral && type_bytes(to) >= 4 && is_integer(to)) {
    if (from == Type::kF64) return truncate<double, false>(to);
    if (from == Type::kF32) return how.ftz ? truncate<float, true>(to) : truncate<float, false>(to);
  }
  if (how.ftz || how.integral) return nullptr;
  if (to == Type::kF32 && from == Type::kF16) return &lanewise<Widen, float, Half>;
  if (to == Type::kF32 && from == Type::kBF16) return &lanewise<Widen, float, Bfloat>;
  if (to == Type::kF64 && from == Type::kF32) return &lanewise<Cast<double>, double, float>;
  if (how.rounding != Rounding::kNearest) return nullptr;
  if (to == Type::kF16 && from == Type::kF32) return &lanewise<Narrow16, Half, float>;
  if (to == Type::kBF16 && from == Type::kF32) return &lanewise<NarrowB16, Bfloat, float>;
  if (to == Type::kF32 && from == Type::kF64) return &lanewise<NarrowSingle, float, double>;
  return nullptr;
}

bool take_rounding(Selector& s, How& how) {
  const int to_integer = s.take_one({"rni"_n, "rzi"_n, "rmi"_n, "rpi"_n});
  if (to_integer >= 0) {
    how.integral = true;
    how.rounding = static_cast<Rounding>(to_integer);
    return true;
  }
  const int direction = s.take_one({"rn"_n, "rz"_n, "rm"_n, "rp"_n, "rna"_n});
  if (direction >= 0) how.rounding = static_cast<Rounding>(direction);
  return !s.has("rs"_n);
}

// A register row as the type needs it: a wider source is cut, a wider destination extended.
bool cut_source(Selector& s, const Operand& operand, Type type, Row& row) {
  if (!s.source(operand, type, row, true)) return false;
  if (s.register_bytes(operand) != 8 || type_bytes(type) == 8) return true;
  Step cut;
  cut.handler = cast_handler(Type::kU32, Type::kU64);
  cut.a = row;
  cut.d = row = s.temporary(4);
  return s.emit_unguarded(cut);
}

// Emits `step` such that its result of `type` ends in the operand, extended where it is wider.
bool emit_extended(Selector& s, Step step, const Operand& operand, Type type) {
  const unsigned have = s.register_bytes(operand);
  if (have == type_bytes(type) || operand.kind == Operand::Kind::kSink || is_floating(type)) {
    return s.destination(operand, type, step.d, is_floating(type) && have <= 4) && s.emit(step);
  }
  Step extend;
  if (!s.destination(operand, type, extend.d, true)) return false;
  const bool sign = is_signed(type);
  const Type wide = have == 8   ? (sign ? Type::kS64 : Type::kU64)
                    : have == 4 ? (sign ? Type::kS32 : Type::kU32)
                                : (sign ? Type::kS16 : Type::kU16);
  extend.handler = cast_handler(wide, type);
  step.d = extend.a = s.temporary(type_bytes(type));
  return extend.handler != nullptr && s.emit(step) && s.emit(extend);
}

Flow convert_tf32(Warp& warp, const Step& step, Mask lanes) {
  const How how = How::unpacked(step.value);
  const std::byte* a = warp.row(step.a);
  each_lane<std::uint32_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    double value = get<float>(a, lane);
    if (how.relu && value < 0) value = 0;
    const std::uint32_t bits = narrow(value, kTf32Format, how.rounding, how.finite);
    return value != value ? kNan32 : bits << 13;
  });
  return Flow::kNext;
}

const Format& small_format(Type type) {
  switch (type) {
    case Type::kF16x2:
      return kHalfFormat;
    case Type::kBF16x2:
      return kBfloatFormat;
    case Type::kE4M3x2:
      return kE4m3Format;
    case Type::kE2M1x2:
      return kE2m1Format;
    case Type::kE2M3x2:
      return kE2m3Format;
    case Type::kE3M2x2:
      return kE3m2Format;
    default:
      return kE5m2Format;
  }
}

unsigned half_bits(Type type) { return type_bytes(type) * 4; }

// ue8m0 is an exponent alone, of a power of two: 255 is a NaN.
std::uint32_t to_exponent(double value, const How& how) {
  constexpr std::uint32_t kLargest = 254;
  if (value != value) return kLargest + 1;
  const std::uint32_t beyond = how.finite ? kLargest : kLargest + 1;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return beyond;
  if (magnitude <= 0x1p-127) return 0;
  int power = std::ilogb(magnitude);
  if (how.rounding == Rounding::kUp && magnitude > std::ldexp(1.0, power)) ++power;
  return power < -127 ? 0 : power > 127 ? beyond : static_cast<std::uint32_t>(power + 127);
}

double from_exponent(std::uint32_t bits) {
  if (bits == 255) return std::numeric_limits<double>::quiet_NaN();
  return std::ldexp(1.0, static_cast<int>(bits) - 127);
}

// Two floats (a: the upper, b: the lower half) or a pair into a pair.
template <bool FromPair>
Flow convert_pair(Warp& warp, const Step& step, Mask lanes) {
  const How how = How::unpacked(step.value);
  const Format& to = small_format(how.to);
  const std::byte* a = warp.row(step.a);
  const std::byte* b = FromPair ? a : warp.row(step.b);
  std::byte* d = warp.row(step.d);
  const auto one = [&](double value) {
    if (how.relu && value < 0) value = 0;
    if (how.to == Type::kUE8M0x2) return to_exponent(value, how);
    return narrow(value, to, how.rounding, how.finite);
  };
  for_lanes(lanes, [&](unsigned lane) {
    double high = 0;
    double low = 0;
    if constexpr (FromPair) {
      const Format& from = small_format(how.from);
      const unsigned bits = half_bits(how.from);
      const auto both = get<std::uint32_t>(a, lane);
      const auto half = [&](unsigned place) {
        const std::uint32_t pattern = both >> place & ((1u << bits) - 1);
        return how.from == Type::kUE8M0x2 ? from_exponent(pattern) : widen(pattern, from);
      };
      low = half(0);
      high = half(bits);
    } else {
      high = get<float>(a, lane);
      low = get<float>(b, lane);
    }
    put<std::uint32_t>(d, lane, one(low) | one(high) << half_bits(how.to));
  });
  return Flow::kNext;
}

bool is_pair(Type type) {
  return type == Type::kF16x2 || type == Type::kBF16x2 || type == Type::kE4M3x2 ||
         type == Type::kE5M2x2 || type == Type::kE2M1x2 || type == Type::kE2M3x2 ||
         type == Type::kE3M2x2 || type == Type::kUE8M0x2;
}

bool convert_pairs(Selector& s, const How& how) {
  Step step;
  step.value = how.packed();
  if (how.from == Type::kF32) {
    step.handler = &convert_pair<false>;
    return s.need(3, 3) && s.destination(0, how.to, step.d) && s.source(1, Type::kF32, step.a) &&
           s.source(2, Type::kF32, step.b) && s.emit(step);
  }
  if (!is_pair(how.from)) return s.refuse_form();
  step.handler = &convert_pair<true>;
  return s.need(2, 2) && s.destination(0, how.to, step.d) && s.source(1, how.from, step.a) &&
         s.emit(step);
}

// cvt.pack.sat: a and b saturated to the type side by side, c above them where there is room.
Flow convert_pack(Warp& warp, const Step& step, Mask lanes) {
  const auto bits = static_cast<unsigned>(step.value);
  const std::int64_t least = step.extra != 0 ? -(std::int64_t{1} << (bits - 1)) : 0;
  const std::int64_t most = least + (std::int64_t{1} << bits) - 1;
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  const std::uint32_t ones = (1u << bits) - 1;
  for_lanes(lanes, [&](unsigned lane) {
    const auto saturated = [&](const std::byte* row) {
      const std::int64_t value = get<std::int32_t>(row, lane);
      return static_cast<std::uint32_t>(std::clamp(value, least, most)) & ones;
    };
    std::uint32_t result = saturated(b) | saturated(a) << bits;
    if (bits < 16) result |= get<std::uint32_t>(c, lane) << 2 * bits;
    put<std::uint32_t>(warp.row(step.d), lane, result);
  });
  return Flow::kNext;
}

// value: the bits of each half; extra: 1 where these are signed.
bool select_pack(Selector& s) {
  Type from;
  if (!s.take("sat"_n)) return s.refuse_form();
  const int to = s.take_one({"u2"_n, "s2"_n, "u4"_n, "s4"_n, "u8"_n, "s8"_n, "u16"_n, "s16"_n});
  if (to < 0 || !s.take_type(from) || from != Type::kS32) return s.refuse_form();
  Step step;
  step.handler = &convert_pack;
  step.value = std::int64_t{2} << to / 2;
  step.extra = static_cast<std::uint32_t>(to) & 1;
  const bool four = step.value < 16;
  if (four && !s.take("b32"_n)) return s.refuse_form();
  if (!s.need(four ? 4 : 3, four ? 4 : 3)) return false;
  if (!s.destination(0, Type::kB32, step.d) || !s.source(1, Type::kS32, step.a) ||
      !s.source(2, Type::kS32, step.b)) {
    return false;
  }
  step.c = step.a;
  return (!four || s.source(3, Type::kB32, step.c)) && s.emit(step);
}

}  // namespace

Handler cast_handler(Type to, Type from) {
  return pick_any_integer(to, [from](auto d) -> Handler {
    using D = decltype(d);
    return pick_any_integer(from,
                            [](auto s) -> Handler { return &lanewise<Cast<D>, D, decltype(s)>; });
  });
}

bool select_convert(Selector& s) {
  if (s.take("pack"_n)) return select_pack(s);
  How how;
  if (!take_rounding(s, how)) return s.refuse_form();
  how.ftz = s.take("ftz"_n);
  how.sat = s.take("sat"_n);
  how.relu = s.take("relu"_n);
  how.finite = s.take("satfinite"_n);
  if (!s.take_type(how.to) || !s.take_type(how.from)) return false;
  if (is_pair(how.to)) return convert_pairs(s, how);
  Step step;
  step.value = how.packed();
  if (!s.need(2, 2)) return false;
  if (how.to == Type::kTF32) {
    if (how.from != Type::kF32) return s.refuse_form();
    step.handler = &convert_tf32;
    return s.destination(0, Type::kB32, step.d) && s.source(1, Type::kF32, step.a) && s.emit(step);
  }
  const bool integers = is_integer(how.to) && is_integer(how.from);
  if (!is_integer(how.to) && !is_floating(how.to)) return s.refuse_form();
  if (!is_integer(how.from) && !is_floating(how.from)) return s.refuse_form();
  if (is_floating(how.from) && is_integer(how.to) && !how.integral) how.rounding = Rounding::kZero;
  step.value = how.packed();
  step.handler = integers && !how.sat ? cast_handler(how.to, how.from) : frequent(how);
  if (step.handler == nullptr) step.handler = &convert_any;
  return cut_source(s, s.operand(1), how.from, step.a) &&
         emit_extended(s, step, s.operand(0), how.to);
}

}  // namespace flyt::ptx
