// Logic, shifts and bit fields: PTX ISA, "Logic and Shift" and the bit instructions.
#include <type_traits>

#include "softgpu/interpreter/operators.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

using U32 = std::uint32_t;

struct Not {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(~a);
  }
};
struct LogicalNot {
  template <class T>
  static T apply(T a) {
    return a == 0 ? T{1} : T{0};
  }
};
struct ShiftLeft {
  template <class T>
  static T apply(T a, U32 b) {
    return b >= sizeof(T) * 8 ? T{0} : static_cast<T>(a << b);
  }
};
struct ShiftRight {
  template <class T>
  static T apply(T a, U32 b) {
    constexpr U32 kBits = sizeof(T) * 8;
    if (b < kBits) return static_cast<T>(a >> b);
    return static_cast<T>(std::is_signed_v<T> && a < 0 ? -1 : 0);
  }
};
// options: bit 0: to the right, bit 1: the count wraps at 32 instead of being clamped.
struct Funnel {
  static U32 apply(std::int64_t options, U32 low, U32 high, U32 count) {
    count = (options & 2) != 0 ? count & 31 : (count > 32 ? 32 : count);
    const std::uint64_t both = std::uint64_t{high} << 32 | low;
    if ((options & 1) != 0) return static_cast<U32>(both >> count);
    return count == 32 ? low : static_cast<U32>((both << count) >> 32);
  }
};
struct Lookup3 {
  static U32 apply(std::int64_t table, U32 a, U32 b, U32 c) {
    U32 result = 0;
    if ((table & 0x01) != 0) result |= ~a & ~b & ~c;
    if ((table & 0x02) != 0) result |= ~a & ~b & c;
    if ((table & 0x04) != 0) result |= ~a & b & ~c;
    if ((table & 0x08) != 0) result |= ~a & b & c;
    if ((table & 0x10) != 0) result |= a & ~b & ~c;
    if ((table & 0x20) != 0) result |= a & ~b & c;
    if ((table & 0x40) != 0) result |= a & b & ~c;
    if ((table & 0x80) != 0) result |= a & b & c;
    return result;
  }
};

U32 permuted(std::uint64_t bytes, U32 selector) {
  U32 result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const U32 nibble = selector >> i * 4;
    U32 byte = static_cast<U32>(bytes >> (nibble & 7) * 8) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << i * 8;
  }
  return result;
}

// The selectors of the special modes, for each value of the two low bits.
constexpr U32 kPermuteModes[7][4] = {
    {0, 0, 0, 0},                      // The general mode.
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
};

struct Permute {
  static U32 apply(std::int64_t mode, U32 a, U32 b, U32 c) {
    const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
    return permuted(bytes, mode == 0 ? c : kPermuteModes[mode][c & 3]);
  }
};

struct FieldExtract {
  template <class T>
  static T apply(T a, U32 position, U32 length) {
    using U = std::make_unsigned_t<T>;
    constexpr U32 kBits = sizeof(T) * 8;
    position &= 0xff;
    length &= 0xff;
    const auto bits = static_cast<U>(a);
    bool sign = false;
    if constexpr (std::is_signed_v<T>) {
      const U32 last = position + length - 1 < kBits - 1 ? position + length - 1 : kBits - 1;
      sign = length != 0 && (bits >> last & 1) != 0;
    }
    U field = position >= kBits ? U{0} : static_cast<U>(bits >> position);
    // Where the field leaves the register, it is filled with its sign.
    U32 held = position >= kBits ? 0 : kBits - position;
    if (length < held) held = length;
    if (held < kBits) {
      const U mask = static_cast<U>((U{1} << held) - 1);
      field = static_cast<U>((field & mask) | (sign ? static_cast<U>(~mask) : U{0}));
    }
    return static_cast<T>(field);
  }
};
struct FieldInsert {
  template <class T>
  static T apply(T a, T b, U32 position, U32 length) {
    constexpr U32 kBits = sizeof(T) * 8;
    position &= 0xff;
    length &= 0xff;
    if (position >= kBits || length == 0) return b;
    const T ones = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const T mask = static_cast<T>(ones << position);
    return static_cast<T>((b & ~mask) | (static_cast<T>(a << position) & mask));
  }
};
// options: bit 0: the shift amount that brings the bit to the top, instead of its place.
struct FindBit {
  template <class T>
  static U32 apply(std::int64_t options, T a) {
    using U = std::make_unsigned_t<T>;
    auto bits = static_cast<U>(a);
    if (std::is_signed_v<T> && a < 0) bits = static_cast<U>(~bits);
    if (bits == 0) return ~U32{0};
    const U32 place = sizeof(T) * 8 - 1 - static_cast<U32>(std::countl_zero(bits));
    return (options & 1) != 0 ? sizeof(T) * 8 - 1 - place : place;
  }
};
struct Reverse {
  template <class T>
  static T apply(T a) {
    // Neighbours change places: single bits, pairs, and so on up to halves.
    for (unsigned width = 1; width < sizeof(T) * 8; width *= 2) {
      const T low = static_cast<T>(~T{0} / ((T{1} << width) + 1));
      a = static_cast<T>((a >> width & low) | (a & low) << width);
    }
    return a;
  }
};
struct LeadingZeros {
  template <class T>
  static U32 apply(T a) {
    return static_cast<U32>(std::countl_zero(a));
  }
};
struct PopulationCount {
  template <class T>
  static U32 apply(T a) {
    return static_cast<U32>(std::popcount(a));
  }
};
struct FindNthSet {
  static U32 apply(U32 mask, U32 base, std::int32_t offset) {
    if (offset == 0) return base < 32 && (mask >> base & 1) != 0 ? base : ~U32{0};
    std::int64_t position = base;
    const std::int64_t direction = offset > 0 ? 1 : -1;
    std::int64_t left = offset > 0 ? std::int64_t{offset} : -std::int64_t{offset};
    for (; position >= 0 && position < 32; position += direction) {
      if ((mask >> position & 1) != 0 && --left == 0) return static_cast<U32>(position);
    }
    return ~U32{0};
  }
};
// options: bit 0: wrap, bit 1: signed.
struct Extend {
  static U32 apply(std::int64_t options, U32 a, U32 bits) {
    if ((options & 1) != 0) bits &= 31;
    if (bits >= 32) return a;
    if (bits == 0) return 0;
    const U32 shift = 32 - bits;
    if ((options & 2) != 0) return static_cast<U32>(static_cast<std::int32_t>(a << shift) >> shift);
    return a << shift >> shift;
  }
};
struct BitMask {
  static U32 apply(std::int64_t options, U32 position, U32 width) {
    if ((options & 1) != 0) {
      position &= 31;
      width &= 31;
    }
    if (position >= 32 || width == 0) return 0;
    const U32 ones = width >= 32 ? ~U32{0} : (U32{1} << width) - 1;
    return ones << position;
  }
};

enum class Logic : std::uint8_t { kAnd, kOr, kXor, kNot };

template <Logic L>
Flow predicate_logic(Warp& warp, const Step& step, Mask lanes) {
  const Mask a = warp.predicate_value(step.extra);
  const Mask b = warp.predicate_value(step.q);
  const Mask bits = L == Logic::kAnd   ? a & b
                    : L == Logic::kOr  ? a | b
                    : L == Logic::kXor ? a ^ b
                                       : ~a;
  warp.set_predicate(step.p, lanes, bits);
  return Flow::kNext;
}

bool on_predicates(Selector& s, Handler handler, bool unary) {
  Step step;
  step.handler = handler;
  step.q = kAlwaysTrue;
  return s.need(unary ? 2 : 3, unary ? 2 : 3) && s.predicate_destination(s.operand(0), step.p) &&
         s.predicate_source(s.operand(1), step.extra) &&
         (unary || s.predicate_source(s.operand(2), step.q)) && s.emit(step);
}

template <class Op>
bool logic(Selector& s, Type type, Handler predicates) {
  if (type == Type::kPred) return on_predicates(s, predicates, false);
  Step step;
  const Handler handler = pick_bits(type, [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<Op, T, T, T>;
  });
  return s.need(3, 3) && s.handler(handler, step) && s.destination(0, type, step.d) &&
         s.source(1, type, step.a) && s.source(2, type, step.b) && s.emit(step);
}

template <class Op>
bool unary(Selector& s, Type type) {
  Step step;
  const Handler handler = pick_bits(type, [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<Op, T, T>;
  });
  return s.need(2, 2) && s.handler(handler, step) && s.destination(0, type, step.d) &&
         s.source(1, type, step.a) && s.emit(step);
}

template <class Op>
bool shift(Selector& s, Type type, bool arithmetic) {
  Step step;
  const auto of = [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<Op, T, T, U32>;
  };
  const Handler handler = arithmetic ? pick_integer(type, of) : pick_bits(type, of);
  return s.need(3, 3) && s.handler(handler, step) && s.destination(0, type, step.d) &&
         s.source(1, type, step.a) && s.source(2, Type::kU32, step.b) && s.emit(step);
}

// Counts: the result is 32 bits wide whatever the operand is.
template <class Op>
bool count(Selector& s, Type type) {
  Step step;
  const Handler handler = pick_bits(type, [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<Op, U32, T>;
  });
  return s.need(2, 2) && s.handler(handler, step) && s.destination(0, Type::kU32, step.d) &&
         s.source(1, type, step.a) && s.emit(step);
}

bool find_bit(Selector& s) {
  Step step;
  step.value = s.take("shiftamt"_n) ? 1 : 0;
  Type type;
  if (!s.take_type(type) || !s.need(2, 2)) return false;
  const Handler handler = pick_integer(type, [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise_with<FindBit, U32, T>;
  });
  return s.handler(handler, step) && s.destination(0, Type::kU32, step.d) &&
         s.source(1, type, step.a) && s.emit(step);
}

bool fields(Selector& s, Type type) {
  Step step;
  const bool insert = s.opcode() == "bfi"_n;
  const auto extract_of = [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<FieldExtract, T, T, U32, U32>;
  };
  const auto insert_of = [](auto t) -> Handler {
    using T = decltype(t);
    return &lanewise<FieldInsert, T, T, T, U32, U32>;
  };
  const Handler handler = insert ? pick_bits(type, insert_of) : pick_integer(type, extract_of);
  if (!s.need(insert ? 5 : 4, insert ? 5 : 4) || !s.handler(handler, step) ||
      !s.destination(0, type, step.d) || !s.source(1, type, step.a)) {
    return false;
  }
  if (insert) {
    return s.source(2, type, step.b) && s.source(3, Type::kU32, step.c) &&
           s.source(4, Type::kU32, step.e) && s.emit(step);
  }
  return s.source(2, Type::kU32, step.b) && s.source(3, Type::kU32, step.c) && s.emit(step);
}

bool funnel(Selector& s) {
  Step step;
  const int direction = s.take_one({"l"_n, "r"_n});
  const int mode = s.take_one({"clamp"_n, "wrap"_n});
  if (direction < 0 || mode < 0) return s.refuse_form();
  step.value = direction | mode << 1;
  step.handler = &lanewise_with<Funnel, U32, U32, U32, U32>;
  Type type;
  if (!s.need(4, 4) || !s.take_type(type)) return false;
  if (type_bytes(type) != 4) return s.refuse_form();
  return s.destination(0, type, step.d) && s.source(1, type, step.a) && s.source(2, type, step.b) &&
         s.source(3, type, step.c) && s.emit(step);
}

// p = (d != 0) and or or q; extra: 1 for or.
Flow lookup_with_predicate(Warp& warp, const Step& step, Mask lanes) {
  lanewise_with<Lookup3, U32, U32, U32, U32>(warp, step, lanes);
  const std::byte* d = warp.row(step.d);
  const Mask some = which_lanes(lanes, [&](unsigned lane) { return get<U32>(d, lane) != 0; });
  const Mask other = warp.predicate_value(step.q);
  warp.set_predicate(step.p, lanes, step.extra != 0 ? some | other : some & other);
  return Flow::kNext;
}

// lop3.b32 d, a, b, c, table; lop3.and.b32 d|p, a, b, c, table, q;
bool lookup(Selector& s) {
  Step step;
  std::uint64_t table = 0;
  const int join = s.take_one({"and"_n, "or"_n});
  const std::size_t first = join < 0 ? 1 : 2;
  Type type;
  if (!s.take_type(type) || type_bytes(type) != 4) return s.refuse_form();
  const std::size_t count = join < 0 ? 5 : 7;
  if (!s.need(count, count) || !s.integer(s.operand(first + 3), table)) return false;
  step.value = static_cast<std::int64_t>(table & 0xff);
  step.handler = &lanewise_with<Lookup3, U32, U32, U32, U32>;
  if (join >= 0) {
    step.handler = &lookup_with_predicate;
    step.extra = static_cast<std::uint32_t>(join);
    if (!s.operand(1).paired) return s.refuse_form();
    if (!s.predicate_destination(s.operand(1), step.p)) return false;
    if (!s.predicate_source(s.operand(6), step.q)) return false;
  }
  return s.destination(0, type, step.d) && s.source(first, type, step.a) &&
         s.source(first + 1, type, step.b) && s.source(first + 2, type, step.c) && s.emit(step);
}

bool permute(Selector& s) {
  Step step;
  step.handler = &lanewise_with<Permute, U32, U32, U32, U32>;
  Type type;
  if (!s.take_type(type) || !s.need(4, 4)) return false;
  step.value = s.take_one({"f4e"_n, "b4e"_n, "rc8"_n, "ecl"_n, "ecr"_n, "rc16"_n}) + 1;
  if (type_bytes(type) != 4) return s.refuse_form();
  return s.destination(0, type, step.d) && s.source(1, type, step.a) && s.source(2, type, step.b) &&
         s.source(3, type, step.c) && s.emit(step);
}

bool extend_or_mask(Selector& s) {
  Step step;
  const int mode = s.take_one({"clamp"_n, "wrap"_n});
  if (mode < 0) return s.refuse_form();
  Type type;
  if (!s.take_type(type) || !s.need(3, 3)) return false;
  if (type_bytes(type) != 4) return s.refuse_form();
  step.value = mode | (is_signed(type) ? 2 : 0);
  step.handler = s.opcode() == "szext"_n ? &lanewise_with<Extend, U32, U32, U32>
                                         : &lanewise_with<BitMask, U32, U32, U32>;
  return s.destination(0, type, step.d) && s.source(1, type, step.a) &&
         s.source(2, Type::kU32, step.b) && s.emit(step);
}

bool nth_set(Selector& s) {
  Step step;
  step.handler = &lanewise<FindNthSet, U32, U32, U32, std::int32_t>;
  Type type;
  return s.take_type(type) && s.need(4, 4) && s.destination(0, Type::kB32, step.d) &&
         s.source(1, Type::kB32, step.a) && s.source(2, Type::kB32, step.b) &&
         s.source(3, Type::kS32, step.c) && s.emit(step);
}

}  // namespace

bool select_bits(Selector& s) {
  const std::uint32_t opcode = s.opcode();
  switch (opcode) {
    case "shf"_n:
      return funnel(s);
    case "lop3"_n:
      return lookup(s);
    case "prmt"_n:
      return permute(s);
    case "bfind"_n:
      return find_bit(s);
    case "szext"_n:
    case "bmsk"_n:
      return extend_or_mask(s);
    case "fns"_n:
      return nth_set(s);
  }
  Type type;
  if (!s.take_type(type)) return false;
  switch (opcode) {
    case "and"_n:
      return logic<And>(s, type, &predicate_logic<Logic::kAnd>);
    case "or"_n:
      return logic<Or>(s, type, &predicate_logic<Logic::kOr>);
    case "xor"_n:
      return logic<Xor>(s, type, &predicate_logic<Logic::kXor>);
    case "not"_n:
      if (type == Type::kPred) return on_predicates(s, &predicate_logic<Logic::kNot>, true);
      return unary<Not>(s, type);
    case "cnot"_n:
      return unary<LogicalNot>(s, type);
    case "shl"_n:
      return shift<ShiftLeft>(s, type, false);
    case "shr"_n:
      return shift<ShiftRight>(s, type, is_signed(type));
    case "brev"_n:
      return unary<Reverse>(s, type);
    case "clz"_n:
      return count<LeadingZeros>(s, type);
    case "popc"_n:
      return count<PopulationCount>(s, type);
    case "bfe"_n:
    case "bfi"_n:
      return fields(s, type);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
