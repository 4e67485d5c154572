// tensormap.replace and tensormap.cp_fenceproxy: a tensor's map is changed in memory, and put where
// copies read it.
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/select.h"
#include "softgpu/interpreter/tensor_map.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kPartBytes = 64;  // Maps are aligned to that.

enum class Field : std::uint8_t {
  kAddress,
  kRank,
  kBox,
  kDimension,
  kStride,
  kElementStride,
  kType,
  kInterleave,
  kSwizzle,
  kFill
};

// PTX numbers the types of elements otherwise than CUDA's maps.
constexpr TensorType kTypes[] = {TensorType::kU8,     TensorType::kU16,  TensorType::kU32,
                                 TensorType::kS32,    TensorType::kU64,  TensorType::kS64,
                                 TensorType::kF16,    TensorType::kF32,  TensorType::kF32Ftz,
                                 TensorType::kF64,    TensorType::kBF16, TensorType::kTF32,
                                 TensorType::kTF32Ftz};

// How many values each may have, where it is an immediate; 0: it is a register.
std::uint64_t values_of(Field field) {
  switch (field) {
    case Field::kType:
      return std::size(kTypes);
    case Field::kInterleave:
      return 3;
    case Field::kSwizzle:
      return 4;
    case Field::kFill:
      return 2;
    case Field::kAddress:
    case Field::kRank:
    case Field::kBox:
    case Field::kDimension:
    case Field::kStride:
    case Field::kElementStride:
      break;
  }
  return 0;
}

// How many of it there are; 0: one, without an ordinal.
std::uint64_t ordinals_of(Field field) {
  if (field == Field::kStride) return kTensorRankMax - 1;
  const bool many =
      field == Field::kBox || field == Field::kDimension || field == Field::kElementStride;
  return many ? kTensorRankMax : 0;
}

void replace(TensorMap& map, Field field, std::size_t ordinal, std::uint64_t value) {
  const auto byte = static_cast<std::uint8_t>(value);
  switch (field) {
    case Field::kAddress:
      map.address = value;
      return;
    case Field::kRank:
      map.rank = static_cast<std::uint8_t>(byte + 1);
      return;
    case Field::kBox:
      map.box[ordinal] = static_cast<std::uint16_t>(value);
      return;
    case Field::kDimension:
      map.dimensions[ordinal] = static_cast<std::uint32_t>(value - 1);
      return;
    case Field::kStride:
      map.strides[ordinal] = value;
      return;
    case Field::kElementStride:
      map.element_strides[ordinal] = byte;
      return;
    case Field::kType:
      map.type = static_cast<std::uint8_t>(kTypes[value]);
      return;
    case Field::kInterleave:
      map.interleave = byte;
      return;
    case Field::kSwizzle:
      map.swizzle = byte;
      return;
    case Field::kFill:
      map.fill = byte;
      return;
  }
}

template <Space S>
bool find(Access<S>& access, unsigned lane, std::uint64_t address, std::byte* (&parts)[2]) {
  parts[0] = access.at(lane, address);
  parts[1] = parts[0] == nullptr ? nullptr : access.at(lane, address + kPartBytes);
  return parts[1] != nullptr;
}

TensorMap load(const std::byte* const (&parts)[2]) {
  std::array<std::byte, sizeof(TensorMap)> bytes;
  std::memcpy(bytes.data(), parts[0], kPartBytes);
  std::memcpy(bytes.data() + kPartBytes, parts[1], kPartBytes);
  return std::bit_cast<TensorMap>(bytes);
}

void store(const TensorMap& map, std::byte* const (&parts)[2]) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(TensorMap)>>(map);
  std::memcpy(parts[0], bytes.data(), kPartBytes);
  std::memcpy(parts[1], bytes.data() + kPartBytes, kPartBytes);
}

// a: the map, value: an offset; b: what the field becomes, as 64 bits; p: the field, q: which of
// it.
template <Space S>
Flow replace_field(Warp& warp, const Step& step, Mask lanes) {
  Access<S> access(warp, kPartBytes, true);
  const std::byte* a = warp.row(step.a);
  const std::byte* b = warp.row(step.b);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    std::byte* parts[2];
    const std::uint64_t place =
        get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(step.value);
    if (!find(access, lane, place, parts)) return access.failed();
    TensorMap map = load(parts);
    replace(map, static_cast<Field>(step.p), step.q, get<std::uint64_t>(b, lane));
    store(map, parts);
  }
  return Flow::kNext;
}

bool take_field(Selector& s, Field& field) {
  const int found = s.take_one({"global_address"_n, "rank"_n, "box_dim"_n, "global_dim"_n,
                                "global_stride"_n, "element_stride"_n, "elemtype"_n,
                                "interleave_layout"_n, "swizzle_mode"_n, "fill_mode"_n});
  if (found >= 0) field = static_cast<Field>(found);
  return found >= 0;
}

bool select_replace(Selector& s) {
  Field field = Field::kAddress;
  if (!s.take("tile"_n) || !take_field(s, field)) return s.refuse_form();
  const Space space = take_space(s);
  if (!s.take("b1024"_n)) return s.refuse_form();
  Type type;
  if (!s.take_type(type)) return false;
  const bool wide = field == Field::kAddress || field == Field::kStride;
  if (type != (wide ? Type::kB64 : Type::kB32)) return s.refuse_form();
  const std::size_t value_at = ordinals_of(field) != 0 ? 2 : 1;
  if (!s.need(value_at + 1, value_at + 1)) return false;
  std::uint64_t ordinal = 0;
  if (value_at == 2 && !s.integer(s.operand(1), ordinal)) return false;
  if (value_at == 2 && ordinal >= ordinals_of(field)) return s.refuse("names no such dimension");
  Step step;
  step.p = static_cast<std::uint32_t>(field);
  step.q = static_cast<std::uint32_t>(ordinal);
  if (!s.address(s.operand(0), space, step.a, step.value)) return false;
  std::uint64_t fixed = 0;
  if (values_of(field) != 0) {
    if (!s.integer(s.operand(value_at), fixed)) return false;
    if (fixed >= values_of(field)) return s.refuse("has a value that is not supported");
    if (!s.constant(fixed, 8, step.b)) return false;
  } else if (!s.source(value_at, type, step.b)) {
    return false;
  } else if (!wide) {
    Step widen;
    widen.handler = &widen_address;
    widen.a = step.b;
    widen.d = step.b = s.temporary(8);
    if (!s.emit_unguarded(widen)) return false;
  }
  if (space == Space::kGlobal) step.handler = &replace_field<Space::kGlobal>;
  if (space == Space::kShared) step.handler = &replace_field<Space::kShared>;
  if (space == Space::kGeneric) step.handler = &replace_field<Space::kGeneric>;
  return s.handler(step.handler, step) && s.emit(step);
}

// a: in global, b: in shared memory; every lane of the warp names the same.
Flow publish(Warp& warp, const Step& step, Mask lanes) {
  const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
  Access<Space::kGlobal> to(warp, kPartBytes, true);
  Access<Space::kShared> from(warp, kPartBytes, false);
  std::byte* targets[2];
  std::byte* sources[2];
  if (!find(to, lane, get<std::uint64_t>(warp.row(step.a), lane), targets)) return to.failed();
  if (!find(from, lane, get<std::uint64_t>(warp.row(step.b), lane), sources)) {
    return from.failed();
  }
  store(load(sources), targets);
  return Flow::kNext;
}

bool select_publish(Selector& s) {
  s.take("sync"_n);
  s.take("aligned"_n);
  s.take("release"_n);
  s.take_one({"cta"_n, "cluster"_n, "gpu"_n, "sys"_n});
  std::uint64_t bytes = 0;
  if (!s.take("global"_n) || !s.take("shared::cta"_n) || !s.take("tensormap::generic"_n) ||
      !s.need(3, 3) || !s.integer(s.operand(2), bytes) || bytes != sizeof(TensorMap)) {
    return s.refuse_form();
  }
  Step step;
  step.handler = &publish;
  std::int64_t to = 0;
  std::int64_t from = 0;
  if (!s.address(s.operand(0), Space::kGlobal, step.a, to) ||
      !s.address(s.operand(1), Space::kShared, step.b, from)) {
    return false;
  }
  return to == 0 && from == 0 ? s.emit(step) : s.refuse_form();
}

}  // namespace

bool select_tensor_map(Selector& s) {
  if (s.take("replace"_n)) return select_replace(s);
  if (s.take("cp_fenceproxy"_n)) return select_publish(s);
  return s.refuse_form();
}

}  // namespace flyt::ptx
