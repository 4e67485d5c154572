// tex, tld4 and txq: PTX ISA, "Texture Instructions". A texture is named by a 64-bit handle: that
// of an object, or the address of a .texref variable.
#include "softgpu/interpreter/texture.h"

#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/image_operand.h"
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/select.h"

namespace flyt::ptx {
namespace {

// What the instruction says, packed into Step::value.
struct Options {
  std::int64_t bits = 0;

  static constexpr std::int64_t kInteger = 1;  // Coordinates.
  static constexpr std::int64_t kHalves = 2;   // Results are .f16.
  static constexpr std::int64_t kPairs = 4;    // Results are .f16x2.
  static constexpr std::int64_t kGather = 8;   // tld4.
  static constexpr unsigned kMipShift = 8;
  static constexpr unsigned kComponentShift = 12;

  bool has(std::int64_t option) const { return (bits & option) != 0; }
  TextureRequest::Mip mip() const {
    return static_cast<TextureRequest::Mip>(bits >> kMipShift & 3);
  }
  unsigned component() const { return static_cast<unsigned>(bits >> kComponentShift & 3); }
};

// Where the rows of an instruction stand behind Step::extra.
enum : std::uint32_t {
  kResult = 0,  // Four.
  kLayer = 4,
  kCoordinate = 5,  // Three.
  kLevel = 8,
  kGradientX = 9,   // Three.
  kGradientY = 12,  // Three.
  kOffset = 15,     // Three.
  kRowCount = 18,
};

class Rows {
 public:
  Rows(Warp& warp, const Step& step) : warp_(warp), rows_(warp.rows(step.extra)) {}
  template <class T>
  T get(std::uint32_t which, unsigned lane) const {
    return ptx::get<T>(warp_.row(Row{rows_[which]}), lane);
  }
  template <class T>
  void put(std::uint32_t which, unsigned lane, T value) const {
    ptx::put<T>(warp_.row(Row{rows_[which]}), lane, value);
  }

 private:
  Warp& warp_;
  const std::uint32_t* rows_;
};

TextureRequest request_of(const Rows& rows, Options options, unsigned lane) {
  TextureRequest request;
  request.integer = options.has(Options::kInteger);
  request.layer = rows.get<std::uint32_t>(kLayer, lane);
  request.mip = options.mip();
  for (std::uint32_t axis = 0; axis < 3; ++axis) {
    const auto raw = rows.get<std::uint32_t>(kCoordinate + axis, lane);
    if (request.integer) {
      request.texel[axis] = static_cast<std::int32_t>(raw);
    } else {
      request.at[axis] = float_of(raw);
    }
    request.offset[axis] = rows.get<std::int32_t>(kOffset + axis, lane);
    request.dx[axis] = rows.get<float>(kGradientX + axis, lane);
    request.dy[axis] = rows.get<float>(kGradientY + axis, lane);
  }
  const auto level = rows.get<std::uint32_t>(kLevel, lane);
  request.level =
      request.integer ? static_cast<float>(static_cast<std::int32_t>(level)) : float_of(level);
  return request;
}

void deliver(const Rows& rows, Options options, std::uint32_t count, unsigned lane,
             const TexelBits& bits) {
  const auto half = [&](unsigned i) { return std::uint32_t{to_half(float_of(bits[i])).bits}; };
  for (std::uint32_t i = 0; i < count; ++i) {
    if (options.has(Options::kPairs)) {
      rows.put<std::uint32_t>(kResult + i, lane, half(2 * i) | half(2 * i + 1) << 16);
    } else if (options.has(Options::kHalves)) {
      rows.put<std::uint16_t>(kResult + i, lane, static_cast<std::uint16_t>(half(i)));
    } else {
      rows.put<std::uint32_t>(kResult + i, lane, bits[i]);
    }
  }
}

// a: the handle; extra: rows; q: how many results; p: a predicate that says that all was there.
Flow fetch(Warp& warp, const Step& step, Mask lanes) {
  const Rows rows(warp, step);
  const Options options{step.value};
  const std::byte* handles = warp.row(step.a);
  const MemoryMap& memory = warp.block().memory();
  Environment& environment = *warp.block().state().environment;
  Named<Texture> named([&](std::uint64_t handle) { return environment.texture(handle); });
  const Mask all = lanes;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const auto handle = get<std::uint64_t>(handles, lane);
    const Texture* texture = named.find(handle);
    if (texture == nullptr) {
      return warp.fault(FaultKind::kIllegalAddress, Mask{1} << lane, handle);
    }
    const TextureRequest request = request_of(rows, options, lane);
    TexelBits bits{};
    const bool good = options.has(Options::kGather)
                          ? gather(*texture, memory, request, options.component(), bits)
                          : sample(*texture, memory, request, bits);
    if (!good) {
      return warp.fault(FaultKind::kIllegalAddress, Mask{1} << lane, texture->levels[0].address);
    }
    deliver(rows, options, step.q, lane, bits);
  }
  warp.set_predicate(step.p, all, kAllLanes);
  return Flow::kNext;
}

// The rows of up to three values; the missing ones are zero.
bool put_vector(Selector& s, const Operand& operand, Type type, std::size_t wanted,
                std::vector<Row>& rows, std::uint32_t first) {
  for (std::size_t i = 0; i < wanted; ++i) {
    const Operand* each = element_of(s, operand, i);
    if (each == nullptr) return s.refuse("has a vector with too few elements");
    if (!s.source(*each, type, rows[first + i])) return false;
  }
  return true;
}

bool put_results(Selector& s, const Operand& operand, Type type, Step& step,
                 std::vector<Row>& rows) {
  const std::size_t count = operand.kind == Operand::Kind::kVector ? operand.count : 1;
  const bool pairs = type == Type::kF16x2;
  if (count > (pairs ? 2u : 4u)) return s.refuse_form();
  for (std::size_t i = 0; i < count; ++i) {
    if (!s.destination(*element_of(s, operand, i), pairs ? Type::kB32 : type, rows[kResult + i])) {
      return false;
    }
  }
  step.q = static_cast<std::uint32_t>(count);
  return true;
}

bool good_result(Type type) {
  return type == Type::kU32 || type == Type::kS32 || type == Type::kB32 || type == Type::kF32 ||
         type == Type::kF16 || type == Type::kF16x2;
}

// Level, gradients and offsets, which follow the place in that order.
bool put_details(Selector& s, std::size_t next, const Geometry& geometry, Options options,
                 std::vector<Row>& rows) {
  const Type type = options.has(Options::kInteger) ? Type::kS32 : Type::kF32;
  if (options.mip() == TextureRequest::Mip::kLevel) {
    if (!s.source(next++, type, rows[kLevel])) return false;
  } else if (options.mip() == TextureRequest::Mip::kGradient) {
    if (!put_vector(s, s.operand(next), Type::kF32, geometry.axes, rows, kGradientX) ||
        !put_vector(s, s.operand(next + 1), Type::kF32, geometry.axes, rows, kGradientY)) {
      return false;
    }
    next += 2;
  }
  if (next < s.operand_count()) {
    const Operand& offsets = s.operand(next++);
    if (offsets.kind != Operand::Kind::kVector) return s.refuse("compares depths");
    if (!put_vector(s, offsets, Type::kS32, geometry.axes, rows, kOffset)) return false;
  }
  return next == s.operand_count() || s.refuse("compares depths");
}

bool select_fetch(Selector& s, bool gathers) {
  Step step;
  Options options;
  const int mip = s.take_one({"base"_n, "level"_n, "grad"_n});
  if (mip > 0) options.bits |= std::int64_t{mip} << Options::kMipShift;
  if (gathers) {
    const int component = s.take_one({"r"_n, "g"_n, "b"_n, "a"_n});
    if (component < 0) return s.refuse_form();
    options.bits |= Options::kGather | std::int64_t{component} << Options::kComponentShift;
  }
  Geometry geometry;
  if (!take_geometry(s, geometry)) return s.refuse_form();
  if (!s.take("v4"_n)) s.take("v2"_n);
  Type result;
  Type coordinate;
  if (!s.take_type(result) || !s.take_type(coordinate) || !good_result(result)) {
    return s.refuse_form();
  }
  if (coordinate != Type::kS32 && coordinate != Type::kF32) return s.refuse_form();
  if (coordinate == Type::kS32) options.bits |= Options::kInteger;
  if (result == Type::kF16) options.bits |= Options::kHalves;
  if (result == Type::kF16x2) options.bits |= Options::kPairs;
  if (!s.need(2, 7)) return false;
  Row zero;
  if (!s.constant(0, 4, zero)) return false;
  std::vector<Row> rows(kRowCount, zero);
  if (!put_results(s, s.operand(0), result, step, rows)) return false;
  std::size_t next = 1;
  step.p = kNoPredicate;
  if (s.operand(next).paired) {
    if (!s.predicate_destination(s.operand(next++), step.p)) return false;
  }
  ImagePlace place;
  if (!image_place(s, s.operand(next++), geometry, coordinate, place)) return false;
  step.a = place.handle;
  if (geometry.layered) rows[kLayer] = place.layer;
  for (std::size_t i = 0; i < geometry.axes; ++i) rows[kCoordinate + i] = place.coordinates[i];
  if (!put_details(s, next, geometry, options, rows)) return false;
  step.handler = &fetch;
  step.value = options.bits;
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

enum class Query : std::uint32_t {
  kWidth,
  kHeight,
  kDepth,
  kLayers,
  kLevels,
  kNormalized,
};

std::uint32_t answer(const Texture& texture, Query query, std::int32_t lod) {
  const auto last = static_cast<std::int32_t>(texture.levels.size()) - 1;
  const ImageLevel& level = texture.levels[static_cast<std::size_t>(lod < 0      ? 0
                                                                    : lod > last ? last
                                                                                 : lod)];
  switch (query) {
    case Query::kWidth:
      return level.width;
    case Query::kHeight:
      return level.height;
    case Query::kDepth:
      return texture.shape == ImageShape::k3D ? level.slices : 1;
    case Query::kLayers:
      return texture.layers();
    case Query::kLevels:
      return static_cast<std::uint32_t>(texture.levels.size());
    case Query::kNormalized:
      return texture.sampler.normalized ? 1 : 0;
  }
  return 0;
}

// extra: what is asked; b: the level.
Flow query(Warp& warp, const Step& step, Mask lanes) {
  Environment& environment = *warp.block().state().environment;
  Named<Texture> named([&](std::uint64_t handle) { return environment.texture(handle); });
  const std::byte* handles = warp.row(step.a);
  const std::byte* levels = warp.row(step.b);
  std::byte* d = warp.row(step.d);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const auto handle = get<std::uint64_t>(handles, lane);
    const Texture* texture = named.find(handle);
    if (texture == nullptr) {
      return warp.fault(FaultKind::kIllegalAddress, Mask{1} << lane, handle);
    }
    put<std::uint32_t>(
        d, lane, answer(*texture, static_cast<Query>(step.extra), get<std::int32_t>(levels, lane)));
  }
  return Flow::kNext;
}

bool select_query(Selector& s) {
  Step step;
  const bool level = s.take("level"_n);
  const int what = s.take_one({"width"_n, "height"_n, "depth"_n, "array_size"_n,
                               "num_mipmap_levels"_n, "normalized_coords"_n});
  if (what < 0 || !s.take("b32"_n)) return s.refuse_form();
  if (!s.need(level ? 3 : 2, level ? 3 : 2)) return false;
  step.handler = &query;
  step.extra = static_cast<std::uint32_t>(what);
  if (level ? !s.source(2, Type::kB32, step.b) : !s.constant(0, 4, step.b)) return false;
  return s.destination(0, Type::kB32, step.d) && image_handle(s, s.operand(1), step.a) &&
         s.emit(step);
}

}  // namespace

bool select_texture(Selector& s) {
  switch (s.opcode()) {
    case "tex"_n:
      return select_fetch(s, false);
    case "tld4"_n:
      return select_fetch(s, true);
    case "txq"_n:
      return select_query(s);
  }
  return select_surface(s);
}

}  // namespace flyt::ptx
