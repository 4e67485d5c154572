// ld and st: PTX ISA, "Data Movement". Cache operators and scopes mean nothing here; strong
// accesses (.volatile, .relaxed, .acquire, .release) are atomic ones of the host.
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

template <class M, bool Strong>
M read(const std::byte* place) {
  M value;
  if constexpr (Strong) {
    value =
        __atomic_load_n(static_cast<const M*>(static_cast<const void*>(place)), __ATOMIC_ACQUIRE);
  } else {
    std::memcpy(&value, place, sizeof(M));
  }
  return value;
}

template <class M, bool Strong>
void write(std::byte* place, M value) {
  if constexpr (Strong) {
    __atomic_store_n(static_cast<M*>(static_cast<void*>(place)), value, __ATOMIC_RELEASE);
  } else {
    std::memcpy(place, &value, sizeof(M));
  }
}

// Whole warps often touch consecutive values: then one check serves all.
template <Space S, class M>
std::byte* consecutive(Access<S>& access, const std::byte* addresses, std::int64_t offset) {
  const std::uint64_t first = get<std::uint64_t>(addresses, 0) + static_cast<std::uint64_t>(offset);
  std::uint64_t differs = first & (sizeof(M) - 1);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    differs |= (get<std::uint64_t>(addresses, lane) + static_cast<std::uint64_t>(offset)) ^
               (first + lane * sizeof(M));
  }
  if (differs != 0 || !access.whole(first, kLanes * sizeof(M))) return nullptr;
  return static_cast<std::byte*>(pointer_at(first));
}

// The block's own shared memory, where every lane's access lies in it; otherwise null.
template <class M>
std::byte* all_in_shared(Warp& warp, const std::byte* addresses, std::int64_t offset) {
  std::uint64_t most = 0;
  std::uint64_t low_bits = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t address =
        get<std::uint64_t>(addresses, lane) + static_cast<std::uint64_t>(offset);
    most = address > most ? address : most;
    low_bits |= address;
  }
  if ((low_bits & (sizeof(M) - 1)) != 0) return nullptr;
  return warp.block().own_shared(most, sizeof(M)) == nullptr ? nullptr
                                                             : warp.block().own_shared(0, 0);
}

// M: what lies in memory; R: the register, 4 or 8 bytes.
template <Space S, class M, class R, bool Strong>
Flow load(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  std::byte* d = warp.row(step.d);
  Access<S> access(warp, sizeof(M), false);
  if constexpr (Strong) warp.polled();
  if constexpr (!Strong && (S == Space::kGlobal || S == Space::kConst || S == Space::kGeneric)) {
    if (lanes == kAllLanes) {
      if (const std::byte* place = consecutive<S, M>(access, a, step.value); place != nullptr) {
        R out[kLanes];
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          M value;
          std::memcpy(&value, place + lane * sizeof(M), sizeof(M));
          out[lane] = static_cast<R>(value);
        }
        std::memcpy(d, out, sizeof(out));
        return Flow::kNext;
      }
    }
  }
  if constexpr (!Strong && S == Space::kShared) {
    const std::byte* base = lanes == kAllLanes ? all_in_shared<M>(warp, a, step.value) : nullptr;
    if (base != nullptr) {
      R out[kLanes];
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        out[lane] = static_cast<R>(read<M, false>(
            base + (get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value))));
      }
      std::memcpy(d, out, sizeof(out));
      return Flow::kNext;
    }
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const std::uint64_t address =
        get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value);
    const std::byte* place = access.at(lane, address);
    if (place == nullptr) return access.failed();
    put<R>(d, lane, static_cast<R>(read<M, Strong>(place)));
  }
  return Flow::kNext;
}

template <Space S, class M, class R, bool Strong>
Flow store(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  Access<S> access(warp, sizeof(M), true);
  if constexpr (!Strong && (S == Space::kGlobal || S == Space::kGeneric)) {
    if (lanes == kAllLanes) {
      if (std::byte* place = consecutive<S, M>(access, a, step.value); place != nullptr) {
        M out[kLanes];
        for (unsigned lane = 0; lane < kLanes; ++lane) out[lane] = static_cast<M>(get<R>(b, lane));
        std::memcpy(place, out, sizeof(out));
        return Flow::kNext;
      }
    }
  }
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const std::uint64_t address =
        get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value);
    std::byte* place = access.at(lane, address);
    if (place == nullptr) return access.failed();
    write<M, Strong>(place, static_cast<M>(get<R>(b, lane)));
  }
  return Flow::kNext;
}

// Vectors: `q` elements, their rows at `extra`. 128-bit values are vectors of two here.
template <Space S, class M, class R>
Flow load_vector(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::uint32_t* rows = warp.rows(step.extra);
  const unsigned count = step.q;
  if (step.p != 0) warp.polled();
  Access<S> access(warp, sizeof(M) * count, false);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const std::uint64_t address =
        get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value);
    const std::byte* place = access.at(lane, address);
    if (place == nullptr) return access.failed();
    for (unsigned i = 0; i < count; ++i) {
      put<R>(warp.row(Row{rows[i]}), lane, static_cast<R>(read<M, false>(place + i * sizeof(M))));
    }
  }
  return Flow::kNext;
}

template <Space S, class M, class R>
Flow store_vector(Warp& warp, const Step& step, Mask lanes) {
  const std::byte* a = warp.row(step.a);
  const std::uint32_t* rows = warp.rows(step.extra);
  const unsigned count = step.q;
  Access<S> access(warp, sizeof(M) * count, true);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const std::uint64_t address =
        get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value);
    std::byte* place = access.at(lane, address);
    if (place == nullptr) return access.failed();
    for (unsigned i = 0; i < count; ++i) {
      write<M, false>(place + i * sizeof(M), static_cast<M>(get<R>(warp.row(Row{rows[i]}), lane)));
    }
  }
  return Flow::kNext;
}

enum class Kind : std::uint8_t { kLoad, kStore, kLoadVector, kStoreVector };

template <Space S, class M, class R>
Handler pick(Kind kind, bool strong) {
  switch (kind) {
    case Kind::kLoad:
      return strong ? &load<S, M, R, true> : &load<S, M, R, false>;
    case Kind::kStore:
      return strong ? &store<S, M, R, true> : &store<S, M, R, false>;
    case Kind::kLoadVector:
      return &load_vector<S, M, R>;
    case Kind::kStoreVector:
      return &store_vector<S, M, R>;
  }
  return nullptr;
}

template <Space S, class R>
Handler pick(Type type, Kind kind, bool strong) {
  const bool loads = kind == Kind::kLoad || kind == Kind::kLoadVector;
  const bool sign = is_signed(type) && loads;
  switch (type_bytes(type)) {
    case 1:
      return sign ? pick<S, std::int8_t, R>(kind, strong) : pick<S, std::uint8_t, R>(kind, strong);
    case 2:
      return sign ? pick<S, std::int16_t, R>(kind, strong)
                  : pick<S, std::uint16_t, R>(kind, strong);
    case 4:
      return sign ? pick<S, std::int32_t, R>(kind, strong)
                  : pick<S, std::uint32_t, R>(kind, strong);
  }
  if constexpr (sizeof(R) == 8) return pick<S, std::uint64_t, R>(kind, strong);
  return nullptr;
}

template <class R>
Handler pick(Space space, Type type, Kind kind, bool strong) {
  switch (space) {
    case Space::kGeneric:
      return pick<Space::kGeneric, R>(type, kind, strong);
    case Space::kConst:
    case Space::kGlobal:
      return pick<Space::kGlobal, R>(type, kind, strong);
    case Space::kShared:
      return pick<Space::kShared, R>(type, kind, strong);
    case Space::kLocal:
      return pick<Space::kLocal, R>(type, kind, strong);
    case Space::kParam:
      return pick<Space::kParam, R>(type, kind, strong);
  }
  return nullptr;
}

unsigned vector_length(Selector& s) {
  if (s.take("v2"_n)) return 2;
  if (s.take("v4"_n)) return 4;
  return s.take("v8"_n) ? 8 : 1;
}

// The rows of a register or vector, and the width of the registers (4 or 8).
bool value_rows(Selector& s, const Operand& operand, Type type, unsigned length, bool target,
                std::vector<Row>& rows, unsigned& width) {
  const bool vector = operand.kind == Operand::Kind::kVector;
  if (vector != (length > 1) && !(vector && operand.count == 1)) return s.refuse_form();
  if (vector && (operand.count != length || operand.paren)) return s.refuse_form();
  width = type_bytes(type) == 8 ? 8 : 0;
  for (unsigned i = 0; i < length; ++i) {
    const Operand& each = vector ? s.element(operand, i) : operand;
    const unsigned bytes = s.register_bytes(each);
    const unsigned have = bytes == 0 ? 0 : bytes > 4 ? 8 : 4;
    if (bytes == 16) return s.refuse("has an operand of another size");
    if (have != 0 && width != 0 && have != width) return s.refuse("mixes sizes of registers");
    if (have != 0) width = have;
  }
  if (width == 0) width = type_bytes(type) > 4 ? 8 : 4;
  for (unsigned i = 0; i < length; ++i) {
    const Operand& each = vector ? s.element(operand, i) : operand;
    Row row;
    if (each.kind == Operand::Kind::kSink) {
      row = s.temporary(width);
    } else if (each.kind == Operand::Kind::kRegister) {
      if (target ? !s.destination(each, type, row, true) : !s.source(each, type, row, true)) {
        return false;
      }
    } else if (target ||
               !s.source(each, width == 8 && type_bytes(type) < 8 ? Type::kB64 : type, row)) {
      return s.refuse_form();
    }
    rows.push_back(row);
  }
  return true;
}

// Two 8-byte rows behind one another for each 128-bit register.
bool wide_rows(Selector& s, const Operand& operand, bool target, std::vector<Row>& rows) {
  Row row;
  if (operand.kind == Operand::Kind::kVector) return s.refuse_form();
  if (target ? !s.destination(operand, Type::kB128, row) : !s.source(operand, Type::kB128, row)) {
    return false;
  }
  rows = {row, Row{row.value + kRow64Bytes}};
  return true;
}

bool take_strong(Selector& s) {
  const bool strong = s.take_one({"volatile"_n, "relaxed"_n, "acquire"_n, "release"_n}) >= 0;
  s.take_memory_hints();
  return strong;
}

bool load_or_store(Selector& s, bool loads) {
  const bool strong = take_strong(s);
  const bool hinted = s.take("L2::cache_hint"_n);
  const Space space = take_space(s);
  const unsigned length = vector_length(s);
  Type type;
  if (!s.take_type(type)) return false;
  const std::size_t operands = hinted ? 3 : 2;
  if (!s.need(operands, operands) || type == Type::kPred) return s.refuse_form();
  const Operand& value = s.operand(loads ? 0 : 1);
  const Operand& place = s.operand(loads ? 1 : 0);
  std::vector<Row> rows;
  unsigned width = 8;
  Step step;
  if (type_bytes(type) == 16) {
    if (length != 1 || !wide_rows(s, value, loads, rows)) return s.refuse_form();
    type = Type::kB64;
  } else {
    if (type_bytes(type) * length > 32) return s.refuse_form();
    if (!value_rows(s, value, type, length, loads, rows, width)) return false;
  }
  if (!loads && place.kind == Operand::Kind::kParameter) {
    return s.refuse("writes to the function input parameter '" +
                    s.function().parameters[place.index].name + "'");
  }
  if (!s.address(place, space, step.a, step.value)) return false;
  const bool vector = rows.size() > 1;
  const Kind kind = vector ? (loads ? Kind::kLoadVector : Kind::kStoreVector)
                           : (loads ? Kind::kLoad : Kind::kStore);
  const Handler handler = width == 8 ? pick<std::uint64_t>(space, type, kind, strong)
                                     : pick<std::uint32_t>(space, type, kind, strong);
  if (!s.handler(handler, step)) return false;
  if (!loads && space == Space::kConst) return s.refuse_form();
  if (vector) {
    step.extra = s.add_rows(rows);
    step.q = static_cast<std::uint32_t>(rows.size());
    step.p = strong ? 1 : 0;
  } else {
    (loads ? step.d : step.b) = rows[0];
  }
  return s.emit(step);
}

}  // namespace

Space take_space(Selector& s) {
  if (s.take("global"_n)) return Space::kGlobal;
  if (s.take("shared"_n) || s.take("shared::cta"_n) || s.take("shared::cluster"_n)) {
    return Space::kShared;
  }
  if (s.take("local"_n)) return Space::kLocal;
  if (s.take("const"_n)) return Space::kConst;
  if (s.take("param"_n) || s.take("param::entry"_n) || s.take("param::func"_n)) {
    return Space::kParam;
  }
  return Space::kGeneric;
}

bool select_memory(Selector& s) {
  switch (s.opcode()) {
    case "ld"_n:
    case "ldu"_n:
      return load_or_store(s, true);
    case "st"_n:
      if (s.has("bulk"_n)) return s.refuse_form();
      if (s.has("async"_n)) return select_store_async(s);
      return load_or_store(s, false);
  }
  return select_address(s);
}

}  // namespace flyt::ptx
