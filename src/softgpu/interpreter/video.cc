// Video instructions on packed bytes and halves: vadd2, vabsdiff4, vset2 and their like, without
// masks.
#include <algorithm>

#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

enum class Op : std::uint8_t {
  kAdd,
  kSubtract,
  kAverage,
  kDifference,
  kMinimum,
  kMaximum,
  kEqual,  // Comparisons, in the order of the names that select_video() looks for.
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
};

std::int32_t combine(Op op, std::int32_t a, std::int32_t b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kAverage:
      return (a + b + (a + b < 0 ? 0 : 1)) >> 1;  // A half goes away from zero.
    case Op::kDifference:
      return a < b ? b - a : a - b;
    case Op::kMinimum:
      return std::min(a, b);
    case Op::kMaximum:
      return std::max(a, b);
    case Op::kEqual:
      return a == b;
    case Op::kNotEqual:
      return a != b;
    case Op::kLess:
      return a < b;
    case Op::kLessEqual:
      return a <= b;
    case Op::kGreater:
      return a > b;
    case Op::kGreaterEqual:
      return a >= b;
  }
  return 0;
}

std::int32_t field(std::uint32_t word, unsigned shift, unsigned bits, bool sign) {
  const std::uint32_t up = word << (32 - bits - shift);
  return sign ? static_cast<std::int32_t>(up) >> (32 - bits)
              : static_cast<std::int32_t>(up >> (32 - bits));
}

// value: Op | bits of a field << 8 | signs of d, a, b << 16 | .sat << 20 | .add << 21.
struct Packed {
  static std::uint32_t apply(std::int64_t options, std::uint32_t a, std::uint32_t b,
                             std::uint32_t c) {
    const auto op = static_cast<Op>(options & 0xff);
    const auto bits = static_cast<unsigned>(options >> 8 & 0xff);
    const auto flag = [&](int place) { return (options >> place & 1) != 0; };
    const std::int32_t low = flag(16) ? -(1 << (bits - 1)) : 0;
    const std::int32_t high = flag(16) ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    std::uint32_t result = 0;
    for (unsigned shift = 0; shift < 32; shift += bits) {
      std::int32_t value =
          combine(op, field(a, shift, bits, flag(17)), field(b, shift, bits, flag(18)));
      if (flag(20)) value = std::clamp(value, low, high);
      if (flag(21)) {
        c += static_cast<std::uint32_t>(value);
      } else {
        result |= (static_cast<std::uint32_t>(value) & ((1u << bits) - 1)) << shift;
      }
    }
    return flag(21) ? c : result;
  }
};

// What an opcode does and with fields of how many bits; of comparisons the first.
bool operation(std::uint32_t opcode, Op& op, unsigned& bits) {
  struct Known {
    std::uint32_t halves;
    std::uint32_t bytes;
    Op op;
  };
  static constexpr Known kKnown[] = {
      {"vadd2"_n, "vadd4"_n, Op::kAdd},       {"vsub2"_n, "vsub4"_n, Op::kSubtract},
      {"vavrg2"_n, "vavrg4"_n, Op::kAverage}, {"vabsdiff2"_n, "vabsdiff4"_n, Op::kDifference},
      {"vmin2"_n, "vmin4"_n, Op::kMinimum},   {"vmax2"_n, "vmax4"_n, Op::kMaximum},
      {"vset2"_n, "vset4"_n, Op::kEqual},
  };
  for (const Known& known : kKnown) {
    if (opcode != known.halves && opcode != known.bytes) continue;
    op = known.op;
    bits = opcode == known.halves ? 16 : 8;
    return true;
  }
  return false;
}

}  // namespace

bool select_video(Selector& s) {
  Op op = Op::kAdd;
  unsigned bits = 8;
  if (!operation(s.opcode(), op, bits)) return s.refuse_form();
  const bool compares = op == Op::kEqual;
  // d, a and b; what comparisons give is without a sign.
  Type types[3] = {Type::kU32};
  for (int i = compares ? 1 : 0; i < 3; ++i) {
    if (!s.take_type(types[i])) return false;
    if (types[i] != Type::kU32 && types[i] != Type::kS32) return s.refuse_form();
  }
  if (compares) {
    const int which = s.take_one({"eq"_n, "ne"_n, "lt"_n, "le"_n, "gt"_n, "ge"_n});
    if (which < 0) return s.refuse_form();
    op = static_cast<Op>(static_cast<int>(Op::kEqual) + which);
  }
  Step step;
  step.value = static_cast<std::int64_t>(op) | static_cast<std::int64_t>(bits) << 8;
  for (int i = 0; i < 3; ++i) step.value |= std::int64_t{is_signed(types[i])} << (16 + i);
  if (!compares && s.take("sat"_n)) step.value |= 1 << 20;
  if (s.take("add"_n)) step.value |= 1 << 21;
  using U = std::uint32_t;
  step.handler = &lanewise_with<Packed, U, U, U, U>;
  return s.need(4, 4) && s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
         s.source(2, Type::kB32, step.b) && s.source(3, Type::kB32, step.c) && s.emit(step);
}

}  // namespace flyt::ptx
