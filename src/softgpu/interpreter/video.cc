// Video instructions on packed bytes and halves: vadd2, vabsdiff4 and their like, without masks.
#include <algorithm>

#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

enum class Op : std::uint8_t { kAdd, kSubtract, kAverage, kDifference, kMinimum, kMaximum };

std::int32_t combine(Op op, std::int32_t a, std::int32_t b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSubtract:
      return a - b;
    case Op::kAverage:
      return (a + b + 1) >> 1;
    case Op::kDifference:
      return a < b ? b - a : a - b;
    case Op::kMinimum:
      return std::min(a, b);
    case Op::kMaximum:
      return std::max(a, b);
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

}  // namespace

bool select_video(Selector& s) {
  Step step;
  Op op = Op::kAdd;
  unsigned bits = 8;
  switch (s.opcode()) {
    case "vadd2"_n:
      bits = 16;
      op = Op::kAdd;
      break;
    case "vsub2"_n:
      bits = 16;
      op = Op::kSubtract;
      break;
    case "vavrg2"_n:
      bits = 16;
      op = Op::kAverage;
      break;
    case "vabsdiff2"_n:
      bits = 16;
      op = Op::kDifference;
      break;
    case "vmin2"_n:
      bits = 16;
      op = Op::kMinimum;
      break;
    case "vmax2"_n:
      bits = 16;
      op = Op::kMaximum;
      break;
    case "vadd4"_n:
      op = Op::kAdd;
      break;
    case "vsub4"_n:
      op = Op::kSubtract;
      break;
    case "vavrg4"_n:
      op = Op::kAverage;
      break;
    case "vabsdiff4"_n:
      op = Op::kDifference;
      break;
    case "vmin4"_n:
      op = Op::kMinimum;
      break;
    case "vmax4"_n:
      op = Op::kMaximum;
      break;
    default:
      return s.refuse_form();
  }
  Type types[3];
  for (Type& type : types) {
    if (!s.take_type(type)) return false;
    if (type != Type::kU32 && type != Type::kS32) return s.refuse_form();
  }
  step.value = static_cast<std::int64_t>(op) | static_cast<std::int64_t>(bits) << 8;
  for (int i = 0; i < 3; ++i) step.value |= std::int64_t{is_signed(types[i])} << (16 + i);
  if (s.take("sat"_n)) step.value |= 1 << 20;
  if (s.take("add"_n)) step.value |= 1 << 21;
  using U = std::uint32_t;
  step.handler = &lanewise_with<Packed, U, U, U, U>;
  return s.need(4, 4) && s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
         s.source(2, Type::kB32, step.b) && s.source(3, Type::kB32, step.c) && s.emit(step);
}

}  // namespace flyt::ptx
