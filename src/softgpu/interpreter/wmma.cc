// wmma.load, wmma.store, wmma.mma. PTX leaves open how fragments lie, but programs know: as those
// of mma do, tile by tile. Where registers are left over their elements are there again.
#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/matrix.h"

namespace flyt::ptx {
namespace {

enum class Part : std::uint8_t { kA, kB, kC };

struct Fragment {
  Part part = Part::kA;
  Element element = Element::kF16;
  unsigned rows = 16;
  unsigned columns = 16;
  unsigned registers = 8;

  unsigned per_register() const {
    return element == Element::kF64 ? 1 : std::max(1u, 32 / element_bits(element));
  }
  // Registers that hold every element once.
  unsigned distinct() const { return std::max(1u, rows * columns / kLanes / per_register()); }
};

// How many registers PTX gives a fragment.
std::optional<Fragment> fragment_of(Part part, Element element, const Shape& shape) {
  Fragment made{part, element, shape.m, shape.n, 0};
  if (part == Part::kA) made.columns = shape.k;
  if (part == Part::kB) made.rows = shape.k;
  if (made.rows * made.columns > kMatrixCells) return std::nullopt;
  const bool factor = element == Element::kS4 || element == Element::kU4 || element == Element::kB1;
  if (factor && part == Part::kC) return std::nullopt;
  made.registers = made.distinct();
  // Fragments of .f16 factors hold every element twice.
  if (part != Part::kC && element == Element::kF16) made.registers = 8;
  if (made.registers < made.distinct() || made.registers > 16) return std::nullopt;
  return made;
}

std::int64_t pack(const Fragment& f, bool by_column) {
  return static_cast<std::int64_t>(f.element) | static_cast<std::int64_t>(f.rows) << 8 |
         static_cast<std::int64_t>(f.columns) << 16 | static_cast<std::int64_t>(f.registers) << 24 |
         std::int64_t{by_column} << 32 | static_cast<std::int64_t>(f.part) << 40;
}
Fragment unpack(std::int64_t value) {
  const auto byte = [&](int place) { return static_cast<unsigned>(value >> place * 8 & 0xff); };
  return {static_cast<Part>(byte(5)), static_cast<Element>(byte(0)), byte(1), byte(2), byte(3)};
}

struct Cell {
  unsigned row = 0;
  unsigned column = 0;
};

// Element `e` of register `r` of a lane. Tiles have sixteen rows, or eight, and eight columns of
// the product.
Cell cell_of(const Fragment& f, unsigned lane, unsigned r, unsigned e) {
  constexpr unsigned kSide = 8;
  // A product of eight rows and four times the columns is the transposed one, its factors changed.
  if (f.part != Part::kA && f.columns == 4 * kSide) {
    Fragment turned = f;
    if (f.part == Part::kB) turned.part = Part::kA;
    std::swap(turned.rows, turned.columns);
    const Cell cell = cell_of(turned, lane, r, e);
    return {cell.column, cell.row};
  }
  const unsigned group = lane / 4;
  const unsigned member = lane % 4;
  const unsigned per = f.per_register();
  const unsigned halves = std::min(f.rows, 2 * kSide) / kSide;
  const unsigned stretch = 4 * per;  // So many factors are in one register of a group's lanes.
  switch (f.part) {
    case Part::kA: {
      const unsigned in_tile = halves * (f.columns / stretch);
      const unsigned q = r % in_tile;
      return {r / in_tile * 2 * kSide + group + q % halves * kSide,
              member * per + e + q / halves * stretch};
    }
    case Part::kB: {
      const unsigned in_tile = f.rows / stretch;
      return {member * per + e + r % in_tile * stretch, r / in_tile * kSide + group};
    }
    case Part::kC:
      break;
  }
  const unsigned place = r * per + e;
  const unsigned in_tile = 2 * halves;
  const unsigned tile = place / in_tile;
  const unsigned side_by_side = f.columns / kSide;
  return {tile / side_by_side * 2 * kSide + group + place % in_tile / 2 * kSide,
          tile % side_by_side * kSide + member * 2 + place % 2};
}

// f(row, column, lane, register, element of it)
template <class F>
void each_element(const Fragment& fragment, unsigned registers, F&& f) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned r = 0; r < registers; ++r) {
      for (unsigned e = 0; e < fragment.per_register(); ++e) {
        const Cell cell = cell_of(fragment, lane, r % fragment.distinct(), e);
        f(cell.row, cell.column, lane, r, e);
      }
    }
  }
}

std::uint64_t with_element(std::uint64_t before, std::uint64_t bits, unsigned width,
                           unsigned index) {
  if (width == 64) return bits;
  const std::uint64_t mask = ((1ull << width) - 1) << index * width;
  return (before & ~mask) | (bits << index * width & mask);
}

// a: the address (the same in all lanes), value: Fragment, b: the stride in elements, p: 1 to
// store, e (low byte of q): log2 of nothing else.
template <bool Stores>
Flow move_fragment(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const Fragment fragment = unpack(step.value);
  const bool by_column = (step.value >> 32 & 1) != 0;
  const std::uint32_t* rows = warp.rows(step.extra);
  const auto leader = static_cast<unsigned>(std::countr_zero(lanes));
  const std::uint64_t base = get<std::uint64_t>(warp.row(step.a), leader);
  std::uint64_t stride = get<std::uint32_t>(warp.row(step.b), leader);
  // Single bits are moved in words.
  if (fragment.element == Element::kB1) stride /= element_bits(Element::kB1);
  const unsigned width = element_bits(fragment.element);
  const unsigned bytes = std::max(1u, width / 8);
  Access<Space::kGeneric> access(warp, bytes, Stores);
  bool ok = true;
  const unsigned registers = Stores ? fragment.distinct() : fragment.registers;
  const auto move = [&](unsigned i, unsigned j, unsigned lane, unsigned r, unsigned e) {
    if (!ok) return;
    const std::uint64_t index = by_column ? j * stride + i : i * stride + j;
    std::byte* place = access.at(leader, base + index * width / 8);
    ok = place != nullptr;
    if (!ok) return;
    const std::uint64_t before = get_register(warp, Row{rows[r]}, lane);
    std::uint64_t bits = before >> e * width % 64;
    if constexpr (Stores) {
      std::memcpy(place, &bits, bytes);
    } else {
      bits = 0;
      std::memcpy(&bits, place, bytes);
      bits >>= index * width % 8;
      put_register(warp, Row{rows[r]}, lane, with_element(before, bits, width, e));
    }
  };
  each_element(fragment, registers, move);
  return ok ? flow : Flow::kFault;
}

void read_fragment(Warp& warp, const std::uint32_t* rows, const Fragment& fragment, Matrix& into) {
  const unsigned width = element_bits(fragment.element);
  const auto read = [&](unsigned i, unsigned j, unsigned lane, unsigned r, unsigned e) {
    into.at(i, j) =
        decode_element(fragment.element, get_register(warp, Row{rows[r]}, lane) >> e * width % 64);
  };
  each_element(fragment, fragment.distinct(), read);
}

struct Operation {
  Product product;
  Fragment a, b, c, d;
};

Operation operation_of(std::int64_t value) {
  const auto byte = [&](int place) { return static_cast<unsigned>(value >> place * 8 & 0xff); };
  Operation o;
  const Shape shape{byte(0), byte(1), byte(2)};
  o.a = *fragment_of(Part::kA, static_cast<Element>(byte(3)), shape);
  o.b = *fragment_of(Part::kB, static_cast<Element>(byte(4)), shape);
  o.c = *fragment_of(Part::kC, static_cast<Element>(byte(5) >> 4), shape);
  o.d = *fragment_of(Part::kC, static_cast<Element>(byte(5) & 15), shape);
  o.product = {shape, o.d.element, static_cast<Factors>(byte(6) >> 1), (byte(6) & 1) != 0,
               static_cast<Rounding>(byte(7))};
  return o;
}

Flow multiply_fragments(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const Operation o = operation_of(step.value);
  const std::uint32_t* d_rows = warp.rows(step.extra);
  const std::uint32_t* a_rows = d_rows + o.d.registers;
  const std::uint32_t* b_rows = a_rows + o.a.registers;
  const std::uint32_t* c_rows = b_rows + o.b.registers;
  Matrix a(o.a.columns);
  Matrix b(o.b.columns);
  Matrix c(o.c.columns);
  Matrix d(o.d.columns);
  read_fragment(warp, a_rows, o.a, a);
  read_fragment(warp, b_rows, o.b, b);
  read_fragment(warp, c_rows, o.c, c);
  multiply(o.product, a, b, c, d);
  const unsigned width = element_bits(o.d.element);
  const auto write = [&](unsigned i, unsigned j, unsigned lane, unsigned r, unsigned e) {
    const std::uint64_t before = get_register(warp, Row{d_rows[r]}, lane);
    const std::uint64_t bits = encode_element(o.d.element, d.at(i, j));
    put_register(warp, Row{d_rows[r]}, lane, with_element(before, bits, width, e));
  };
  each_element(o.d, o.d.distinct(), write);
  return flow;
}

// Shapes count single bits, fragments their words.
Shape shape_of(Element element, Shape shape) {
  if (element == Element::kB1) shape.k /= element_bits(Element::kB1);
  return shape;
}

// Factors that are packed closer than bytes lie along the sums' terms, and not otherwise.
bool good_layout(Part part, Element element, bool by_column) {
  const bool packed = element == Element::kS4 || element == Element::kU4 || element == Element::kB1;
  return !packed || part == Part::kC || by_column == (part == Part::kB);
}

bool select_move_fragment(Selector& s, bool stores) {
  const int part = stores ? (s.take("d"_n) ? 2 : -1) : s.take_one({"a"_n, "b"_n, "c"_n});
  s.take("sync"_n);
  s.take("aligned"_n);
  const int layout = s.take_one({"row"_n, "col"_n});
  const auto shape = take_shape(s);
  const Space space = take_space(s);
  const auto element = take_element(s);
  if (part < 0 || layout < 0 || !shape.has_value() || !element.has_value()) return s.refuse_form();
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared) {
    return s.refuse_form();
  }
  if (!good_layout(static_cast<Part>(part), *element, layout == 1)) return s.refuse_form();
  const auto fragment = fragment_of(static_cast<Part>(part), *element, shape_of(*element, *shape));
  if (!fragment.has_value() || !s.need(2, 3)) return s.refuse_form();
  Step step;
  step.handler = stores ? &move_fragment<true> : &move_fragment<false>;
  step.value = pack(*fragment, layout == 1);
  std::vector<Row> rows;
  const unsigned bytes = *element == Element::kF64 ? 8 : 4;
  const Operand& registers = s.operand(stores ? 1 : 0);
  if (!vector_rows(s, registers, fragment->registers, bytes, !stores, rows)) return false;
  step.extra = s.add_rows(rows);
  std::int64_t offset = 0;
  if (!s.address(s.operand(stores ? 0 : 1), space, step.a, offset)) return false;
  if (space == Space::kShared) offset += static_cast<std::int64_t>(kSharedWindow);
  if (offset != 0) {
    // The address becomes a generic one of its own.
    Step add;
    add.handler = [](Warp& warp, const Step& each, Mask lanes) {
      const std::byte* a = warp.row(each.a);
      each_lane<std::uint64_t>(warp.row(each.d), lanes, [&](unsigned lane) {
        return get<std::uint64_t>(a, lane) + static_cast<std::uint64_t>(each.value);
      });
      return Flow::kNext;
    };
    add.a = step.a;
    add.value = offset;
    add.d = step.a = s.temporary(8);
    if (!s.emit_unguarded(add)) return false;
  }
  unsigned dense = layout == 1 ? fragment->rows : fragment->columns;
  if (*element == Element::kB1) dense *= element_bits(Element::kB1);
  return (s.operand_count() == 3 ? s.source(2, Type::kB32, step.b)
                                 : s.constant(dense, 4, step.b)) &&
         s.emit(step);
}

// What wmma.mma is to multiply: d, a, b and c.
std::optional<std::vector<Element>> take_elements(Selector& s) {
  std::vector<Element> elements;
  for (auto name = s.take_next(); name.has_value(); name = s.take_next()) {
    const auto element = element_named(*name);
    if (!element.has_value()) return std::nullopt;
    elements.push_back(*element);
  }
  // .f16 factors are not named: only d and c are.
  if (elements.size() == 2) {
    elements = {elements[0], Element::kF16, Element::kF16, elements[1]};
  }
  if (elements.size() != 4) return std::nullopt;
  return elements;
}

bool select_multiply_fragments(Selector& s) {
  const bool bits = s.has("b1"_n);
  const auto factors = take_factors(s, bits ? Element::kB1 : Element::kF16);
  s.take("sync"_n);
  s.take("aligned"_n);
  // The layouts were told to the loads already.
  const bool a_by_columns = s.take_next() == "col"_n;
  const bool b_by_columns = s.take_next() == "col"_n;
  const auto shape = take_shape(s);
  const bool saturate = s.take("satfinite"_n);
  // In the order of Rounding.
  const int rounding = s.take_one({"rn"_n, "rz"_n, "rm"_n, "rp"_n});
  const auto found = take_elements(s);
  if (!shape.has_value() || !factors || !found || !s.need(4, 4)) return s.refuse_form();
  const std::vector<Element>& elements = *found;
  if (rounding >= 0 && elements[1] != Element::kF64) return s.refuse_form();
  if (!good_layout(Part::kA, elements[1], a_by_columns) ||
      !good_layout(Part::kB, elements[2], b_by_columns)) {
    return s.refuse_form();
  }
  const Shape counted = shape_of(elements[1], *shape);
  const auto a = fragment_of(Part::kA, elements[1], counted);
  const auto b = fragment_of(Part::kB, elements[2], counted);
  const auto c = fragment_of(Part::kC, elements[3], counted);
  const auto d = fragment_of(Part::kC, elements[0], counted);
  if (!a || !b || !c || !d) return s.refuse_form();
  const auto bytes = [](Element element) { return element == Element::kF64 ? 8u : 4u; };
  std::vector<Row> rows;
  if (!vector_rows(s, s.operand(0), d->registers, bytes(elements[0]), true, rows) ||
      !vector_rows(s, s.operand(1), a->registers, bytes(elements[1]), false, rows) ||
      !vector_rows(s, s.operand(2), b->registers, bytes(elements[2]), false, rows) ||
      !vector_rows(s, s.operand(3), c->registers, bytes(elements[3]), false, rows)) {
    return false;
  }
  Step step;
  step.handler = &multiply_fragments;
  const auto byte = [](unsigned value, int place) {
    return static_cast<std::int64_t>(value) << place * 8;
  };
  step.value =
      byte(counted.m, 0) | byte(counted.n, 1) | byte(counted.k, 2) |
      byte(static_cast<unsigned>(elements[1]), 3) | byte(static_cast<unsigned>(elements[2]), 4) |
      byte(static_cast<unsigned>(elements[3]) << 4 | static_cast<unsigned>(elements[0]), 5) |
      byte(static_cast<unsigned>(*factors) << 1 | (saturate ? 1 : 0), 6) |
      byte(static_cast<unsigned>(std::max(rounding, 0)), 7);
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

}  // namespace

bool select_wmma(Selector& s) {
  if (s.take("load"_n)) return select_move_fragment(s, false);
  if (s.take("store"_n)) return select_move_fragment(s, true);
  if (s.take("mma"_n)) return select_multiply_fragments(s);
  return s.refuse_form();
}

}  // namespace flyt::ptx
