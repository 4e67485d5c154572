// cp.async.bulk.tensor and cp.reduce.async.bulk.tensor: boxes of tensors, tiled. What other ways of
// encoding need is refused, or a fault where only the map tells of it.
#include <algorithm>

#include "softgpu/interpreter/bulk.h"
#include "softgpu/interpreter/reduction.h"
#include "softgpu/interpreter/tensor_map.h"

namespace flyt::ptx {
namespace {

constexpr std::uint64_t kLineBytes = 128;
constexpr std::uint64_t kRowAlignment = 16;  // Of the bytes before a box in a row of the tensor.
constexpr std::uint64_t kMapPart = 64;       // Maps are aligned to that.
constexpr std::uint8_t kFillWithNan = 1;

enum class Way : std::uint8_t { kLoad, kStore, kReduce };

// Step::value.
struct Options {
  Way way = Way::kLoad;
  std::uint8_t rank = 1;
  std::uint8_t operation = 0;
  bool multicast = false;

  std::int64_t packed() const {
    return static_cast<std::int64_t>(way) | std::int64_t{rank} << 8 |
           std::int64_t{operation} << 16 | std::int64_t{multicast} << 24;
  }
  static Options unpacked(std::int64_t value) {
    return {static_cast<Way>(value & 0xff), static_cast<std::uint8_t>(value >> 8 & 0xff),
            static_cast<std::uint8_t>(value >> 16 & 0xff), (value >> 24 & 1) != 0};
  }
};

unsigned element_bytes(TensorType type) {
  switch (type) {
    case TensorType::kU8:
      return 1;
    case TensorType::kU16:
    case TensorType::kF16:
    case TensorType::kBF16:
      return 2;
    case TensorType::kU32:
    case TensorType::kS32:
    case TensorType::kF32:
    case TensorType::kF32Ftz:
    case TensorType::kTF32:
    case TensorType::kTF32Ftz:
      return 4;
    case TensorType::kU64:
    case TensorType::kS64:
    case TensorType::kF64:
      return 8;
  }
  return 0;
}

Type reduced_type(TensorType type) {
  switch (type) {
    case TensorType::kU8:
    case TensorType::kU16:
      return Type::kU16;
    case TensorType::kU32:
      return Type::kU32;
    case TensorType::kS32:
      return Type::kS32;
    case TensorType::kU64:
      return Type::kU64;
    case TensorType::kS64:
      return Type::kS64;
    case TensorType::kF16:
      return Type::kF16;
    case TensorType::kBF16:
      return Type::kBF16;
    case TensorType::kF64:
      return Type::kF64;
    case TensorType::kF32:
    case TensorType::kF32Ftz:
    case TensorType::kTF32:
    case TensorType::kTF32Ftz:
      break;
  }
  return Type::kF32;
}

// The hardware fills with this pattern, whatever the type.
constexpr std::uint64_t kFilling = 0x7ff77ff77ff77ff7;

bool is_floating(TensorType type) { return type >= TensorType::kF16; }

// What hardware reduces: neither sums nor bits of .s64, and no bits of floating-point numbers.
bool may_reduce(std::uint32_t operation, TensorType type) {
  if (type == TensorType::kS64) return is_extremum(operation);
  return !is_floating(type) || !is_bitwise(operation);
}

// A value of 32 bits with the fraction of .tf32, to the nearest and ties away from zero.
std::uint32_t to_tf32(std::uint32_t bits) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kQuiet = 0x00400000;
  constexpr std::uint32_t kDropped = 0x1fff;
  const std::uint32_t size = bits & 0x7fffffff;
  if (size > kInfinity) return (bits | kQuiet) & ~kDropped;
  return (size < kInfinity ? bits + (kDropped + 1) / 2 : bits) & ~kDropped;
}

// Chunks of 16 bytes change places within their line, by the number of the line.
std::uint64_t swizzled(std::uint64_t place, TensorSwizzle swizzle) {
  const std::uint64_t line = place / kLineBytes;
  switch (swizzle) {
    case TensorSwizzle::kNone:
      break;
    case TensorSwizzle::k32:
      return place ^ (line & 1) << 4;
    case TensorSwizzle::k64:
      return place ^ (line & 3) << 4;
    case TensorSwizzle::k128:
      return place ^ (line & 7) << 4;
  }
  return place;
}

// One box of a tensor, and where it goes.
class Box {
 public:
  // False: it cannot be moved; the map may be anything.
  bool open(const TensorMap& map, const Options& options) {
    map_ = map;
    type_ = static_cast<TensorType>(map.type);
    if (map.magic != TensorMap::kMagic || map.mode != TensorMap::Mode::kTiled ||
        map.rank != options.rank || map.type > static_cast<std::uint8_t>(TensorType::kTF32Ftz) ||
        map.interleave != 0 || map.swizzle > static_cast<std::uint8_t>(TensorSwizzle::k128)) {
      return false;
    }
    bytes_ = element_bytes(type_);
    for (unsigned i = 0; i < map.rank; ++i) {
      // The innermost elements stand side by side.
      steps_[i] = i == 0 ? 1 : map.element_strides[i];
      if (steps_[i] == 0 || map.box[i] == 0 || map.box[i] > kTensorBoxMax) return false;
      counts_[i] = (map.box[i] + steps_[i] - 1) / steps_[i];
      bytes_ *= counts_[i];
      if (bytes_ > kSharedBytesMax) return false;
    }
    return true;
  }

  std::uint64_t bytes() const { return bytes_; }
  TensorType type() const { return type_; }

  // Hardware takes whole sixteens of bytes from a row.
  bool may_begin_at(const std::array<std::int32_t, kTensorRankMax>& corner) const {
    return std::int64_t{corner[0]} * element_bytes(type_) % std::int64_t{kRowAlignment} == 0;
  }

  // f(offset in the box, address in the tensor or 0 where that has nothing); false ends it.
  template <class F>
  bool each(const std::array<std::int32_t, kTensorRankMax>& corner, F&& f) const {
    const unsigned width = element_bytes(type_);
    std::array<std::uint32_t, kTensorRankMax> at{};
    for (std::uint64_t offset = 0; offset < bytes_; offset += width) {
      if (!f(offset, address_of(corner, at))) return false;
      for (unsigned i = 0; i < map_.rank && ++at[i] == counts_[i]; ++i) at[i] = 0;
    }
    return true;
  }

 private:
  std::uint64_t address_of(const std::array<std::int32_t, kTensorRankMax>& corner,
                           const std::array<std::uint32_t, kTensorRankMax>& at) const {
    std::uint64_t address = map_.address;
    for (unsigned i = 0; i < map_.rank; ++i) {
      const std::int64_t place = std::int64_t{corner[i]} + std::int64_t{at[i]} * steps_[i];
      if (place < 0 || place > map_.dimensions[i]) return 0;
      const std::uint64_t stride = i == 0 ? element_bytes(type_) : map_.strides[i - 1];
      address += static_cast<std::uint64_t>(place) * stride;
    }
    return address;
  }

  TensorMap map_;
  TensorType type_ = TensorType::kU8;
  std::uint64_t bytes_ = 0;
  std::array<std::uint32_t, kTensorRankMax> steps_{};
  std::array<std::uint32_t, kTensorRankMax> counts_{};
};

// Moves a box for one lane.
class Mover {
 public:
  Mover(Warp& warp, unsigned lane, const Options& options)
      : warp_(warp), lane_(lane), options_(options) {}

  bool read_map(std::uint64_t address) {
    TensorMap map;
    std::array<std::byte, sizeof map> bytes{};
    Access<Space::kGeneric> access(warp_, kMapPart, false);
    for (std::size_t i = 0; i < bytes.size(); i += kMapPart) {
      const std::byte* part = access.at(lane_, address + i);
      if (part == nullptr) return false;
      std::memcpy(bytes.data() + i, part, kMapPart);
    }
    std::memcpy(static_cast<void*>(&map), bytes.data(), sizeof map);
    swizzle_ = static_cast<TensorSwizzle>(map.swizzle);
    fill_ = map.fill == kFillWithNan ? kFilling : 0;
    if (!box_.open(map, options_)) return impossible();
    width_ = element_bytes(box_.type());
    rounds_ = options_.way == Way::kLoad &&
              (box_.type() == TensorType::kTF32 || box_.type() == TensorType::kTF32Ftz);
    if (options_.way != Way::kReduce) return true;
    if (!may_reduce(options_.operation, box_.type())) return impossible();
    reduce_ = reduction_of(options_.operation, reduced_type(box_.type()));
    return reduce_ != nullptr || impossible();
  }

  const Box& box() const { return box_; }

  // `shared`: an address in the window of shared memory.
  bool move(const std::array<std::int32_t, kTensorRankMax>& corner, std::uint64_t shared) {
    if (!box_.may_begin_at(corner)) return impossible();
    if (shared % kLineBytes != 0) {
      warp_.fault(FaultKind::kMisalignedAddress, Mask{1} << lane_, shared);
      return false;
    }
    Access<Space::kGeneric> near(warp_, width_, options_.way == Way::kLoad);
    Access<Space::kGeneric> far(warp_, width_, options_.way != Way::kLoad);
    return box_.each(corner, [&](std::uint64_t offset, std::uint64_t address) {
      std::byte* here = near.at(lane_, swizzled(shared + offset, swizzle_));
      if (here == nullptr) return false;
      if (address == 0) {
        if (options_.way == Way::kLoad) std::memcpy(here, &fill_, width_);
        return true;
      }
      std::byte* there = far.at(lane_, address);
      if (there == nullptr) return false;
      if (options_.way == Way::kLoad) load(here, there);
      if (options_.way == Way::kStore) std::memcpy(there, here, width_);
      if (options_.way == Way::kReduce) reduce_(there, here);
      return true;
    });
  }

 private:
  void load(std::byte* here, const std::byte* there) const {
    std::memcpy(here, there, width_);
    if (!rounds_) return;
    std::uint32_t bits = 0;
    std::memcpy(&bits, here, sizeof bits);
    bits = to_tf32(bits);
    std::memcpy(here, &bits, sizeof bits);
  }

  bool impossible() {
    warp_.fault(FaultKind::kIllegalInstruction, Mask{1} << lane_);
    return false;
  }

  Warp& warp_;
  const unsigned lane_;
  const Options options_;
  Box box_;
  TensorSwizzle swizzle_ = TensorSwizzle::kNone;
  std::uint64_t fill_ = 0;
  Reduce reduce_ = nullptr;
  unsigned width_ = 1;
  bool rounds_ = false;
};

// a: shared memory, b: the map, rows at `extra`: the corner; e: an mbarrier; d: blocks to reach.
Flow move_tensor(Warp& warp, const Step& step, Mask lanes) {
  const Options options = Options::unpacked(step.value);
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto operand = [&](Row row, unsigned lane) {
    return get<std::uint64_t>(warp.row(row), lane);
  };
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    Mover mover(warp, lane, options);
    if (!mover.read_map(operand(step.b, lane))) return Flow::kFault;
    std::array<std::int32_t, kTensorRankMax> corner{};
    for (unsigned i = 0; i < options.rank; ++i) {
      corner[i] = get<std::int32_t>(warp.row(Row{rows[i]}), lane);
    }
    const std::uint64_t shared = operand(step.a, lane);
    if (options.way != Way::kLoad || !options.multicast) {
      if (!mover.move(corner, windowed(shared, true))) return Flow::kFault;
      const std::uint64_t bytes = mover.box().bytes();
      const bool tells = options.way == Way::kLoad;
      if (tells && !tell(warp, lane, operand(step.e, lane), bytes)) return Flow::kFault;
      continue;
    }
    for (auto blocks = get<std::uint32_t>(warp.row(step.d), lane) & 0xffff; blocks != 0;
         blocks &= blocks - 1) {
      const auto rank = static_cast<unsigned>(std::countr_zero(blocks));
      if (!mover.move(corner, windowed(in_block(shared, rank), true))) return Flow::kFault;
      const std::uint64_t barrier = in_block(operand(step.e, lane), rank);
      if (!tell(warp, lane, barrier, mover.box().bytes())) return Flow::kFault;
    }
  }
  return Flow::kNext;
}

bool take_rank(Selector& s, Options& options) {
  const int dimensions = s.take_one({"1d"_n, "2d"_n, "3d"_n, "4d"_n, "5d"_n});
  options.rank = static_cast<std::uint8_t>(dimensions + 1);
  return dimensions >= 0 || s.refuse_form();
}

// [map, {corner}]
bool tensor_place(Selector& s, const Operand& operand, const Options& options, Step& step) {
  const bool pair = operand.memory && operand.kind == Operand::Kind::kVector && operand.count == 2;
  if (!pair) return s.refuse_form();
  Operand map = s.element(operand, 0);
  map.memory = true;
  const Operand& corner = s.element(operand, 1);
  if (corner.kind != Operand::Kind::kVector || corner.count != options.rank) return s.refuse_form();
  std::vector<Row> rows(options.rank);
  for (unsigned i = 0; i < options.rank; ++i) {
    if (!s.source(s.element(corner, i), Type::kB32, rows[i])) return false;
  }
  step.extra = s.add_rows(rows);
  return address_row(s, map, Space::kGeneric, step.b);
}

bool select_load(Selector& s, Options options, Step step, std::size_t hints) {
  options.multicast = s.take("multicast::cluster"_n);
  const bool shared = s.take("shared::cluster"_n) || s.take("shared::cta"_n);
  if (!shared || !s.take("global"_n) || !s.take("mbarrier::complete_tx::bytes"_n)) {
    return s.refuse_form();
  }
  const std::size_t count = 3 + (options.multicast ? 1 : 0) + hints;
  if (!s.need(count, count)) return false;
  step.value = options.packed();
  return address_row(s, s.operand(0), Space::kShared, step.a) &&
         tensor_place(s, s.operand(1), options, step) &&
         address_row(s, s.operand(2), Space::kShared, step.e) &&
         (!options.multicast || s.source(3, Type::kB16, step.d)) && s.emit(step);
}

bool select_store(Selector& s, Options options, Step step, std::size_t hints) {
  std::uint32_t operation = 0;
  if (options.way == Way::kReduce && !take_operation(s, operation)) return false;
  options.operation = static_cast<std::uint8_t>(operation);
  if (!s.take("global"_n) || !s.take("shared::cta"_n) || !s.take("bulk_group"_n)) {
    return s.refuse_form();
  }
  if (!s.need(2 + hints, 2 + hints)) return false;
  step.value = options.packed();
  return tensor_place(s, s.operand(0), options, step) &&
         address_row(s, s.operand(1), Space::kShared, step.a) && s.emit(step);
}

}  // namespace

bool select_tensor_copy(Selector& s, bool reduces) {
  Options options;
  Step step;
  step.handler = &move_tensor;
  s.take("tensor"_n);
  if (!take_rank(s, options)) return false;
  s.take("tile"_n);
  const std::size_t hints = s.take("L2::cache_hint"_n) ? 1 : 0;
  // Nothing is nearer than anything else here.
  if (s.take("prefetch"_n)) {
    return s.take("L2"_n) && s.take("global"_n) ? s.need(1, 2) : s.refuse_form();
  }
  options.way = reduces ? Way::kReduce : s.has("bulk_group"_n) ? Way::kStore : Way::kLoad;
  return options.way == Way::kLoad ? select_load(s, options, step, hints)
                                   : select_store(s, options, step, hints);
}

}  // namespace flyt::ptx
