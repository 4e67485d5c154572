// Directed rounding: the host's rounding direction is set once for all lanes. Operands are read
// from rows after it was set and results stored before it is set back: neither moves across the
// calls, whatever the optimiser thinks of arithmetic.
#include "softgpu/interpreter/float.h"
#include "softgpu/interpreter/warp.h"

namespace flyt::ptx {
namespace {

template <Directed Op, class T>
T compute(T a, T b, T c) {
  if constexpr (Op == Directed::kAdd) return a + b;
  if constexpr (Op == Directed::kSubtract) return a - b;
  if constexpr (Op == Directed::kMultiply) return a * b;
  if constexpr (Op == Directed::kFused) return std::fma(a, b, c);
  if constexpr (Op == Directed::kDivide) return a / b;
  if constexpr (Op == Directed::kReciprocal) return T{1} / a;
  if constexpr (Op == Directed::kSquareRoot) return std::sqrt(a);
}

constexpr unsigned operands_of(Directed op) {
  if (op == Directed::kFused) return 3;
  return op == Directed::kReciprocal || op == Directed::kSquareRoot ? 1 : 2;
}

template <Directed Op, class T>
Flow directed(Warp& warp, const Step& step, Mask lanes) {
  std::byte* d = warp.row(step.d);
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(operands_of(Op) > 1 ? step.b : step.a);
  const std::byte* c = warp.row(operands_of(Op) > 2 ? step.c : step.a);
  const bool ftz = (step.value & 16) != 0;
  const bool sat = (step.value & 32) != 0;
  const auto in = [&](const std::byte* row, unsigned lane) {
    const T value = get<T>(row, lane);
    return ftz ? flushed<true>(value) : value;
  };
  const RoundingScope scope(static_cast<Rounding>(step.value & 15));
  for_lanes(lanes, [&](unsigned lane) {
    T value = compute<Op, T>(in(a, lane), in(b, lane), in(c, lane));
    if (ftz) value = flushed<true>(value);
    put<T>(d, lane, sat ? clamp01(value) : canonical(value));
  });
  return Flow::kNext;
}

template <class T>
Handler pick(Directed operation) {
  switch (operation) {
    case Directed::kAdd:
      return &directed<Directed::kAdd, T>;
    case Directed::kSubtract:
      return &directed<Directed::kSubtract, T>;
    case Directed::kMultiply:
      return &directed<Directed::kMultiply, T>;
    case Directed::kFused:
      return &directed<Directed::kFused, T>;
    case Directed::kDivide:
      return &directed<Directed::kDivide, T>;
    case Directed::kReciprocal:
      return &directed<Directed::kReciprocal, T>;
    case Directed::kSquareRoot:
      return &directed<Directed::kSquareRoot, T>;
    case Directed::kNone:
      break;
  }
  return nullptr;
}

#if defined(__x86_64__)
template <class T, bool Ftz, bool Sat>
__attribute__((target("avx2,fma"))) Flow fused_by_processor(Warp& warp, const Step& step,
                                                            Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  std::byte* d = warp.row(step.d);
  T out[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const T x = flushed<Ftz>(get<T>(a, lane));
    const T y = flushed<Ftz>(get<T>(b, lane));
    const T z = flushed<Ftz>(get<T>(c, lane));
    T value;
    if constexpr (sizeof(T) == 4) value = __builtin_fmaf(x, y, z);
    if constexpr (sizeof(T) == 8) value = __builtin_fma(x, y, z);
    value = flushed<Ftz>(value);
    out[lane] = Sat ? clamp01(value) : canonical(value);
  }
  if (lanes == kAllLanes) {
    for (unsigned lane = 0; lane < kLanes; ++lane) put<T>(d, lane, out[lane]);
  } else {
    for_lanes(lanes, [&](unsigned lane) { put<T>(d, lane, out[lane]); });
  }
  return Flow::kNext;
}
#endif

}  // namespace

Handler directed_handler(Directed operation, Type type) {
  return type == Type::kF64 ? pick<double>(operation) : pick<float>(operation);
}

Handler fast_fused(Type type, bool ftz, bool sat) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("fma") || !__builtin_cpu_supports("avx2")) return nullptr;
  if (type == Type::kF64) return ftz || sat ? nullptr : &fused_by_processor<double, false, false>;
  if (ftz) {
    return sat ? &fused_by_processor<float, true, true> : &fused_by_processor<float, true, false>;
  }
  return sat ? &fused_by_processor<float, false, true> : &fused_by_processor<float, false, false>;
#else
  return nullptr;
#endif
}

}  // namespace flyt::ptx
