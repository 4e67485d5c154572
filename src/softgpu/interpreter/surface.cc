// suld, sust, sured and suq: PTX ISA, "Surface Instructions".
#include <algorithm>

#include "base/bytes.h"
#include "softgpu/interpreter/block.h"
#include "softgpu/interpreter/image_operand.h"
#include "softgpu/interpreter/operators.h"
#include "softgpu/interpreter/select.h"
#include "softgpu/interpreter/texture.h"

namespace flyt::ptx {
namespace {

enum class Outside : std::uint8_t { kTrap, kClamp, kZero };

// Where the rows of an instruction stand behind Step::extra.
enum : std::uint32_t { kValue = 0, kLayer = 4, kCoordinate = 5, kRowCount = 8 };

// What the instruction says, packed into Step::value.
struct Options {
  std::uint32_t count = 1;  // Of elements.
  std::uint32_t bytes = 4;  // Of one element.
  Outside outside = Outside::kTrap;
  bool formatted = false;  // .p: x counts texels, and values are converted.
  bool layered = false;

  std::int64_t packed() const {
    return std::int64_t{count} | std::int64_t{bytes} << 8 |
           std::int64_t{static_cast<std::uint8_t>(outside)} << 16 | std::int64_t{formatted} << 24 |
           std::int64_t{layered} << 25;
  }
  static Options unpacked(std::int64_t value) {
    return {static_cast<std::uint32_t>(value & 0xff), static_cast<std::uint32_t>(value >> 8 & 0xff),
            static_cast<Outside>(value >> 16 & 0xff), (value >> 24 & 1) != 0,
            (value >> 25 & 1) != 0};
  }
};

enum class Found : std::uint8_t { kThere, kNothing, kTrap };

// The place of one access of `size` bytes.
Found find_place(const Surface& surface, const Options& options, std::uint32_t size,
                 std::uint32_t layer, std::array<std::int32_t, 3> at, std::byte*& place) {
  const ImageLevel& level = surface.level;
  const std::int64_t texel = surface.format.bytes();
  const std::int64_t row_bytes = std::int64_t{level.width} * texel;
  std::int64_t x = at[0];
  if (options.formatted) x *= texel;
  const bool flat = surface.shape == ImageShape::k1D || surface.shape == ImageShape::k1DLayered;
  const bool deep = surface.shape == ImageShape::k3D;
  std::int64_t y = flat ? 0 : at[1];
  std::int64_t z = deep ? at[2] : 0;
  // Faces of cubes are layers here.
  if (!deep && level.slices > 1) z = options.layered ? std::int64_t{layer} : 0;
  if (x % std::min<std::int64_t>(size, texel) != 0) return Found::kTrap;
  const bool inside =
      x >= 0 && x + size <= row_bytes && y >= 0 && y < level.height && z >= 0 && z < level.slices;
  if (!inside) {
    if (options.outside == Outside::kTrap) return Found::kTrap;
    if (options.outside == Outside::kZero || size > row_bytes) return Found::kNothing;
    x = std::clamp<std::int64_t>(x, 0, row_bytes - size);
    y = std::clamp<std::int64_t>(y, 0, std::int64_t{level.height} - 1);
    z = std::clamp<std::int64_t>(z, 0, std::int64_t{level.slices} - 1);
  }
  place = static_cast<std::byte*>(
      pointer_at(level.row(static_cast<std::uint64_t>(y), static_cast<std::uint64_t>(z)) +
                 static_cast<std::uint64_t>(x)));
  return Found::kThere;
}

// Calls access(lane, place, surface) for each lane that meets a texel, nothing(lane) for those that
// may miss.
template <class Act, class Nothing>
Flow each_place(Warp& warp, const Step& step, Mask lanes, Act&& access, Nothing&& nothing) {
  const Options options = Options::unpacked(step.value);
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto value = [&](std::uint32_t which, unsigned lane) {
    return get<std::uint32_t>(warp.row(Row{rows[which]}), lane);
  };
  Environment& environment = *warp.block().state().environment;
  Named<Surface> named([&](std::uint64_t handle) { return environment.surface(handle); });
  const std::byte* handles = warp.row(step.a);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const auto handle = get<std::uint64_t>(handles, lane);
    const Surface* surface = named.find(handle);
    if (surface == nullptr) {
      return warp.fault(FaultKind::kIllegalAddress, Mask{1} << lane, handle);
    }
    const std::uint32_t size =
        options.formatted ? surface->format.bytes() : options.count * options.bytes;
    std::array<std::int32_t, 3> at{};
    for (std::uint32_t i = 0; i < 3; ++i) {
      at[i] = static_cast<std::int32_t>(value(kCoordinate + i, lane));
    }
    std::byte* place = nullptr;
    switch (find_place(*surface, options, size, value(kLayer, lane), at, place)) {
      case Found::kThere:
        access(lane, place, *surface);
        break;
      case Found::kNothing:
        nothing(lane);
        break;
      case Found::kTrap:
        return warp.fault(FaultKind::kIllegalAddress, Mask{1} << lane, handle);
    }
  }
  return Flow::kNext;
}

// Registers hold up to 4 bytes in cells of 4, or 8.
void put_element(Warp& warp, std::uint32_t row, unsigned lane, std::uint32_t bytes,
                 const std::byte* from) {
  std::uint64_t value = 0;
  if (from != nullptr) std::memcpy(&value, from, bytes);
  if (bytes == 8) {
    put<std::uint64_t>(warp.row(Row{row}), lane, value);
  } else {
    put<std::uint32_t>(warp.row(Row{row}), lane, static_cast<std::uint32_t>(value));
  }
}

Flow load_surface(Warp& warp, const Step& step, Mask lanes) {
  const Options options = Options::unpacked(step.value);
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto put_all = [&](unsigned lane, const std::byte* from) {
    for (std::uint32_t i = 0; i < options.count; ++i) {
      put_element(warp, rows[kValue + i], lane, options.bytes,
                  from == nullptr ? nullptr : from + std::size_t{i} * options.bytes);
    }
  };
  return each_place(
      warp, step, lanes,
      [&](unsigned lane, const std::byte* place, const Surface&) { put_all(lane, place); },
      [&](unsigned lane) { put_all(lane, nullptr); });
}

Flow store_surface(Warp& warp, const Step& step, Mask lanes) {
  const Options options = Options::unpacked(step.value);
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto store = [&](unsigned lane, std::byte* place, const Surface& surface) {
    if (options.formatted) {
      TexelBits bits{};
      for (std::uint32_t i = 0; i < options.count; ++i) {
        bits[i] = get<std::uint32_t>(warp.row(Row{rows[kValue + i]}), lane);
      }
      return encode_texel(surface.format, bits, place);
    }
    for (std::uint32_t i = 0; i < options.count; ++i) {
      const std::byte* row = warp.row(Row{rows[kValue + i]});
      const std::uint64_t value = options.bytes == 8 ? get<std::uint64_t>(row, lane)
                                                     : std::uint64_t{get<std::uint32_t>(row, lane)};
      std::memcpy(place + std::size_t{i} * options.bytes, &value, options.bytes);
    }
  };
  return each_place(warp, step, lanes, store, [](unsigned) {});
}

struct Add {
  template <class T>
  static T apply(T a, T b) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Least {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Most {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};

template <class Op, class T>
Flow reduce_surface(Warp& warp, const Step& step, Mask lanes) {
  const std::uint32_t* rows = warp.rows(step.extra);
  return each_place(
      warp, step, lanes,
      [&](unsigned lane, std::byte* place, const Surface& surface) {
        // Operands that are no whole texels have no atomic place, and change nothing.
        if (surface.format.bytes() % sizeof(T) != 0) return;
        const T operand = get<T>(warp.row(Row{rows[kValue]}), lane);
        auto* word = static_cast<T*>(static_cast<void*>(place));
        T before = __atomic_load_n(word, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(word, &before, Op::apply(before, operand), true,
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
      },
      [](unsigned) {});
}

template <class Op>
Handler reduction(Type type) {
  if (type == Type::kS32) return &reduce_surface<Op, std::int32_t>;
  if (type == Type::kU32 || type == Type::kB32) return &reduce_surface<Op, std::uint32_t>;
  if (type == Type::kS64) return &reduce_surface<Op, std::int64_t>;
  if (type == Type::kU64 || type == Type::kB64) return &reduce_surface<Op, std::uint64_t>;
  return nullptr;
}

bool take_outside(Selector& s, Options& options) {
  const int outside = s.take_one({"trap"_n, "clamp"_n, "zero"_n});
  options.outside = outside < 0 ? Outside::kTrap : static_cast<Outside>(outside);
  return true;
}

// The rows of coordinates and layer, behind the four of values.
bool place_rows(Selector& s, const Operand& operand, const Geometry& geometry, Step& step,
                std::vector<Row>& rows) {
  Row zero;
  if (!s.constant(0, 4, zero)) return false;
  rows.assign(kRowCount, zero);
  ImagePlace place;
  if (!image_place(s, operand, geometry, Type::kS32, place)) return false;
  step.a = place.handle;
  if (geometry.layered) rows[kLayer] = place.layer;
  for (std::size_t i = 0; i < geometry.axes; ++i) rows[kCoordinate + i] = place.coordinates[i];
  return true;
}

// A register of 8 bytes holds only values of 8 bytes.
bool fits(Selector& s, const Operand& operand, std::uint32_t bytes) {
  return bytes == 8 || s.register_bytes(operand) <= 4;
}

bool value_rows(Selector& s, const Operand& operand, Type type, bool target, const Options& options,
                std::vector<Row>& rows) {
  for (std::uint32_t i = 0; i < options.count; ++i) {
    const Operand* each = element_of(s, operand, i);
    if (each == nullptr || !fits(s, *each, options.bytes)) return s.refuse_form();
    Row& row = rows[kValue + i];
    if (target ? !s.destination(*each, type, row, true) : !s.source(*each, type, row, true)) {
      return false;
    }
  }
  return true;
}

// suld.b and sust.b, sust.p.
bool select_access(Selector& s, bool loads) {
  Step step;
  Options options;
  options.formatted = s.take("p"_n);
  if (!options.formatted && !s.take("b"_n)) return s.refuse_form();
  if (options.formatted && loads) return s.refuse_form();
  s.take_memory_hints();
  Geometry geometry;
  if (!take_geometry(s, geometry)) return s.refuse_form();
  options.layered = geometry.layered;
  options.count = s.take("v4"_n) ? 4 : s.take("v2"_n) ? 2 : 1;
  Type type;
  if (!s.take_type(type)) return false;
  options.bytes = type_bytes(type);
  const bool good = options.formatted ? options.bytes == 4
                                      : options.bytes >= 1 && options.bytes <= 8 &&
                                            options.bytes * options.count <= 16;
  if (!good || !take_outside(s, options) || !s.need(2, 2)) return s.refuse_form();
  std::vector<Row> rows;
  if (!place_rows(s, s.operand(loads ? 1 : 0), geometry, step, rows) ||
      !value_rows(s, s.operand(loads ? 0 : 1), type, loads, options, rows)) {
    return false;
  }
  step.handler = loads ? &load_surface : &store_surface;
  step.value = options.packed();
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

bool select_reduction(Selector& s) {
  Step step;
  Options options;
  options.formatted = s.take("p"_n);
  if (!options.formatted && !s.take("b"_n)) return s.refuse_form();
  const int op = s.take_one({"add"_n, "min"_n, "max"_n, "and"_n, "or"_n});
  Geometry geometry;
  Type type;
  if (op < 0 || !take_geometry(s, geometry) || !s.take_type(type)) return s.refuse_form();
  options.layered = geometry.layered;
  options.bytes = type_bytes(type);
  take_outside(s, options);
  // The texel is as large as the operand wherever that makes sense.
  options.formatted = options.formatted && options.bytes == 4;
  Handler handler = nullptr;
  if (op == 0) handler = reduction<Add>(type);
  if (op == 1) handler = reduction<Least>(type);
  if (op == 2) handler = reduction<Most>(type);
  if (op == 3) handler = reduction<And>(type);
  if (op == 4) handler = reduction<Or>(type);
  std::vector<Row> rows;
  if (!s.handler(handler, step) || !s.need(2, 2) ||
      !place_rows(s, s.operand(0), geometry, step, rows) ||
      !value_rows(s, s.operand(1), type, false, options, rows)) {
    return false;
  }
  step.value = options.packed();
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

enum class Query : std::uint32_t { kWidth, kHeight, kDepth, kLayers };

std::uint32_t answer(const Surface& surface, Query query) {
  const bool layered = is_layered(surface.shape);
  switch (query) {
    case Query::kWidth:
      return surface.level.width;
    case Query::kHeight:
      return surface.level.height;
    case Query::kDepth:
      return surface.shape == ImageShape::k3D ? surface.level.slices : 1;
    case Query::kLayers:
      return layered ? surface.level.slices : 1;
  }
  return 0;
}

Flow query(Warp& warp, const Step& step, Mask lanes) {
  Environment& environment = *warp.block().state().environment;
  Named<Surface> named([&](std::uint64_t handle) { return environment.surface(handle); });
  const std::byte* handles = warp.row(step.a);
  std::byte* d = warp.row(step.d);
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const auto handle = get<std::uint64_t>(handles, lane);
    const Surface* surface = named.find(handle);
    if (surface == nullptr) {
      return warp.fault(FaultKind::kIllegalAddress, Mask{1} << lane, handle);
    }
    put<std::uint32_t>(d, lane, answer(*surface, static_cast<Query>(step.extra)));
  }
  return Flow::kNext;
}

bool select_query(Selector& s) {
  Step step;
  const int what = s.take_one({"width"_n, "height"_n, "depth"_n, "array_size"_n});
  if (what < 0 || !s.take("b32"_n) || !s.need(2, 2)) return s.refuse_form();
  step.handler = &query;
  step.extra = static_cast<std::uint32_t>(what);
  return s.destination(0, Type::kB32, step.d) && image_handle(s, s.operand(1), step.a) &&
         s.emit(step);
}

}  // namespace

bool select_surface(Selector& s) {
  switch (s.opcode()) {
    case "suld"_n:
      return select_access(s, true);
    case "sust"_n:
      return select_access(s, false);
    case "sured"_n:
      return select_reduction(s);
    case "suq"_n:
      return select_query(s);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
