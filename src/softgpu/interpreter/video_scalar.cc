// Video instructions on one value each, a word or a part of one: vadd, vabsdiff, vshl, vset, vmad
// and their like.
#include <optional>
#include <string_view>

#include "softgpu/interpreter/video.h"

namespace flyt::ptx {
namespace {

using Op = VideoOp;

enum class Second : std::uint8_t { kNone, kAdd, kMinimum, kMaximum };

// A word, one of its bytes or one of its halves, as a number for a step's options.
struct Part {
  unsigned shift = 0;
  unsigned bits = 32;
};
constexpr std::string_view kParts[] = {"", "b0", "b1", "b2", "b3", "h0", "h1"};
constexpr Part kPlaces[] = {{0, 32}, {0, 8}, {8, 8}, {16, 8}, {24, 8}, {0, 16}, {16, 16}};

std::int64_t value_of(std::uint32_t word, std::int64_t part, bool sign) {
  const Part place = kPlaces[part & 7];
  return field(word, place.shift, place.bits, sign);
}

// value: Op | part of d, a, b << 8, 12, 16 | signs of d, a, b << 20 | .sat << 23 | Second << 24 |
// .wrap << 26.
struct Scalar {
  static std::uint32_t apply(std::int64_t options, std::uint32_t a, std::uint32_t b,
                             std::uint32_t c) {
    const auto op = static_cast<Op>(options & 0xff);
    const Part into = kPlaces[options >> 8 & 7];
    const auto flag = [&](int place) { return (options >> place & 1) != 0; };
    const bool sign = flag(20);
    std::int64_t second = value_of(b, options >> 16, flag(22));
    if (op == Op::kShiftLeft || op == Op::kShiftRight) {
      second = flag(26) ? second & 31 : std::min<std::int64_t>(second, 32);
    }
    std::int64_t value = combine(op, value_of(a, options >> 12, flag(21)), second);
    if (flag(23)) value = saturate(value, into.bits, sign);
    const std::int64_t third = field(c, 0, 32, sign);
    switch (static_cast<Second>(options >> 24 & 3)) {
      case Second::kNone:
        break;
      case Second::kAdd:
        return static_cast<std::uint32_t>(value + third);
      case Second::kMinimum:
        return static_cast<std::uint32_t>(std::min(in_33_bits(value), third));
      case Second::kMaximum:
        return static_cast<std::uint32_t>(std::max(in_33_bits(value), third));
    }
    if (into.bits == 32) return static_cast<std::uint32_t>(value);
    const std::uint32_t place = ((1u << into.bits) - 1) << into.shift;
    return (static_cast<std::uint32_t>(value) << into.shift & place) | (c & ~place);
  }

  // What a result is before it meets the third operand.
  static std::int64_t in_33_bits(std::int64_t value) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) << 31) >> 31;
  }
};

// value: signs of a, b, of the result << 0 | part of a, b << 4, 8 | the product is negated << 12 |
// c is << 13 | .po << 14 | .sat << 15 | bits of .shr << 16.
struct MultiplyAdd {
  static std::uint32_t apply(std::int64_t options, std::uint32_t a, std::uint32_t b,
                             std::uint32_t c) {
    const auto flag = [&](int place) { return (options >> place & 1) != 0; };
    const bool sign = flag(2);
    __int128 value = value_of(a, options >> 4, flag(0));
    value *= value_of(b, options >> 8, flag(1));
    if (flag(12)) value = ~value;
    if (flag(13)) c = ~c;
    value += field(c, 0, 32, sign);
    if (flag(12) || flag(13) || flag(14)) value += 1;
    value >>= options >> 16 & 15;
    if (flag(15)) {
      const __int128 half = __int128{1} << 31;
      value =
          sign ? std::clamp(value, -half, half - 1) : std::clamp<__int128>(value, 0, 2 * half - 1);
    }
    return static_cast<std::uint32_t>(value);
  }
};

// The part that an operand names, as its number.
bool take_part(Selector& s, std::size_t index, std::int64_t& part) {
  const auto* const found = std::find(std::begin(kParts), std::end(kParts), s.part(index));
  if (found == std::end(kParts)) return s.refuse_form();
  part = found - kParts;
  return true;
}

std::optional<Op> operation(std::uint32_t opcode) {
  switch (opcode) {
    case "vadd"_n:
      return Op::kAdd;
    case "vsub"_n:
      return Op::kSubtract;
    case "vabsdiff"_n:
      return Op::kDifference;
    case "vmin"_n:
      return Op::kMinimum;
    case "vmax"_n:
      return Op::kMaximum;
    case "vset"_n:
      return Op::kEqual;
    case "vshl"_n:
      return Op::kShiftLeft;
    case "vshr"_n:
      return Op::kShiftRight;
    default:
      return std::nullopt;
  }
}

// vmad.dtype.atype.btype{.po}{.sat}{.shr7,.shr15} d, {-}a.part, {-}b.part, {-}c
bool select_multiply_add(Selector& s) {
  bool signs[3] = {};
  std::int64_t parts[2] = {};
  if (!take_signs(s, signs, 3) || !s.need(4, 4) || !take_part(s, 1, parts[0]) ||
      !take_part(s, 2, parts[1])) {
    return false;
  }
  const bool product = s.minus(1) != s.minus(2);
  const bool third = s.minus(3);
  const bool plus_one = s.take("po"_n);
  // One negation, and none beside .po.
  if ((product && third) || (plus_one && (s.minus(1) || s.minus(2) || third))) {
    return s.refuse_form();
  }
  const bool sign = signs[1] || signs[2] || product || third;
  Step step;
  step.value = std::int64_t{signs[1]} | std::int64_t{signs[2]} << 1 | std::int64_t{sign} << 2 |
               parts[0] << 4 | parts[1] << 8 | std::int64_t{product} << 12 |
               std::int64_t{third} << 13 | std::int64_t{plus_one} << 14;
  if (s.take("sat"_n)) step.value |= 1 << 15;
  const int scale = s.take_one({"shr7"_n, "shr15"_n});
  if (scale >= 0) step.value |= std::int64_t{scale == 0 ? 7 : 15} << 16;
  using U = std::uint32_t;
  step.handler = &lanewise_with<MultiplyAdd, U, U, U, U>;
  return s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
         s.source(2, Type::kB32, step.b) && s.source(3, Type::kB32, step.c) && s.emit(step);
}

}  // namespace

bool scalar_video_known(std::uint32_t opcode) {
  return opcode == "vmad"_n || operation(opcode).has_value();
}

// vop.dtype.atype.btype{.sat}{.op2} d{.part}, a{.part}, b{.part}{, c}
bool select_scalar_video(Selector& s) {
  if (s.opcode() == "vmad"_n) return select_multiply_add(s);
  std::optional<Op> op = operation(s.opcode());
  if (!op) return s.refuse_form();
  const bool compares = *op == Op::kEqual;
  const bool shifts = *op == Op::kShiftLeft || *op == Op::kShiftRight;
  bool signs[3] = {};
  if (!take_signs(s, compares ? signs + 1 : signs, compares ? 2 : 3)) return false;
  if (compares && !take_comparison(s, *op)) return false;
  if (shifts && signs[2]) return s.refuse_form();
  Step step;
  step.value = static_cast<std::int64_t>(*op);
  for (int i = 0; i < 3; ++i) step.value |= std::int64_t{signs[i]} << (20 + i);
  if (!compares && s.take("sat"_n)) step.value |= 1 << 23;
  if (shifts) {
    const int mode = s.take_one({"clamp"_n, "wrap"_n});
    if (mode < 0) return s.refuse_form();
    step.value |= std::int64_t{mode} << 26;
  }
  const int second = s.take_one({"add"_n, "min"_n, "max"_n});
  step.value |= std::int64_t{second + 1} << 24;
  for (int i = 0; i < 3; ++i) {
    std::int64_t part = 0;
    if (!s.need(3, 4) || !take_part(s, static_cast<std::size_t>(i), part)) return false;
    step.value |= part << (8 + 4 * i);
  }
  // The third operand is for one thing or the other.
  const bool merges = (step.value >> 8 & 7) != 0;
  const std::size_t operands = merges || second >= 0 ? 4 : 3;
  if ((merges && second >= 0) || !s.need(operands, operands)) return s.refuse_form();
  using U = std::uint32_t;
  step.handler = &lanewise_with<Scalar, U, U, U, U>;
  const bool good = s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
                    s.source(2, Type::kB32, step.b);
  if (!good) return false;
  const bool third = operands == 4 ? s.source(3, Type::kB32, step.c) : s.constant(0, 4, step.c);
  return third && s.emit(step);
}

}  // namespace flyt::ptx
