// atom and red: PTX ISA, "Parallel Synchronization". All are sequentially consistent here.
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/operators.h"
#include "softgpu/interpreter/reduction.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

struct Add {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return canonical(a + b);
    else
      return static_cast<T>(a + b);
  }
};
struct Exchange {
  template <class T>
  static T apply(T, T b) {
    return b;
  }
};
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return minimum(a, b);
    else
      return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return maximum(a, b);
    else
      return a > b ? a : b;
  }
};
struct Increment {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) { return a >= b ? 0 : a + 1; }
};
struct Decrement {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    return a == 0 || a > b ? b : a - 1;
  }
};

// Small floats: the sum and the extremes in float, rounded once (exact enough: see half.cc).
template <class Op>
struct OnHalf {
  static std::uint16_t apply(std::uint16_t a, std::uint16_t b) {
    return to_half(Op::apply(to_float(Half{a}), to_float(Half{b}))).bits;
  }
};
template <class Op>
struct OnBfloat {
  static std::uint16_t apply(std::uint16_t a, std::uint16_t b) {
    return to_bfloat(Op::apply(to_float(Bfloat{a}), to_float(Bfloat{b}))).bits;
  }
};
template <class Op>
struct OnPair {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    const auto low = Op::apply(static_cast<std::uint16_t>(a), static_cast<std::uint16_t>(b));
    const auto high =
        Op::apply(static_cast<std::uint16_t>(a >> 16), static_cast<std::uint16_t>(b >> 16));
    return low | static_cast<std::uint32_t>(high) << 16;
  }
};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>;

// Replaces *place by Op(*place, value); returns what was there.
template <class Op, class T>
T exchange(std::byte* place, T value) {
  using U = BitsOf<T>;
  U* word = static_cast<U*>(static_cast<void*>(place));
  U old = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const T next = Op::apply(std::bit_cast<T>(old), value);
    if (__atomic_compare_exchange_n(word, &old, std::bit_cast<U>(next), true, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED)) {
      return std::bit_cast<T>(old);
    }
  }
}

template <Space S, class Op, class T>
Flow modify(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  std::byte* d = warp.row(step.d);
  Access<S> access(warp, sizeof(T), true);
  warp.polled();
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place =
        access.at(lane, get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value));
    if (place == nullptr) return access.failed();
    put<T>(d, lane, exchange<Op, T>(place, get<T>(b, lane)));
  }
  return Flow::kNext;
}

template <Space S, class T>
Flow compare_and_swap(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  std::byte* d = warp.row(step.d);
  Access<S> access(warp, sizeof(T), true);
  warp.polled();
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place =
        access.at(lane, get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value));
    if (place == nullptr) return access.failed();
    T old = get<T>(b, lane);
    __atomic_compare_exchange_n(static_cast<T*>(static_cast<void*>(place)), &old, get<T>(c, lane),
                                false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    put<T>(d, lane, old);
  }
  return Flow::kNext;
}

// Vectors of `q` elements, each atomic by itself: rows at `extra`, first d then b.
template <Space S, class Op, class T>
Flow modify_vector(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::uint32_t* rows = warp.rows(step.extra);
  const unsigned count = step.q;
  Access<S> access(warp, sizeof(T) * count, true);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place =
        access.at(lane, get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value));
    if (place == nullptr) return access.failed();
    for (unsigned i = 0; i < count; ++i) {
      const T value = get<T>(warp.row(Row{rows[count + i]}), lane);
      put<T>(warp.row(Row{rows[i]}), lane, exchange<Op, T>(place + i * sizeof(T), value));
    }
  }
  return Flow::kNext;
}

#if defined(__x86_64__)
// What was there; `wanted` is there now if that was `expected`. 16-byte aligned.
unsigned __int128 swap_wide(std::byte* place, unsigned __int128 expected,
                            unsigned __int128 wanted) {
  auto low = static_cast<std::uint64_t>(expected);
  auto high = static_cast<std::uint64_t>(expected >> 64);
  asm volatile(
      "lock cmpxchg16b %0"
      : "+m"(*static_cast<unsigned __int128*>(static_cast<void*>(place))), "+a"(low), "+d"(high)
      : "b"(static_cast<std::uint64_t>(wanted)), "c"(static_cast<std::uint64_t>(wanted >> 64))
      : "cc", "memory");
  return static_cast<unsigned __int128>(high) << 64 | low;
}

unsigned __int128 get_wide(const std::byte* row, unsigned lane) {
  const unsigned __int128 high = get<std::uint64_t>(row + kRow64Bytes, lane);
  return high << 64 | get<std::uint64_t>(row, lane);
}

// extra: 1 for cas (b is compared, c stored), 0 for exch (b is stored).
template <Space S>
Flow swap_128(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  std::byte* d = warp.row(step.d);
  Access<S> access(warp, 16, true);
  warp.polled();
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* place =
        access.at(lane, get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value));
    if (place == nullptr) return access.failed();
    unsigned __int128 old = get_wide(b, lane);
    if (step.extra != 0) {
      old = swap_wide(place, old, get_wide(c, lane));
    } else {
      const unsigned __int128 wanted = old;
      unsigned __int128 seen = swap_wide(place, 0, 0);
      while ((old = swap_wide(place, seen, wanted)) != seen) seen = old;
    }
    put<std::uint64_t>(d, lane, static_cast<std::uint64_t>(old));
    put<std::uint64_t>(d + kRow64Bytes, lane, static_cast<std::uint64_t>(old >> 64));
  }
  return Flow::kNext;
}
#endif

enum class What : std::uint8_t {
  kAnd,
  kOr,
  kXor,
  kExchange,
  kAdd,
  kIncrement,
  kDecrement,
  kMinimum,
  kMaximum
};

template <Space S, class Op, class T>
Handler one(bool vector) {
  return vector ? &modify_vector<S, Op, T> : &modify<S, Op, T>;
}

template <Space S, template <class> class On, class T>
Handler small(What what, bool vector) {
  switch (what) {
    case What::kAdd:
      return one<S, On<Add>, T>(vector);
    case What::kMinimum:
      return one<S, On<Minimum>, T>(vector);
    case What::kMaximum:
      return one<S, On<Maximum>, T>(vector);
    default:
      return nullptr;
  }
}
template <class Op>
using HalfPair = OnPair<OnHalf<Op>>;
template <class Op>
using BfloatPair = OnPair<OnBfloat<Op>>;

template <Space S>
Handler floating(What what, Type type, bool vector) {
  switch (type) {
    case Type::kF16:
      return small<S, OnHalf, std::uint16_t>(what, vector);
    case Type::kBF16:
      return small<S, OnBfloat, std::uint16_t>(what, vector);
    case Type::kF16x2:
      return small<S, HalfPair, std::uint32_t>(what, vector);
    case Type::kBF16x2:
      return small<S, BfloatPair, std::uint32_t>(what, vector);
    case Type::kF32:
      return what == What::kAdd ? one<S, Add, float>(vector) : nullptr;
    case Type::kF64:
      return what == What::kAdd ? one<S, Add, double>(vector) : nullptr;
    default:
      return nullptr;
  }
}

template <Space S, class Op>
Handler by_size(Type type) {
  if (type_bytes(type) == 4) return &modify<S, Op, std::uint32_t>;
  return type_bytes(type) == 8 ? &modify<S, Op, std::uint64_t> : nullptr;
}

template <Space S, class Op>
Handler by_sign(Type type) {
  if (type == Type::kS32) return &modify<S, Op, std::int32_t>;
  if (type == Type::kS64) return &modify<S, Op, std::int64_t>;
  return by_size<S, Op>(type);
}

template <Space S>
Handler operation(What what, Type type, bool vector) {
  if (is_floating(type) || type == Type::kF16x2 || type == Type::kBF16x2) {
    return floating<S>(what, type, vector);
  }
  if (vector) return nullptr;
  switch (what) {
    case What::kAnd:
      return by_size<S, And>(type);
    case What::kOr:
      return by_size<S, Or>(type);
    case What::kXor:
      return by_size<S, Xor>(type);
    case What::kExchange:
      return by_size<S, Exchange>(type);
    case What::kAdd:
      return by_size<S, Add>(type);
    case What::kMinimum:
      return by_sign<S, Minimum>(type);
    case What::kMaximum:
      return by_sign<S, Maximum>(type);
    case What::kIncrement:
      return type == Type::kU32 ? &modify<S, Increment, std::uint32_t> : nullptr;
    case What::kDecrement:
      return type == Type::kU32 ? &modify<S, Decrement, std::uint32_t> : nullptr;
  }
  return nullptr;
}

template <Space S>
Handler swap(Type type) {
  switch (type_bytes(type)) {
    case 2:
      return &compare_and_swap<S, std::uint16_t>;
    case 4:
      return &compare_and_swap<S, std::uint32_t>;
    case 8:
      return &compare_and_swap<S, std::uint64_t>;
#if defined(__x86_64__)
    case 16:
      return &swap_128<S>;
#endif
    default:
      return nullptr;
  }
}

template <class Op, class T>
void reduce(std::byte* place, const std::byte* value) {
  T operand;
  std::memcpy(&operand, value, sizeof operand);
  exchange<Op, T>(place, operand);
}

template <class Op>
Reduce integer_reduction(Type type) {
  if (type == Type::kS32) return &reduce<Op, std::int32_t>;
  if (type == Type::kS64) return &reduce<Op, std::int64_t>;
  if (type_bytes(type) == 4) return &reduce<Op, std::uint32_t>;
  return type_bytes(type) == 8 ? &reduce<Op, std::uint64_t> : nullptr;
}

template <class Op>
Reduce any_reduction(Type type) {
  if (type == Type::kF16) return &reduce<OnHalf<Op>, std::uint16_t>;
  if (type == Type::kBF16) return &reduce<OnBfloat<Op>, std::uint16_t>;
  return is_floating(type) ? nullptr : integer_reduction<Op>(type);
}

Reduce chosen_reduction(What what, Type type) {
  switch (what) {
    case What::kAnd:
      return integer_reduction<And>(type);
    case What::kOr:
      return integer_reduction<Or>(type);
    case What::kXor:
      return integer_reduction<Xor>(type);
    case What::kExchange:
      return nullptr;
    case What::kAdd:
      if (type == Type::kF32) return &reduce<Add, float>;
      if (type == Type::kF64) return &reduce<Add, double>;
      return any_reduction<Add>(type);
    case What::kMinimum:
      return any_reduction<Minimum>(type);
    case What::kMaximum:
      return any_reduction<Maximum>(type);
    case What::kIncrement:
      return type == Type::kU32 ? &reduce<Increment, std::uint32_t> : nullptr;
    case What::kDecrement:
      return type == Type::kU32 ? &reduce<Decrement, std::uint32_t> : nullptr;
  }
  return nullptr;
}

template <class F>
Handler in_space(Space space, F&& f) {
  if (space == Space::kGlobal) return f.template operator()<Space::kGlobal>();
  if (space == Space::kShared) return f.template operator()<Space::kShared>();
  if (space == Space::kGeneric) return f.template operator()<Space::kGeneric>();
  return nullptr;
}

struct Form {
  bool reduces = false;  // red: no result.
  Space space = Space::kGeneric;
  unsigned length = 1;
  std::size_t first = 1;  // Operand index of the address.
};

bool select_swap(Selector& s, const Form& form) {
  Type type;
  Step step;
  if (!s.take_type(type) || form.reduces || !s.need(4, 4)) return s.refuse_form();
  step.extra = 1;
  const Handler handler = in_space(form.space, [&]<Space S>() { return swap<S>(type); });
  return s.handler(handler, step) && s.destination(0, type, step.d) &&
         s.address(s.operand(1), form.space, step.a, step.value) && s.source(2, type, step.b) &&
         s.source(3, type, step.c) && s.emit(step);
}

bool select_vector(Selector& s, const Form& form, What what, Type type) {
  Step step;
  const Handler handler =
      in_space(form.space, [&]<Space S>() { return operation<S>(what, type, true); });
  if (!s.handler(handler, step)) return false;
  std::vector<Row> rows(form.length * 2);
  const Operand& values = s.operand(form.first + 1);
  const auto fits = [&](const Operand& vector) {
    return vector.kind == Operand::Kind::kVector && vector.count == form.length && !vector.paren;
  };
  if (!fits(values) || (!form.reduces && !fits(s.operand(0)))) return s.refuse_form();
  for (unsigned i = 0; i < form.length; ++i) {
    if (form.reduces) {
      rows[i] = s.temporary(type_bytes(type));
    } else if (!s.destination(s.element(s.operand(0), i), type, rows[i])) {
      return false;
    }
    if (!s.source(s.element(values, i), type, rows[form.length + i])) return false;
  }
  step.q = form.length;
  step.extra = s.add_rows(rows);
  return s.address(s.operand(form.first), form.space, step.a, step.value) && s.emit(step);
}

std::optional<What> take_what(Selector& s) {
  const int index =
      s.take_one({"and"_n, "or"_n, "xor"_n, "exch"_n, "add"_n, "inc"_n, "dec"_n, "min"_n, "max"_n});
  if (index < 0) return std::nullopt;
  return static_cast<What>(index);
}

}  // namespace

bool take_reduction(Selector& s, Reduction& reduction) {
  const auto what = take_what(s);
  s.take("noftz"_n);
  if (!what.has_value()) return s.refuse_form();
  if (!s.take_type(reduction.type)) return false;
  reduction.apply = chosen_reduction(*what, reduction.type);
  return reduction.apply != nullptr || s.refuse("has a type that is not supported");
}

bool take_operation(Selector& s, std::uint32_t& operation) {
  const auto what = take_what(s);
  if (!what.has_value()) return s.refuse_form();
  operation = static_cast<std::uint32_t>(*what);
  return true;
}

Reduce reduction_of(std::uint32_t operation, Type type) {
  return chosen_reduction(static_cast<What>(operation), type);
}

bool is_bitwise(std::uint32_t operation) {
  const auto what = static_cast<What>(operation);
  return what == What::kAnd || what == What::kOr || what == What::kXor;
}

bool is_extremum(std::uint32_t operation) {
  const auto what = static_cast<What>(operation);
  return what == What::kMinimum || what == What::kMaximum;
}

bool select_atomic(Selector& s) {
  if (s.has("async"_n)) return select_reduce_async(s);
  Form form;
  form.reduces = s.opcode() == "red"_n;
  form.first = form.reduces ? 0 : 1;
  s.take_one({"relaxed"_n, "acquire"_n, "release"_n, "acq_rel"_n});
  s.take_memory_hints();
  s.take("noftz"_n);
  const bool hinted = s.take("L2::cache_hint"_n);
  form.space = take_space(s);
  if (s.take("v2"_n))
    form.length = 2;
  else if (s.take("v4"_n))
    form.length = 4;
  else if (s.take("v8"_n))
    form.length = 8;
  if (s.take("cas"_n)) return select_swap(s, form);
  const auto what = take_what(s);
  Type type;
  if (!what.has_value()) return s.refuse_form();
  if (!s.take_type(type)) return false;
  const std::size_t operands = form.first + 2 + (hinted ? 1 : 0);
  if (!s.need(operands, operands)) return false;
  if (form.length != 1) return select_vector(s, form, *what, type);
  Step step;
  Handler handler = nullptr;
  if (type == Type::kB128 && *what == What::kExchange) {
    handler = in_space(form.space, [&]<Space S>() { return swap<S>(type); });
  } else {
    handler = in_space(form.space, [&]<Space S>() { return operation<S>(*what, type, false); });
  }
  if (!s.handler(handler, step)) return false;
  if (form.reduces) {
    step.d = s.temporary(type_bytes(type));
  } else if (!s.destination(0, type, step.d)) {
    return false;
  }
  if (!s.address(s.operand(form.first), form.space, step.a, step.value) ||
      !s.source(form.first + 1, type, step.b)) {
    return false;
  }
  step.c = step.b;
  return s.emit(step);
}

}  // namespace flyt::ptx
