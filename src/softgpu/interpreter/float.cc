// Arithmetic on .f32 and .f64: PTX ISA, "Floating Point Instructions". Directed rounding lives in
// rounding.cc. Approximations give the correctly rounded or the C library's result.
#include "softgpu/interpreter/float.h"

#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

template <class Op, class T, bool Ftz, bool Sat>
struct Rounded {
  template <class... A>
  static T apply(A... a) {
    T value = flushed<Ftz>(Op::apply(flushed<Ftz>(a)...));
    if constexpr (Sat) return clamp01(value);
    return canonical(value);
  }
};

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  static T apply(T a, T b) {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  static T apply(T a, T b) {
    return a * b;
  }
};
struct Divide {
  template <class T>
  static T apply(T a, T b) {
    return a / b;
  }
};
struct Fused {
  template <class T>
  static T apply(T a, T b, T c) {
    return fused(a, b, c);
  }
};
struct Reciprocal {
  template <class T>
  static T apply(T a) {
    return T{1} / a;
  }
};
struct SquareRoot {
  template <class T>
  static T apply(T a) {
    return std::sqrt(a);
  }
};
struct ReciprocalRoot {
  static float apply(float a) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a)));
  }
  static double apply(double a) { return 1.0 / std::sqrt(a); }
};
// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 look at the upper word only and give no other.
template <class Op>
struct UpperWord {
  static double apply(double a) {
    const double upper = std::bit_cast<double>(bits_of(a) & 0xffffffff00000000);
    if ((bits_of(a) & 0x7ff0000000000000) == 0) {
      return Op::apply(std::copysign(0.0, a));
    }
    const double value = Op::apply(upper);
    const std::uint64_t bits = bits_of(value);
    if (value != value) return value;
    if ((bits & 0x7ff0000000000000) == 0) return std::copysign(0.0, value);
    return std::bit_cast<double>(bits & 0xffffffff00000000);
  }
};
struct Sine {
  static float apply(float a) { return std::sin(a); }
};
struct Cosine {
  static float apply(float a) { return std::cos(a); }
};
struct Exponential2 {
  static float apply(float a) { return std::exp2(a); }
};
struct Logarithm2 {
  static float apply(float a) { return std::log2(a); }
};
struct HyperbolicTangent {
  static float apply(float a) { return std::tanh(a); }
};

template <class T>
T without_sign(T value) {
  return std::copysign(value, T{1});
}

// An addition does it: a NaN of 32 bits keeps nothing, seen on an H100.
float as_result(float value) { return canonical(value); }
double as_result(double value) { return value; }

// options: bit 0: a NaN operand wins, bit 1: the product of the signs on the lesser magnitude,
// bit 2: of the magnitudes.
template <bool Max, class T, bool Ftz>
struct Extreme {
  static T apply(std::int64_t options, T a, T b) {
    a = flushed<Ftz>(a);
    b = flushed<Ftz>(b);
    if ((options & 4) != 0) {
      a = without_sign(a);
      b = without_sign(b);
    }
    if ((options & 1) != 0 && (a != a || b != b)) {
      return sizeof(T) == 4 ? static_cast<T>(float_of(kNan32)) : (a != a ? a : b);
    }
    if ((options & 2) == 0) return Max ? maximum(a, b) : minimum(a, b);
    const bool negative = std::signbit(a) != std::signbit(b);
    const T x = without_sign(a);
    const T y = without_sign(b);
    return std::copysign(Max ? maximum(x, y) : minimum(x, y), negative ? T{-1} : T{1});
  }
};

template <class T, bool Ftz>
struct Negate {
  static T apply(T a) { return as_result(-flushed<Ftz>(a)); }
};
template <class T, bool Ftz>
struct Absolute {
  static T apply(T a) { return as_result(without_sign(flushed<Ftz>(a))); }
};
struct CopySign {
  template <class T>
  static T apply(T a, T b) {
    return std::copysign(b, a);
  }
};

template <class T>
bool tested(T value, int property) {
  switch (property) {
    case 0:
      return std::isfinite(value);
    case 1:
      return std::isinf(value);
    case 2:
      return !std::isnan(value);
    case 3:
      return std::isnan(value);
    case 4:
      return std::isnormal(value);
    default:
      return value != 0 && std::isfinite(value) && !std::isnormal(value);
  }
}

template <class T>
Flow test_property(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const auto property = static_cast<int>(step.value);
  warp.set_predicate(step.p, lanes, which_lanes(lanes, [&](unsigned lane) {
                       return tested(get<T>(a, lane), property);
                     }));
  return Flow::kNext;
}

template <class Op, class T, bool Ftz, bool Sat, std::size_t N>
constexpr Handler rounded() {
  using R = Rounded<Op, T, Ftz, Sat>;
  if constexpr (N == 1) return &lanewise<R, T, T>;
  if constexpr (N == 2) return &lanewise<R, T, T, T>;
  if constexpr (N == 3) return &lanewise<R, T, T, T, T>;
}

template <class Op, std::size_t N>
Handler nearest(Type type, bool ftz, bool sat) {
  if (type == Type::kF64) return ftz || sat ? nullptr : rounded<Op, double, false, false, N>();
  if (ftz) {
    return sat ? rounded<Op, float, true, true, N>() : rounded<Op, float, true, false, N>();
  }
  return sat ? rounded<Op, float, false, true, N>() : rounded<Op, float, false, false, N>();
}

// The part of an instruction that all of them share.
struct Shape {
  Type type = Type::kF32;
  bool ftz = false;
  bool sat = false;
  bool approximate = false;
  bool rounded = false;
  Rounding rounding = Rounding::kNearest;
};

bool read_shape(Selector& s, Shape& shape) {
  shape.ftz = s.take("ftz"_n);
  shape.sat = s.take("sat"_n);
  shape.approximate = s.take("approx"_n) || s.take("full"_n);
  const int direction = s.take_one({"rn"_n, "rz"_n, "rm"_n, "rp"_n});
  shape.rounded = direction >= 0;
  if (direction > 0) shape.rounding = static_cast<Rounding>(direction);
  return s.take_type(shape.type);
}

bool operate(Selector& s, const Shape& shape, Handler handler, std::size_t sources) {
  Step step;
  if (!s.need(sources + 1, sources + 1) || !s.handler(handler, step)) return false;
  step.value = directed_options(shape.rounding, shape.ftz, shape.sat);
  if (!s.destination(0, shape.type, step.d) || !s.source(1, shape.type, step.a)) return false;
  if (sources > 1 && !s.source(2, shape.type, step.b)) return false;
  if (sources > 2 && !s.source(3, shape.type, step.c)) return false;
  return s.emit(step);
}

template <class Op, std::size_t N>
Handler rounded_handler(const Shape& shape, Directed directed) {
  if (shape.rounding == Rounding::kNearest) {
    Handler fast = nullptr;
    if (directed == Directed::kFused) fast = fast_fused(shape.type, shape.ftz, shape.sat);
    return fast != nullptr ? fast : nearest<Op, N>(shape.type, shape.ftz, shape.sat);
  }
  if (shape.type == Type::kF64 && (shape.ftz || shape.sat)) return nullptr;
  return directed_handler(directed, shape.type);
}

template <class Op, std::size_t N>
bool rounded_operation(Selector& s, const Shape& shape, Directed directed) {
  return operate(s, shape, rounded_handler<Op, N>(shape, directed), N);
}

// value: the place of the half's lowest bit.
Flow take_half(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  each_lane<std::uint32_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    return static_cast<std::uint32_t>(get<std::uint64_t>(a, lane) >> step.value);
  });
  return Flow::kNext;
}

Flow join_halves(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  each_lane<std::uint64_t>(warp.row(step.d), lanes, [&](unsigned lane) {
    return get<std::uint32_t>(a, lane) | std::uint64_t{get<std::uint32_t>(b, lane)} << 32;
  });
  return Flow::kNext;
}

// Both floats of 64-bit registers, each as an instruction of its own does.
bool operate_on_pairs(Selector& s, const Shape& shape, Handler handler, std::size_t sources) {
  Step each;
  if (!s.need(sources + 1, sources + 1) || !s.handler(handler, each)) return false;
  each.value = directed_options(shape.rounding, shape.ftz, false);
  Step join;
  join.handler = &join_halves;
  Row* const into[] = {&each.a, &each.b, &each.c};
  for (const bool upper : {false, true}) {
    for (std::size_t i = 0; i < sources; ++i) {
      Step half;
      half.handler = &take_half;
      half.value = upper ? 32 : 0;
      if (!s.source(i + 1, Type::kB64, half.a)) return false;
      half.d = *into[i] = s.temporary(4);
      if (!s.emit_unguarded(half)) return false;
    }
    each.d = (upper ? join.b : join.a) = s.temporary(4);
    if (!s.emit_unguarded(each)) return false;
  }
  return s.destination(0, Type::kB64, join.d) && s.emit(join);
}

template <class Op>
bool approximation(Selector& s, const Shape& shape) {
  if (!shape.approximate || shape.sat || shape.type != Type::kF32) return s.refuse_form();
  return operate(s, shape, nearest<Op, 1>(shape.type, shape.ftz, false), 1);
}

template <class Op>
bool reciprocal(Selector& s, const Shape& shape, Directed directed) {
  if (shape.type == Type::kF64 && shape.approximate) {
    if (!shape.ftz) return operate(s, shape, &lanewise<Op, double, double>, 1);
    return operate(s, shape, &lanewise<UpperWord<Op>, double, double>, 1);
  }
  return rounded_operation<Op, 1>(s, shape, directed);
}

template <bool Max>
bool extreme(Selector& s, Shape shape) {
  Step step;
  if (s.take("NaN"_n)) step.value |= 1;
  if (s.take("xorsign"_n)) {
    if (!s.take("abs"_n)) return s.refuse_form();
    step.value |= 2;
  } else if (s.take("abs"_n)) {
    step.value |= 4;
  }
  if (shape.sat || shape.approximate || shape.rounded ||
      (shape.type == Type::kF64 && step.value != 0)) {
    return s.refuse_form();
  }
  // Of three operands, which only single ones may be: those of the first two, then of the third.
  const bool of_three = s.operand_count() == 4 && shape.type == Type::kF32;
  if (!s.need(3, of_three ? 4 : 3)) return false;
  if (of_three ? (step.value & 2) != 0 : (step.value & 4) != 0) return s.refuse_form();
  if (shape.type == Type::kF64) {
    step.handler = &lanewise_with<Extreme<Max, double, false>, double, double, double>;
  } else if (shape.ftz) {
    step.handler = &lanewise_with<Extreme<Max, float, true>, float, float, float>;
  } else {
    step.handler = &lanewise_with<Extreme<Max, float, false>, float, float, float>;
  }
  if (!s.source(1, shape.type, step.a) || !s.source(2, shape.type, step.b)) return false;
  if (of_three) {
    Step first = step;
    first.d = step.a = s.temporary(4);
    if (!s.emit_unguarded(first) || !s.source(3, shape.type, step.b)) return false;
  }
  return s.destination(0, shape.type, step.d) && s.emit(step);
}

template <template <class, bool> class Op>
bool sign_operation(Selector& s, const Shape& shape) {
  if (shape.sat || shape.approximate || shape.rounded) return s.refuse_form();
  if (shape.type == Type::kF64)
    return operate(s, shape, &lanewise<Op<double, false>, double, double>, 1);
  if (shape.ftz) return operate(s, shape, &lanewise<Op<float, true>, float, float>, 1);
  return operate(s, shape, &lanewise<Op<float, false>, float, float>, 1);
}

bool test(Selector& s) {
  Step step;
  const int property =
      s.take_one({"finite"_n, "infinite"_n, "number"_n, "notanumber"_n, "normal"_n, "subnormal"_n});
  if (property < 0) return s.refuse_form();
  step.value = property;
  Type type;
  if (!s.take_type(type) || !s.need(2, 2)) return false;
  if (type != Type::kF32 && type != Type::kF64) return s.refuse_form();
  step.handler = type == Type::kF32 ? &test_property<float> : &test_property<double>;
  return s.predicate_destination(s.operand(0), step.p) && s.source(1, type, step.a) && s.emit(step);
}

bool copy_sign(Selector& s) {
  Shape shape;
  if (!s.take_type(shape.type)) return false;
  const Handler handler = shape.type == Type::kF32 ? &lanewise<CopySign, float, float, float>
                                                   : &lanewise<CopySign, double, double, double>;
  return operate(s, shape, handler, 2);
}

}  // namespace

bool select_float_pairs(Selector& s) {
  Shape shape;
  shape.ftz = s.take("ftz"_n);
  const int direction = s.take_one({"rn"_n, "rz"_n, "rm"_n, "rp"_n});
  if (direction > 0) shape.rounding = static_cast<Rounding>(direction);
  s.take("f32x2"_n);
  switch (s.opcode()) {
    case "add"_n:
      return operate_on_pairs(s, shape, rounded_handler<Add, 2>(shape, Directed::kAdd), 2);
    case "sub"_n:
      return operate_on_pairs(s, shape, rounded_handler<Subtract, 2>(shape, Directed::kSubtract),
                              2);
    case "mul"_n:
      return operate_on_pairs(s, shape, rounded_handler<Multiply, 2>(shape, Directed::kMultiply),
                              2);
    case "fma"_n:
      return operate_on_pairs(s, shape, rounded_handler<Fused, 3>(shape, Directed::kFused), 3);
  }
  return s.refuse_form();
}

bool select_float(Selector& s) {
  const std::uint32_t opcode = s.opcode();
  if (opcode == "testp"_n) return test(s);
  if (opcode == "copysign"_n) return copy_sign(s);
  Shape shape;
  if (!read_shape(s, shape)) return false;
  if (shape.type != Type::kF32 && shape.type != Type::kF64) return s.refuse_form();
  switch (opcode) {
    case "add"_n:
      return rounded_operation<Add, 2>(s, shape, Directed::kAdd);
    case "sub"_n:
      return rounded_operation<Subtract, 2>(s, shape, Directed::kSubtract);
    case "mul"_n:
      return rounded_operation<Multiply, 2>(s, shape, Directed::kMultiply);
    case "mad"_n:
    case "fma"_n:
      return rounded_operation<Fused, 3>(s, shape, Directed::kFused);
    case "div"_n:
      return rounded_operation<Divide, 2>(s, shape, Directed::kDivide);
    case "rcp"_n:
      return reciprocal<Reciprocal>(s, shape, Directed::kReciprocal);
    case "sqrt"_n:
      return rounded_operation<SquareRoot, 1>(s, shape, Directed::kSquareRoot);
    case "rsqrt"_n:
      return reciprocal<ReciprocalRoot>(s, shape, Directed::kNone);
    case "sin"_n:
      return approximation<Sine>(s, shape);
    case "cos"_n:
      return approximation<Cosine>(s, shape);
    case "ex2"_n:
      return approximation<Exponential2>(s, shape);
    case "lg2"_n:
      return approximation<Logarithm2>(s, shape);
    case "tanh"_n:
      return approximation<HyperbolicTangent>(s, shape);
    case "neg"_n:
      return sign_operation<Negate>(s, shape);
    case "abs"_n:
      return sign_operation<Absolute>(s, shape);
    case "min"_n:
      return extreme<false>(s, shape);
    case "max"_n:
      return extreme<true>(s, shape);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
