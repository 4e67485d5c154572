// mov: registers, addresses, special registers, and the packing and unpacking of vectors.
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kVectorMax = 4;

struct Copy {
  template <class T>
  static T apply(T value) {
    return value;
  }
};

Flow copy_predicate(Warp& warp, const Step& step, Mask lanes) {
  warp.set_predicate(step.p, lanes, warp.predicate_value(step.q));
  return Flow::kNext;
}

Flow copy_row128(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    put<std::uint64_t>(d, lane, get<std::uint64_t>(a, lane));
    put<std::uint64_t>(d + kRow64Bytes, lane, get<std::uint64_t>(a + kRow64Bytes, lane));
  });
  return Flow::kNext;
}

template <class T>
T part(std::uint64_t low, std::uint64_t high, unsigned index) {
  const unsigned bit = index * sizeof(T) * 8;
  return static_cast<T>(bit < 64 ? low >> bit : high >> (bit - 64));
}

// d (4, 8 or 16 bytes) from `value` elements of type T, whose rows stand at `extra`.
template <class T>
Flow pack(Warp& warp, const Step& step, Mask lanes) {
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto count = static_cast<unsigned>(step.value);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t words[2] = {0, 0};
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t element = get<T>(warp.row(Row{rows[i]}), lane);
      const unsigned bit = i * sizeof(T) * 8;
      words[bit / 64] |= element << bit % 64;
    }
    const std::size_t bytes = count * sizeof(T);
    if (bytes <= 4) return put<std::uint32_t>(d, lane, static_cast<std::uint32_t>(words[0]));
    put<std::uint64_t>(d, lane, words[0]);
    if (bytes == 16) put<std::uint64_t>(d + kRow64Bytes, lane, words[1]);
  });
  return Flow::kNext;
}

template <class T>
Flow unpack(Warp& warp, const Step& step, Mask lanes) {
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto count = static_cast<unsigned>(step.value);
  const std::byte* a = warp.row(step.a);
  const std::size_t bytes = count * sizeof(T);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t low =
        bytes <= 4 ? get<std::uint32_t>(a, lane) : get<std::uint64_t>(a, lane);
    const std::uint64_t high = bytes == 16 ? get<std::uint64_t>(a + kRow64Bytes, lane) : 0;
    for (unsigned i = 0; i < count; ++i) {
      put<T>(warp.row(Row{rows[i]}), lane, part<T>(low, high, i));
    }
  });
  return Flow::kNext;
}

std::optional<Type> element_type(Type whole, std::size_t count) {
  if (count == 0) return std::nullopt;
  switch (type_bytes(whole) % count == 0 ? type_bytes(whole) / count : 0) {
    case 1:
      return Type::kB8;
    case 2:
      return Type::kB16;
    case 4:
      return Type::kB32;
    case 8:
      return Type::kB64;
    default:
      return std::nullopt;
  }
}

bool pack_or_unpack(Selector& s, Type type, bool packs) {
  const Operand& vector = s.operand(packs ? 1 : 0);
  const auto each = element_type(type, vector.count);
  if (!each.has_value() || vector.paren || vector.memory || type_bytes(type) < 2) {
    return s.refuse_form();
  }
  std::vector<Row> rows(vector.count);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Operand& element = s.element(vector, i);
    if (packs ? !s.source(element, *each, rows[i]) : !s.destination(element, *each, rows[i])) {
      return false;
    }
  }
  Step step;
  step.extra = s.add_rows(rows);
  step.value = static_cast<std::int64_t>(rows.size());
  const auto of = [packs](auto t) -> Handler {
    using T = decltype(t);
    return packs ? &pack<T> : &unpack<T>;
  };
  step.handler = *each == Type::kB8 ? of(std::uint8_t{}) : pick_bits(*each, of);
  const bool whole = packs ? s.destination(0, type, step.d) : s.source(1, type, step.a);
  return whole && s.emit(step);
}

// `value` elements of type T from the rows at `extra` to those that stand behind them.
template <class T>
Flow copy_vector(Warp& warp, const Step& step, Mask lanes) {
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto count = static_cast<unsigned>(step.value);
  for_lanes(lanes, [&](unsigned lane) {
    T elements[kVectorMax];
    for (unsigned i = 0; i < count; ++i) elements[i] = get<T>(warp.row(Row{rows[i]}), lane);
    for (unsigned i = 0; i < count; ++i) {
      put<T>(warp.row(Row{rows[count + i]}), lane, elements[i]);
    }
  });
  return Flow::kNext;
}

// %tid as {%tid.x, %tid.y, %tid.z, 0}.
Operand component(Selector& s, const Operand& special, unsigned index) {
  Operand made = special;
  const std::string& whole = s.code().spellings[special.index];
  made.bits = hash_of(whole + "." + "xyzw"[index]);
  return made;
}

// mov.v2.u32 {a, b}, {c, d}
bool select_vector_move(Selector& s, Type type, unsigned count) {
  const auto is_vector = [count](const Operand& operand) {
    return operand.kind == Operand::Kind::kVector && operand.count == count && !operand.paren &&
           !operand.memory;
  };
  const Operand& to = s.operand(0);
  const Operand& from = s.operand(1);
  const bool special = from.kind == Operand::Kind::kSpecial && count == 4 && !from.memory;
  if (!is_vector(to) || !(special || is_vector(from))) return s.refuse_form();
  if (type_bytes(type) < 2 || type_bytes(type) > (special ? 4 : 8)) return s.refuse_form();
  std::vector<Row> rows(std::size_t{2} * count);
  for (unsigned i = 0; i < count; ++i) {
    if (!s.source(special ? component(s, from, i) : s.element(from, i), type, rows[i]) ||
        !s.destination(s.element(to, i), type, rows[count + i])) {
      return false;
    }
  }
  Step step;
  step.extra = s.add_rows(rows);
  step.value = count;
  step.handler = pick_bits(type, [](auto t) -> Handler { return &copy_vector<decltype(t)>; });
  return s.emit(step);
}

}  // namespace

Flow copy_row32(Warp& warp, const Step& step, Mask lanes) {
  return lanewise<Copy, std::uint32_t, std::uint32_t>(warp, step, lanes);
}

Flow copy_row64(Warp& warp, const Step& step, Mask lanes) {
  return lanewise<Copy, std::uint64_t, std::uint64_t>(warp, step, lanes);
}

Flow widen_address(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  each_lane<std::uint64_t>(warp.row(step.d), lanes,
                           [&](unsigned lane) { return get<std::uint32_t>(a, lane); });
  return Flow::kNext;
}

// d = a + (b * extra + value), where the second sum has 32 bits; d and a have p bytes.
template <class Index>
Flow element_address(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) {
    const auto index = static_cast<std::uint32_t>(get<Index>(b, lane));
    const std::uint32_t offset = index * step.extra + static_cast<std::uint32_t>(step.value);
    if (step.p == 4) {
      put<std::uint32_t>(d, lane, get<std::uint32_t>(a, lane) + offset);
    } else {
      put<std::uint64_t>(d, lane, get<std::uint64_t>(a, lane) + offset);
    }
  });
  return Flow::kNext;
}

template Flow element_address<std::int16_t>(Warp&, const Step&, Mask);
template Flow element_address<std::uint16_t>(Warp&, const Step&, Mask);
template Flow element_address<std::uint32_t>(Warp&, const Step&, Mask);
template Flow element_address<std::uint64_t>(Warp&, const Step&, Mask);

bool select_move(Selector& s) {
  Type type;
  const int vector = s.take_one({"v2"_n, "v4"_n});
  if (!s.take_type(type) || !s.need(2, 2)) return false;
  if (vector >= 0) return select_vector_move(s, type, vector == 0 ? 2 : 4);
  Step step;
  if (type == Type::kPred) {
    step.handler = &copy_predicate;
    return s.predicate_destination(s.operand(0), step.p) &&
           s.predicate_source(s.operand(1), step.q) && s.emit(step);
  }
  const bool packs = s.operand(1).kind == Operand::Kind::kVector;
  const bool unpacks = s.operand(0).kind == Operand::Kind::kVector;
  if (packs && unpacks) return s.refuse_form();
  if (packs || unpacks) return pack_or_unpack(s, type, packs);
  const unsigned bytes = type_bytes(type);
  step.handler = bytes == 16 ? &copy_row128 : bytes == 8 ? &copy_row64 : &copy_row32;
  return s.destination(0, type, step.d) && s.source(1, type, step.a) && s.emit(step);
}

}  // namespace flyt::ptx
