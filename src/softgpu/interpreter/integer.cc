// Integer arithmetic: PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision".
#include <limits>
#include <type_traits>

#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 8,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct Subtract {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};

std::int32_t saturate(std::int64_t value) {
  if (value > std::numeric_limits<std::int32_t>::max()) return 0x7fffffff;
  if (value < std::numeric_limits<std::int32_t>::min()) return -0x7fffffff - 1;
  return static_cast<std::int32_t>(value);
}

struct AddSaturated {
  static std::int32_t apply(std::int32_t a, std::int32_t b) {
    return saturate(std::int64_t{a} + b);
  }
};
struct SubtractSaturated {
  static std::int32_t apply(std::int32_t a, std::int32_t b) {
    return saturate(std::int64_t{a} - b);
  }
};
struct MultiplyLow {
  template <class T>
  static T apply(T a, T b) {
    // 16-bit factors would be promoted to int, where the product may overflow.
    using Product = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    return static_cast<T>(static_cast<Product>(a) * static_cast<Product>(b));
  }
};
struct MultiplyHigh {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (sizeof(T) * 8));
  }
};
template <class Op>
struct ThenAdd {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(Op::apply(a, b), c);
  }
};
struct MadHighSaturated {
  static std::int32_t apply(std::int32_t a, std::int32_t b, std::int32_t c) {
    return saturate(std::int64_t{MultiplyHigh::apply(a, b)} + c);
  }
};
// mul.wide and mad.wide: T factors, a result of twice the size.
template <class T>
using Twice =
    std::conditional_t<sizeof(T) == 2,
                       std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
struct MultiplyWide {
  template <class T>
  static Twice<T> apply(T a, T b) {
    return static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b);
  }
};
struct MadWide {
  template <class T>
  static Twice<T> apply(T a, T b, Twice<T> c) {
    return Add::apply(MultiplyWide::apply(a, b), c);
  }
};
struct Divide {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~Unsigned<T>{0});
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return Subtract::apply(T{0}, a);
    }
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  static T apply(T a, T b) {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
template <class Op>
struct Relu {
  static std::int32_t apply(std::int32_t a, std::int32_t b) {
    const std::int32_t value = Op::apply(a, b);
    return value < 0 ? 0 : value;
  }
};
struct Negate {
  template <class T>
  static T apply(T a) {
    return Subtract::apply(T{0}, a);
  }
};
struct Absolute {
  template <class T>
  static T apply(T a) {
    return a < 0 ? Negate::apply(a) : a;
  }
};
struct AbsoluteDifference {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(a < b ? Subtract::apply(b, a) : Subtract::apply(a, b), c);
  }
};

// Two 16-bit lanes in one register: T is the type of each.
template <class Op, class T>
struct Packed {
  template <class... Words>
  static std::uint32_t apply(Words... words) {
    const auto low = Op::apply(static_cast<T>(words & 0xffff)...);
    const auto high = Op::apply(static_cast<T>(words >> 16)...);
    return static_cast<std::uint16_t>(low) |
           static_cast<std::uint32_t>(static_cast<std::uint16_t>(high)) << 16;
  }
};
template <class Op>
struct Relu16 {
  static std::int16_t apply(std::int16_t a, std::int16_t b) {
    const std::int16_t value = Op::apply(a, b);
    return value < 0 ? std::int16_t{0} : value;
  }
};

// 24-bit products: the low or high 32 of 48 bits.
template <bool Signed>
std::uint64_t product24(std::uint32_t a, std::uint32_t b) {
  if constexpr (Signed) {
    const std::int64_t x = static_cast<std::int32_t>(a << 8) >> 8;
    const std::int64_t y = static_cast<std::int32_t>(b << 8) >> 8;
    return static_cast<std::uint64_t>(x * y);
  }
  return std::uint64_t{a & 0xffffff} * (b & 0xffffff);
}
template <bool Signed, bool High>
struct Multiply24 {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b) {
    const std::uint64_t product = product24<Signed>(a, b);
    return static_cast<std::uint32_t>(High ? product >> 16 : product);
  }
};
template <bool Signed, bool High>
struct Mad24 {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    return Multiply24<Signed, High>::apply(a, b) + c;
  }
};
struct Mad24HighSaturated {
  static std::uint32_t apply(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    const auto high = static_cast<std::int32_t>(Multiply24<true, true>::apply(a, b));
    return static_cast<std::uint32_t>(saturate(std::int64_t{high} + static_cast<std::int32_t>(c)));
  }
};

// options: bit 0: a is signed, bit 1: b is signed, bit 2: dp2a takes the high half of b.
struct Dot4 {
  static std::uint32_t apply(std::int64_t options, std::uint32_t a, std::uint32_t b,
                             std::uint32_t c) {
    for (unsigned i = 0; i < 4; ++i) {
      const auto x = static_cast<std::uint8_t>(a >> i * 8);
      const auto y = static_cast<std::uint8_t>(b >> i * 8);
      const std::int32_t left = (options & 1) != 0 ? static_cast<std::int8_t>(x) : x;
      const std::int32_t right = (options & 2) != 0 ? static_cast<std::int8_t>(y) : y;
      c += static_cast<std::uint32_t>(left * right);
    }
    return c;
  }
};
struct Dot2 {
  static std::uint32_t apply(std::int64_t options, std::uint32_t a, std::uint32_t b,
                             std::uint32_t c) {
    for (unsigned i = 0; i < 2; ++i) {
      const auto x = static_cast<std::uint16_t>(a >> i * 16);
      const auto y = static_cast<std::uint8_t>(b >> (i + ((options & 4) != 0 ? 2 : 0)) * 8);
      const std::int32_t left = (options & 1) != 0 ? static_cast<std::int16_t>(x) : x;
      const std::int32_t right = (options & 2) != 0 ? static_cast<std::int8_t>(y) : y;
      c += static_cast<std::uint32_t>(left * right);
    }
    return c;
  }
};

template <class Op>
Handler binary(Type type) {
  return pick_integer(type, [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<Op, T, T, T>;
  });
}
template <class Op>
Handler ternary(Type type) {
  return pick_integer(type, [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<Op, T, T, T, T>;
  });
}
template <class Op>
Handler wide(Type type, bool add) {
  const auto of = [add](auto t) -> Handler {
    using T = decltype(t);
    if constexpr (sizeof(T) == 8) {
      return nullptr;
    } else {
      if (add) return &lanewise<MadWide, Twice<T>, T, T, Twice<T>>;
      return &lanewise<MultiplyWide, Twice<T>, T, T>;
    }
  };
  return pick_integer(type, of);
}

Type twice(Type type) {
  if (type == Type::kU16) return Type::kU32;
  if (type == Type::kS16) return Type::kS32;
  return type == Type::kU32 ? Type::kU64 : Type::kS64;
}

// d, a, b and perhaps c, all of one type.
bool plain(Selector& s, Type type, Handler handler, std::size_t sources) {
  Step step;
  if (!s.need(sources + 1, sources + 1) || !s.handler(handler, step)) return false;
  if (!s.destination(0, type, step.d) || !s.source(1, type, step.a)) return false;
  if (sources > 1 && !s.source(2, type, step.b)) return false;
  if (sources > 2 && !s.source(3, type, step.c)) return false;
  return s.emit(step);
}

template <class Op>
Handler packed(Type type) {
  if (type == Type::kS16x2) {
    return &lanewise<Packed<Op, std::int16_t>, std::uint32_t, std::uint32_t, std::uint32_t>;
  }
  return &lanewise<Packed<Op, std::uint16_t>, std::uint32_t, std::uint32_t, std::uint32_t>;
}

template <class Op>
Handler packed_relu() {
  return &lanewise<Packed<Relu16<Op>, std::int16_t>, std::uint32_t, std::uint32_t, std::uint32_t>;
}

bool add_or_subtract(Selector& s, Type type, bool saturated) {
  const bool add = s.opcode() == "add"_n;
  if (type == Type::kS16x2 || type == Type::kU16x2) {
    return plain(s, type, add ? packed<Add>(type) : packed<Subtract>(type), 2);
  }
  if (!saturated) return plain(s, type, add ? binary<Add>(type) : binary<Subtract>(type), 2);
  if (type != Type::kS32) return s.refuse_form();
  using S = std::int32_t;
  return plain(s, type,
               add ? &lanewise<AddSaturated, S, S, S> : &lanewise<SubtractSaturated, S, S, S>, 2);
}

template <class Op>
bool minimum_or_maximum(Selector& s, Type type) {
  const bool relu = s.take("relu"_n);
  if (type == Type::kS16x2 || type == Type::kU16x2) {
    return plain(s, type, relu ? packed_relu<Op>() : packed<Op>(type), 2);
  }
  if (relu) {
    using S = std::int32_t;
    if (type != Type::kS32) return s.refuse_form();
    return plain(s, type, &lanewise<Relu<Op>, S, S, S>, 2);
  }
  return plain(s, type, binary<Op>(type), 2);
}

bool multiply(Selector& s, Type type, bool saturated) {
  const bool add = s.opcode() == "mad"_n;
  const int part = s.take_one({"lo"_n, "hi"_n, "wide"_n});
  if (part == 2) {
    Step step;
    if (!s.need(add ? 4 : 3, add ? 4 : 3)) return false;
    if (!s.handler(wide<MultiplyWide>(type, add), step)) return false;
    if (!s.destination(0, twice(type), step.d) || !s.source(1, type, step.a) ||
        !s.source(2, type, step.b)) {
      return false;
    }
    if (add && !s.source(3, twice(type), step.c)) return false;
    return s.emit(step);
  }
  if (saturated) {
    using S = std::int32_t;
    if (type != Type::kS32 || part != 1 || !add) return s.refuse_form();
    return plain(s, type, &lanewise<MadHighSaturated, S, S, S, S>, 3);
  }
  if (part == 1) {
    return add ? plain(s, type, ternary<ThenAdd<MultiplyHigh>>(type), 3)
               : plain(s, type, binary<MultiplyHigh>(type), 2);
  }
  return add ? plain(s, type, ternary<ThenAdd<MultiplyLow>>(type), 3)
             : plain(s, type, binary<MultiplyLow>(type), 2);
}

template <bool Signed>
Handler multiply24(bool high, bool add) {
  using U = std::uint32_t;
  if (add) {
    return high ? &lanewise<Mad24<Signed, true>, U, U, U, U>
                : &lanewise<Mad24<Signed, false>, U, U, U, U>;
  }
  return high ? &lanewise<Multiply24<Signed, true>, U, U, U>
              : &lanewise<Multiply24<Signed, false>, U, U, U>;
}

bool multiply_24(Selector& s, Type type, bool saturated) {
  if (type != Type::kU32 && type != Type::kS32) return s.refuse_form();
  const bool add = s.opcode() == "mad24"_n;
  const bool high = s.take_one({"lo"_n, "hi"_n}) == 1;
  using U = std::uint32_t;
  if (saturated) {
    if (!add || !high || type != Type::kS32) return s.refuse_form();
    return plain(s, type, &lanewise<Mad24HighSaturated, U, U, U, U>, 3);
  }
  const Handler handler =
      type == Type::kS32 ? multiply24<true>(high, add) : multiply24<false>(high, add);
  return plain(s, type, handler, add ? 3 : 2);
}

bool dot(Selector& s) {
  using U = std::uint32_t;
  const bool four = s.opcode() == "dp4a"_n;
  Step step;
  if (!four) {
    const int half = s.take_one({"lo"_n, "hi"_n});
    if (half < 0) return s.refuse_form();
    if (half == 1) step.value |= 4;
  }
  Type a;
  Type b;
  if (!s.take_type(a) || !s.take_type(b) || !s.need(4, 4)) return false;
  if (type_bytes(a) != 4 || type_bytes(b) != 4) return s.refuse_form();
  if (is_signed(a)) step.value |= 1;
  if (is_signed(b)) step.value |= 2;
  step.handler = four ? &lanewise_with<Dot4, U, U, U, U> : &lanewise_with<Dot2, U, U, U, U>;
  return s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
         s.source(2, Type::kB32, step.b) && s.source(3, Type::kB32, step.c) && s.emit(step);
}

// Additions with the carry flag. options: bit 0: takes it, bit 1: sets it, bit 2: subtracts.
template <class T>
Flow carry_add(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  std::byte* d = warp.row(step.d);
  const Mask carries = (step.value & 1) != 0 ? warp.carry() : 0;
  const bool subtract = (step.value & 4) != 0;
  // As in the hardware, a subtraction adds the complement: the flag it sets means "no borrow".
  // Compilers rely on that where they read it by addc.
  const Mask first = subtract && (step.value & 1) == 0 ? kAllLanes : carries;
  Mask out = 0;
  for_lanes(lanes, [&](unsigned lane) {
    using W = unsigned __int128;
    const T right = get<T>(b, lane);
    const T added = subtract ? static_cast<T>(~right) : right;
    const W sum = W{get<T>(a, lane)} + added + (first >> lane & 1);
    put<T>(d, lane, static_cast<T>(sum));
    out |= static_cast<Mask>((sum >> (sizeof(T) * 8)) & 1) << lane;
  });
  if ((step.value & 2) != 0) warp.carry() = (warp.carry() & ~lanes) | (out & lanes);
  return Flow::kNext;
}

template <class T, bool High>
Flow carry_mad(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const std::byte* c = warp.row(step.c);
  std::byte* d = warp.row(step.d);
  const Mask carries = (step.value & 1) != 0 ? warp.carry() : 0;
  Mask out = 0;
  for_lanes(lanes, [&](unsigned lane) {
    using U = Unsigned<T>;
    using W = unsigned __int128;
    const T x = get<T>(a, lane);
    const T y = get<T>(b, lane);
    const T product = High ? MultiplyHigh::apply(x, y) : MultiplyLow::apply(x, y);
    const W sum = W{static_cast<U>(product)} + get<U>(c, lane) + (carries >> lane & 1);
    put<U>(d, lane, static_cast<U>(sum));
    out |= static_cast<Mask>((sum >> (sizeof(T) * 8)) & 1) << lane;
  });
  if ((step.value & 2) != 0) warp.carry() = (warp.carry() & ~lanes) | (out & lanes);
  return Flow::kNext;
}

}  // namespace

bool select_carry(Selector& s) {
  Step step;
  const std::uint32_t opcode = s.opcode();
  const bool mad = opcode == "mad"_n || opcode == "madc"_n;
  const int part = mad ? s.take_one({"lo"_n, "hi"_n}) : 0;
  if (opcode == "addc"_n || opcode == "subc"_n || opcode == "madc"_n) step.value |= 1;
  if (s.take("cc"_n)) step.value |= 2;
  if (opcode == "sub"_n || opcode == "subc"_n) step.value |= 4;
  Type type;
  if (part < 0) return s.refuse_form();
  if (!s.take_type(type) || !s.need(mad ? 4 : 3, mad ? 4 : 3)) return false;
  if (type_bytes(type) != 4 && type_bytes(type) != 8) return s.refuse_form();
  const Handler handler = pick_integer(type, [&](auto t) -> Handler {
    using T = decltype(t);
    if constexpr (sizeof(T) < 4) return nullptr;
    if (!mad) return &carry_add<Unsigned<T>>;
    return part == 1 ? &carry_mad<T, true> : &carry_mad<T, false>;
  });
  return s.handler(handler, step) && s.destination(0, type, step.d) && s.source(1, type, step.a) &&
         s.source(2, type, step.b) && (!mad || s.source(3, type, step.c)) && s.emit(step);
}

bool select_integer(Selector& s) {
  const std::uint32_t opcode = s.opcode();
  if (opcode == "dp4a"_n || opcode == "dp2a"_n) return dot(s);
  if (s.has("cc"_n)) return select_carry(s);
  const bool saturated = s.take("sat"_n);
  Type type;
  if (!s.take_type(type)) return false;
  switch (opcode) {
    case "add"_n:
    case "sub"_n:
      return add_or_subtract(s, type, saturated);
    case "mul"_n:
    case "mad"_n:
      return multiply(s, type, saturated);
    case "mul24"_n:
    case "mad24"_n:
      return multiply_24(s, type, saturated);
  }
  if (saturated) return s.refuse_form();
  switch (opcode) {
    case "div"_n:
      return plain(s, type, binary<Divide>(type), 2);
    case "rem"_n:
      return plain(s, type, binary<Remainder>(type), 2);
    case "min"_n:
      return minimum_or_maximum<Minimum>(s, type);
    case "max"_n:
      return minimum_or_maximum<Maximum>(s, type);
    case "sad"_n:
      return plain(s, type, ternary<AbsoluteDifference>(type), 3);
    case "neg"_n:
    case "abs"_n: {
      const bool negate = opcode == "neg"_n;
      const Handler handler = pick_integer(type, [negate](auto t) -> Handler {
        using T = decltype(t);
        if constexpr (!std::is_signed_v<T>)
          return nullptr;
        else
          return negate ? &lanewise<Negate, T, T> : &lanewise<Absolute, T, T>;
      });
      return plain(s, type, handler, 1);
    }
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
