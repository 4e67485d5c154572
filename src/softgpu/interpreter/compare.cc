// setp, set, selp, slct: PTX ISA, "Comparison and Selection Instructions".
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

enum class Compare : std::uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kUnorderedEqual,
  kUnorderedNotEqual,
  kUnorderedLess,
  kUnorderedLessEqual,
  kUnorderedGreater,
  kUnorderedGreaterEqual,
  kNumbers,
  kNan,
};

enum class Join : std::uint8_t { kNone, kAnd, kOr, kXor };

template <Compare C, class T>
bool holds(T a, T b) {
  if constexpr (C == Compare::kEqual) return a == b;
  if constexpr (C == Compare::kNotEqual) return a < b || a > b;
  if constexpr (C == Compare::kLess) return a < b;
  if constexpr (C == Compare::kLessEqual) return a <= b;
  if constexpr (C == Compare::kGreater) return a > b;
  if constexpr (C == Compare::kGreaterEqual) return a >= b;
  if constexpr (C == Compare::kUnorderedEqual) return !(a < b || a > b);
  if constexpr (C == Compare::kUnorderedNotEqual) return a != b;
  if constexpr (C == Compare::kUnorderedLess) return !(a >= b);
  if constexpr (C == Compare::kUnorderedLessEqual) return !(a > b);
  if constexpr (C == Compare::kUnorderedGreater) return !(a <= b);
  if constexpr (C == Compare::kUnorderedGreaterEqual) return !(a < b);
  if constexpr (C == Compare::kNumbers) return a == a && b == b;
  return a != a || b != b;
}

// Small formats are compared as floats.
template <bool Ftz, class T>
auto comparable(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>) {
    return Ftz ? (std::fabs(to_float(value)) < 0x1p-14f && std::is_same_v<T, Half>
                      ? std::copysign(0.0f, to_float(value))
                      : flush(to_float(value)))
               : to_float(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    return flushed<Ftz>(value);
  } else {
    return value;
  }
}

Mask joined(Warp& warp, Mask bits, std::uint32_t predicate, Join join) {
  if (join == Join::kNone) return bits;
  const Mask other = warp.predicate_value(predicate);
  if (join == Join::kAnd) return bits & other;
  return join == Join::kOr ? bits | other : bits ^ other;
}

// p (and q, its complement before the joining): value: Join.
template <Compare C, class T, bool Ftz>
Flow set_predicates(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  const Mask bits = which_lanes(kAllLanes, [&](unsigned lane) {
    return holds<C>(comparable<Ftz>(get<T>(a, lane)), comparable<Ftz>(get<T>(b, lane)));
  });
  const auto join = static_cast<Join>(step.value);
  const Mask p = joined(warp, bits, step.extra, join);
  const Mask q = joined(warp, ~bits, step.extra, join);
  warp.set_predicate(step.p, lanes, p);
  warp.set_predicate(step.q, lanes, q);
  return Flow::kNext;
}

// set: a predicate, then the value that stands for true: d = p ? c : 0.
Flow set_value(Warp& warp, const Step& step, Mask lanes) {
  const Mask bits = warp.predicate_value(step.p);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    put<std::uint32_t>(d, lane,
                       (bits >> lane & 1) != 0 ? static_cast<std::uint32_t>(step.value) : 0);
  });
  return Flow::kNext;
}

// Two predicates, one a half.
Flow set_pair(Warp& warp, const Step& step, Mask lanes) {
  const Mask low = warp.predicate_value(step.p);
  const Mask high = warp.predicate_value(step.q);
  const auto one = static_cast<std::uint32_t>(step.value);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    put<std::uint32_t>(d, lane,
                       ((low >> lane & 1) != 0 ? one & 0xffff : 0) |
                           ((high >> lane & 1) != 0 ? one & 0xffff0000 : 0));
  });
  return Flow::kNext;
}

template <class T>
Flow select_by_predicate(Warp& warp, const Step& step, Mask lanes) {
  const Mask bits = warp.predicate_value(step.p);
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  each_lane<T>(warp.row(step.d), lanes, [&](unsigned lane) {
    return (bits >> lane & 1) != 0 ? get<T>(a, lane) : get<T>(b, lane);
  });
  return Flow::kNext;
}

template <class C, bool Ftz>
struct SelectBySign {
  template <class T>
  static T apply(T a, T b, C c) {
    return comparable<Ftz>(c) >= 0 ? a : b;
  }
};

template <class T, bool Ftz>
Handler comparison(Compare compare) {
  switch (compare) {
    case Compare::kEqual:
      return &set_predicates<Compare::kEqual, T, Ftz>;
    case Compare::kNotEqual:
      return &set_predicates<Compare::kNotEqual, T, Ftz>;
    case Compare::kLess:
      return &set_predicates<Compare::kLess, T, Ftz>;
    case Compare::kLessEqual:
      return &set_predicates<Compare::kLessEqual, T, Ftz>;
    case Compare::kGreater:
      return &set_predicates<Compare::kGreater, T, Ftz>;
    case Compare::kGreaterEqual:
      return &set_predicates<Compare::kGreaterEqual, T, Ftz>;
    default:
      break;
  }
  if constexpr (!std::is_integral_v<T>) {
    switch (compare) {
      case Compare::kUnorderedEqual:
        return &set_predicates<Compare::kUnorderedEqual, T, Ftz>;
      case Compare::kUnorderedNotEqual:
        return &set_predicates<Compare::kUnorderedNotEqual, T, Ftz>;
      case Compare::kUnorderedLess:
        return &set_predicates<Compare::kUnorderedLess, T, Ftz>;
      case Compare::kUnorderedLessEqual:
        return &set_predicates<Compare::kUnorderedLessEqual, T, Ftz>;
      case Compare::kUnorderedGreater:
        return &set_predicates<Compare::kUnorderedGreater, T, Ftz>;
      case Compare::kUnorderedGreaterEqual:
        return &set_predicates<Compare::kUnorderedGreaterEqual, T, Ftz>;
      case Compare::kNumbers:
        return &set_predicates<Compare::kNumbers, T, Ftz>;
      case Compare::kNan:
        return &set_predicates<Compare::kNan, T, Ftz>;
      default:
        break;
    }
  }
  return nullptr;
}

Handler comparison(Type type, Compare compare, bool ftz) {
  if (type == Type::kF32) {
    return ftz ? comparison<float, true>(compare) : comparison<float, false>(compare);
  }
  if (type == Type::kF16 || type == Type::kF16x2) {
    return ftz ? comparison<Half, true>(compare) : comparison<Half, false>(compare);
  }
  if (ftz) return nullptr;
  if (type == Type::kF64) return comparison<double, false>(compare);
  if (type == Type::kBF16 || type == Type::kBF16x2) return comparison<Bfloat, false>(compare);
  // Floats of a b type are refused by their size only; b types compare for equality.
  const auto of = [compare](auto t) -> Handler { return comparison<decltype(t), false>(compare); };
  if (type == Type::kB16 || type == Type::kB32 || type == Type::kB64) return pick_bits(type, of);
  return pick_integer(type, of);
}

std::optional<Compare> take_compare(Selector& s) {
  constexpr std::uint32_t kNames[] = {"eq"_n,  "ne"_n,  "lt"_n,  "le"_n,  "gt"_n,
                                      "ge"_n,  "equ"_n, "neu"_n, "ltu"_n, "leu"_n,
                                      "gtu"_n, "geu"_n, "num"_n, "nan"_n};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (s.take(kNames[i])) return static_cast<Compare>(i);
  }
  // Unsigned comparisons by their old names.
  if (s.take("lo"_n)) return Compare::kLess;
  if (s.take("ls"_n)) return Compare::kLessEqual;
  if (s.take("hi"_n)) return Compare::kGreater;
  if (s.take("hs"_n)) return Compare::kGreaterEqual;
  return std::nullopt;
}

struct Question {
  Compare compare = Compare::kEqual;
  Join join = Join::kNone;
  bool ftz = false;
};

bool take_question(Selector& s, Question& question) {
  const auto compare = take_compare(s);
  if (!compare.has_value()) return s.refuse_form();
  question.compare = *compare;
  question.join = static_cast<Join>(s.take_one({"and"_n, "or"_n, "xor"_n}) + 1);
  question.ftz = s.take("ftz"_n);
  return true;
}

// Splits a packed operand into two temporaries.
bool halves(Selector& s, const Operand& operand, Type type, Row& low, Row& high) {
  Row row;
  if (!s.source(operand, type, row)) return false;
  low = row;  // Readers of 16 bits ignore what is above.
  Step step;
  step.handler = [](Warp& warp, const Step& each, Mask lanes) {
    const std::byte* a = warp.row(each.a);
    each_lane<std::uint32_t>(warp.row(each.d), lanes,
                             [&](unsigned lane) { return get<std::uint32_t>(a, lane) >> 16; });
    return Flow::kNext;
  };
  step.a = row;
  step.d = high = s.temporary(4);
  return s.emit_unguarded(step);
}

bool set_predicate(Selector& s) {
  Question question;
  Type type;
  if (!take_question(s, question) || !s.take_type(type)) return false;
  Step step;
  step.value = static_cast<std::int64_t>(question.join);
  step.q = kNoPredicate;
  if (!s.handler(comparison(type, question.compare, question.ftz), step)) return false;
  const bool packed = type == Type::kF16x2 || type == Type::kBF16x2;
  const bool pair = s.operand(1).paired;
  const std::size_t first = pair ? 2 : 1;
  const std::size_t sources = question.join == Join::kNone ? 2 : 3;
  if (!s.need(first + sources, first + sources)) return false;
  if (!s.predicate_destination(s.operand(0), step.p)) return false;
  std::uint32_t second = kNoPredicate;
  if (pair && !s.predicate_destination(s.operand(1), second)) return false;
  if (sources == 3 && !s.predicate_source(s.operand(first + 2), step.extra)) return false;
  if (!packed) {
    step.q = second;
    return s.source(first, type, step.a) && s.source(first + 1, type, step.b) && s.emit(step);
  }
  // Of pairs, p answers for the low halves and q for the high ones. Both are asked before any
  // answer is stored: the joined predicate may be one of them.
  Step high = step;
  if (!halves(s, s.operand(first), type, step.a, high.a) ||
      !halves(s, s.operand(first + 1), type, step.b, high.b)) {
    return false;
  }
  high.p = s.new_predicate();
  if (!s.emit(high) || !s.emit(step)) return false;
  if (second == kNoPredicate) return true;
  Step copy;
  copy.handler = [](Warp& warp, const Step& each, Mask lanes) {
    warp.set_predicate(each.p, lanes, warp.predicate(each.q));
    return Flow::kNext;
  };
  copy.p = second;
  copy.q = high.p;
  return s.emit(copy);
}

// What "true" looks like in the destination type.
std::optional<std::int64_t> true_value(Type type) {
  if (type == Type::kF32) return 0x3f800000;
  if (type == Type::kF16) return 0x3c00;
  if (type == Type::kBF16) return 0x3f80;
  if (type == Type::kF16x2) return 0x3c003c00;
  if (type == Type::kBF16x2) return 0x3f803f80;
  if (type_bytes(type) == 2 || type_bytes(type) == 4) return 0xffffffff;
  return std::nullopt;
}

bool set_register(Selector& s) {
  Question question;
  Type result;
  Type type;
  if (!take_question(s, question) || !s.take_type(result) || !s.take_type(type)) return false;
  const auto one = true_value(result);
  if (!one.has_value()) return s.refuse_form();
  Step step;
  step.value = static_cast<std::int64_t>(question.join);
  if (!s.handler(comparison(type, question.compare, question.ftz), step)) return false;
  const std::size_t sources = question.join == Join::kNone ? 2 : 3;
  if (!s.need(1 + sources, 1 + sources)) return false;
  if (sources == 3 && !s.predicate_source(s.operand(3), step.extra)) return false;
  Step store;
  store.handler = &set_value;
  store.value = *one;
  step.q = kNoPredicate;
  step.p = s.new_predicate();
  store.p = step.p << 1;
  if (!s.destination(0, result, store.d)) return false;
  if (type != Type::kF16x2 && type != Type::kBF16x2) {
    return s.source(1, type, step.a) && s.source(2, type, step.b) && s.emit(step) && s.emit(store);
  }
  Step high = step;
  high.p = s.new_predicate();
  store.q = high.p << 1;
  store.handler = &set_pair;
  return halves(s, s.operand(1), type, step.a, high.a) &&
         halves(s, s.operand(2), type, step.b, high.b) && s.emit(step) && s.emit(high) &&
         s.emit(store);
}

bool select_predicate(Selector& s) {
  Type type;
  if (!s.take_type(type) || !s.need(4, 4)) return false;
  Step step;
  const Handler handler =
      pick_bits(type, [](auto t) -> Handler { return &select_by_predicate<decltype(t)>; });
  return s.handler(handler, step) && s.destination(0, type, step.d) && s.source(1, type, step.a) &&
         s.source(2, type, step.b) && s.predicate_source(s.operand(3), step.p) && s.emit(step);
}

bool select_sign(Selector& s) {
  const bool ftz = s.take("ftz"_n);
  Type type;
  Type sign;
  if (!s.take_type(type) || !s.take_type(sign) || !s.need(4, 4)) return false;
  if (sign != Type::kS32 && sign != Type::kF32) return s.refuse_form();
  const Handler handler = pick_bits(type, [&](auto t) -> Handler {
    using T = decltype(t);
    using I = std::int32_t;
    if (sign == Type::kS32) return &lanewise<SelectBySign<I, false>, T, T, T, I>;
    if (ftz) return &lanewise<SelectBySign<float, true>, T, T, T, float>;
    return &lanewise<SelectBySign<float, false>, T, T, T, float>;
  });
  Step step;
  return s.handler(handler, step) && s.destination(0, type, step.d) && s.source(1, type, step.a) &&
         s.source(2, type, step.b) && s.source(3, sign, step.c) && s.emit(step);
}

}  // namespace

bool select_compare(Selector& s) {
  switch (s.opcode()) {
    case "setp"_n:
      return set_predicate(s);
    case "set"_n:
      return set_register(s);
    case "selp"_n:
      return select_predicate(s);
    case "slct"_n:
      return select_sign(s);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
