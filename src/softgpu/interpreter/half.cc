// Arithmetic on .f16, .bf16 and their pairs: PTX ISA, "Half Precision Floating Point".
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

enum Option : std::int64_t {
  kFlush = 1,
  kSaturate = 2,
  kRelu = 4,
  kNan = 8,
  kXorSign = 16,
};

// The double as a float whose last bit tells that something was cut off, so that rounding it once
// more to 8 or 11 bits is right.
float to_odd_float(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  std::uint32_t bits = bits_of(nearest);
  if (std::fabs(back) > std::fabs(value)) --bits;
  return float_of(bits | 1);
}

template <class S>
S round_to(double value) {
  if constexpr (std::is_same_v<S, Half>)
    return to_half(to_odd_float(value));
  else
    return to_bfloat(to_odd_float(value));
}

template <class S>
S flush_small(S value) {
  constexpr std::uint16_t kExponent = std::is_same_v<S, Half> ? 0x7c00 : 0x7f80;
  if ((value.bits & kExponent) == 0) value.bits &= 0x8000;
  return value;
}

template <class S>
double operand(std::int64_t options, S value) {
  return to_float((options & kFlush) != 0 ? flush_small(value) : value);
}

template <class S>
S finished(std::int64_t options, double value) {
  if ((options & kSaturate) != 0) value = clamp01(value);
  if ((options & kRelu) != 0 && value <= 0) value = 0;  // Of -0, too, as an H100 does.
  const S result = round_to<S>(value);
  return (options & kFlush) != 0 ? flush_small(result) : result;
}

struct Add {
  template <class S>
  static S apply(std::int64_t options, S a, S b) {
    return finished<S>(options, fused_to_odd(operand(options, a), 1, operand(options, b)));
  }
};
struct Subtract {
  template <class S>
  static S apply(std::int64_t options, S a, S b) {
    return finished<S>(options, fused_to_odd(operand(options, a), 1, -operand(options, b)));
  }
};
struct Multiply {
  template <class S>
  static S apply(std::int64_t options, S a, S b) {
    return finished<S>(options, operand(options, a) * operand(options, b));
  }
};
struct Fused {
  template <class S>
  static S apply(std::int64_t options, S a, S b, S c) {
    return finished<S>(options,
                       fused_to_odd(operand(options, a), operand(options, b), operand(options, c)));
  }
};
template <bool Max>
struct Extreme {
  template <class S>
  static S apply(std::int64_t options, S a, S b) {
    double x = operand(options, a);
    double y = operand(options, b);
    if ((options & kNan) != 0 && (x != x || y != y)) return {kNan16};
    const bool negative = std::signbit(x) != std::signbit(y);
    if ((options & kXorSign) != 0) {
      x = std::fabs(x);
      y = std::fabs(y);
    }
    const double value = Max ? maximum(x, y) : minimum(x, y);
    if ((options & kXorSign) == 0) return finished<S>(options, value);
    return finished<S>(options, std::copysign(value, negative ? -1.0 : 1.0));
  }
};
// Of a NaN nothing is left: ptxas makes additions and products of both.
template <class S>
bool is_nan(S value) {
  return to_float(value) != to_float(value);
}
struct Negate {
  template <class S>
  static S apply(std::int64_t options, S a) {
    if (is_nan(a)) return {kNan16};
    if ((options & kFlush) != 0) a = flush_small(a);
    return {static_cast<std::uint16_t>(a.bits ^ 0x8000)};
  }
};
struct Absolute {
  template <class S>
  static S apply(std::int64_t options, S a) {
    if (is_nan(a)) return {kNan16};
    if ((options & kFlush) != 0) a = flush_small(a);
    return {static_cast<std::uint16_t>(a.bits & 0x7fff)};
  }
};
struct Exponential2 {
  template <class S>
  static S apply(std::int64_t options, S a) {
    return finished<S>(options, std::exp2(operand(options, a)));
  }
};
struct HyperbolicTangent {
  template <class S>
  static S apply(std::int64_t options, S a) {
    return finished<S>(options, std::tanh(operand(options, a)));
  }
};

template <class Op, class S>
struct Pair {
  template <class... W>
  static std::uint32_t apply(std::int64_t options, W... words) {
    const S low = Op::template apply<S>(options, S{static_cast<std::uint16_t>(words)}...);
    const S high = Op::template apply<S>(options, S{static_cast<std::uint16_t>(words >> 16)}...);
    return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
  }
};

template <class Op, class S, std::size_t N>
Handler single() {
  if constexpr (N == 1) return &lanewise_with<Op, S, S>;
  if constexpr (N == 2) return &lanewise_with<Op, S, S, S>;
  if constexpr (N == 3) return &lanewise_with<Op, S, S, S, S>;
}

template <class Op, class S, std::size_t N>
Handler pair() {
  using W = std::uint32_t;
  using P = Pair<Op, S>;
  if constexpr (N == 1) return &lanewise_with<P, W, W>;
  if constexpr (N == 2) return &lanewise_with<P, W, W, W>;
  if constexpr (N == 3) return &lanewise_with<P, W, W, W, W>;
}

template <class Op, std::size_t N>
bool operate(Selector& s, Type type, std::int64_t options) {
  Step step;
  step.value = options;
  if (type == Type::kF16) step.handler = single<Op, Half, N>();
  if (type == Type::kBF16) step.handler = single<Op, Bfloat, N>();
  if (type == Type::kF16x2) step.handler = pair<Op, Half, N>();
  if (type == Type::kBF16x2) step.handler = pair<Op, Bfloat, N>();
  if (step.handler == nullptr) return s.refuse_form();
  if (!s.need(N + 1, N + 1) || !s.destination(0, type, step.d) || !s.source(1, type, step.a)) {
    return false;
  }
  if (N > 1 && !s.source(2, type, step.b)) return false;
  if (N > 2 && !s.source(3, type, step.c)) return false;
  return s.emit(step);
}

}  // namespace

bool select_half(Selector& s, Type type) {
  std::int64_t options = 0;
  if (s.take("ftz"_n)) options |= kFlush;
  if (s.take("sat"_n)) options |= kSaturate;
  if (s.take("relu"_n)) options |= kRelu;
  const std::uint32_t opcode = s.opcode();
  s.take("rn"_n);
  if (!s.take_type(type)) return false;
  switch (opcode) {
    case "add"_n:
      return operate<Add, 2>(s, type, options);
    case "sub"_n:
      return operate<Subtract, 2>(s, type, options);
    case "mul"_n:
      return operate<Multiply, 2>(s, type, options);
    case "fma"_n:
      return operate<Fused, 3>(s, type, options);
    case "neg"_n:
      return operate<Negate, 1>(s, type, options);
    case "abs"_n:
      return operate<Absolute, 1>(s, type, options);
    case "ex2"_n:
    case "tanh"_n:
      if (!s.take("approx"_n)) return s.refuse_form();
      return opcode == "ex2"_n ? operate<Exponential2, 1>(s, type, options)
                               : operate<HyperbolicTangent, 1>(s, type, options);
    case "min"_n:
    case "max"_n:
      if (s.take("NaN"_n)) options |= kNan;
      if (s.take("xorsign"_n)) {
        if (!s.take("abs"_n)) return s.refuse_form();
        options |= kXorSign;
      }
      return opcode == "min"_n ? operate<Extreme<false>, 2>(s, type, options)
                               : operate<Extreme<true>, 2>(s, type, options);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
