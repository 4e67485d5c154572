// mma.sync, ldmatrix, stmatrix, movmatrix: PTX ISA, "Warp-level matrix instructions". Products
// are exact, sums are made in double and rounded once.
#include "softgpu/interpreter/matrix.h"

#include <algorithm>

#include "softgpu/interpreter/access.h"

namespace flyt::ptx {

std::optional<Element> element_named(std::uint32_t name) {
  switch (name) {
    case "f16"_n:
      return Element::kF16;
    case "bf16"_n:
      return Element::kBF16;
    case "tf32"_n:
      return Element::kTF32;
    case "f32"_n:
      return Element::kF32;
    case "f64"_n:
      return Element::kF64;
    case "s8"_n:
      return Element::kS8;
    case "u8"_n:
      return Element::kU8;
    case "s32"_n:
      return Element::kS32;
    case "e4m3"_n:
      return Element::kE4M3;
    case "e5m2"_n:
      return Element::kE5M2;
    case "s4"_n:
      return Element::kS4;
    case "u4"_n:
      return Element::kU4;
    case "b1"_n:
      return Element::kB1;
  }
  return std::nullopt;
}

std::optional<Element> take_element(Selector& s) {
  const auto name = s.take_next();
  return name.has_value() ? element_named(*name) : std::nullopt;
}

unsigned element_bits(Element element) {
  switch (element) {
    case Element::kS4:
    case Element::kU4:
      return 4;
    case Element::kS8:
    case Element::kU8:
    case Element::kE4M3:
    case Element::kE5M2:
      return 8;
    case Element::kF16:
    case Element::kBF16:
      return 16;
    case Element::kTF32:
    case Element::kF32:
    case Element::kS32:
    case Element::kB1:
      return 32;
    case Element::kF64:
      return 64;
  }
  return 0;
}

double decode_element(Element element, std::uint64_t bits) {
  switch (element) {
    case Element::kF16:
      return to_float(Half{static_cast<std::uint16_t>(bits)});
    case Element::kBF16:
      return to_float(Bfloat{static_cast<std::uint16_t>(bits)});
    // The lowest 13 bits of a tf32 register are not looked at.
    case Element::kTF32:
      return float_of(static_cast<std::uint32_t>(bits) & 0xffffe000);
    case Element::kF32:
      return float_of(static_cast<std::uint32_t>(bits));
    case Element::kF64:
      return std::bit_cast<double>(bits);
    case Element::kS8:
      return static_cast<std::int8_t>(bits);
    case Element::kU8:
      return static_cast<std::uint8_t>(bits);
    case Element::kS32:
      return static_cast<std::int32_t>(bits);
    case Element::kS4:
      return static_cast<int>((bits & 15) ^ 8) - 8;
    case Element::kU4:
      return static_cast<double>(bits & 15);
    case Element::kB1:
      return static_cast<std::uint32_t>(bits);
    case Element::kE4M3:
      return widen(static_cast<std::uint32_t>(bits & 0xff), kE4m3Format);
    case Element::kE5M2:
      return widen(static_cast<std::uint32_t>(bits & 0xff), kE5m2Format);
  }
  return 0;
}

std::uint64_t encode_element(Element element, double value) {
  switch (element) {
    case Element::kF16:
      return narrow(value, kHalfFormat, Rounding::kNearest, false);
    case Element::kBF16:
      return narrow(value, kBfloatFormat, Rounding::kNearest, false);
    case Element::kTF32:
    case Element::kF32:
      return bits_of(canonical(static_cast<float>(value)));
    case Element::kF64:
      return bits_of(value);
    case Element::kS8:
    case Element::kU8:
    case Element::kS32:
    case Element::kE4M3:
    case Element::kE5M2:
    case Element::kS4:
    case Element::kU4:
    case Element::kB1:
      break;
  }
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
}

std::optional<Shape> take_shape(Selector& s) {
  struct Named {
    std::uint32_t name;
    Shape shape;
  };
  constexpr Named kShapes[] = {
      {"m16n8k16"_n, {16, 8, 16}},   {"m16n8k8"_n, {16, 8, 8}},     {"m16n8k4"_n, {16, 8, 4}},
      {"m16n8k32"_n, {16, 8, 32}},   {"m8n8k16"_n, {8, 8, 16}},     {"m8n8k4"_n, {8, 8, 4}},
      {"m16n16k16"_n, {16, 16, 16}}, {"m32n8k16"_n, {32, 8, 16}},   {"m8n32k16"_n, {8, 32, 16}},
      {"m16n16k8"_n, {16, 16, 8}},   {"m8n8k32"_n, {8, 8, 32}},     {"m16n8k64"_n, {16, 8, 64}},
      {"m8n8k128"_n, {8, 8, 128}},   {"m16n8k128"_n, {16, 8, 128}}, {"m16n8k256"_n, {16, 8, 256}},
  };
  for (const Named& each : kShapes) {
    if (s.take(each.name)) return each.shape;
  }
  return std::nullopt;
}

std::uint64_t get_register(Warp& warp, Row row, unsigned lane) {
  if (row.base() == static_cast<std::uint32_t>(Row::Base::k64)) {
    return get<std::uint64_t>(warp.row(row), lane);
  }
  return get<std::uint32_t>(warp.row(row), lane);
}

void put_register(Warp& warp, Row row, unsigned lane, std::uint64_t value) {
  if (row.base() == static_cast<std::uint32_t>(Row::Base::k64)) {
    put<std::uint64_t>(warp.row(row), lane, value);
  } else {
    put<std::uint32_t>(warp.row(row), lane, static_cast<std::uint32_t>(value));
  }
}

bool whole_warp(Warp& warp, Mask lanes, Flow& flow) {
  flow = Flow::kNext;
  return warp.meet(lanes, flow, [](unsigned) { return kAllLanes; }) == lanes;
}

std::optional<Factors> take_factors(Selector& s, Element element) {
  if (element != Element::kB1) return Factors::kNumbers;
  const int how = s.take_one({"xor"_n, "and"_n});
  if (how < 0 || !s.take("popc"_n)) return std::nullopt;
  return how == 0 ? Factors::kXor : Factors::kAnd;
}

namespace {

double product_of(const Product& product, double a, double b, double sum) {
  const auto bits = [](double word) { return static_cast<std::uint32_t>(word); };
  switch (product.factors) {
    case Factors::kNumbers:
      break;
    case Factors::kXor:
      return sum + std::popcount(bits(a) ^ bits(b));
    case Factors::kAnd:
      return sum + std::popcount(bits(a) & bits(b));
  }
  // In double arithmetic every step of a .f64 product rounds as a fused one does.
  return product.element == Element::kF64 ? std::fma(a, b, sum) : sum + a * b;
}

}  // namespace

void multiply(const Product& product, const Matrix& a, const Matrix& b, const Matrix& c,
              Matrix& d) {
  std::optional<RoundingScope> rounding;
  if (product.rounding != Rounding::kNearest) rounding.emplace(product.rounding);
  for (unsigned i = 0; i < product.shape.m; ++i) {
    for (unsigned j = 0; j < product.shape.n; ++j) {
      double sum = c.at(i, j);
      for (unsigned k = 0; k < product.shape.k; ++k) {
        sum = product_of(product, a.at(i, k), b.at(k, j), sum);
      }
      if (product.element == Element::kS32 && product.saturate) {
        sum = std::clamp(sum, -0x1p31, 0x1p31 - 1);
      }
      d.at(i, j) = sum;
    }
  }
}

bool vector_rows(Selector& s, const Operand& operand, unsigned count, unsigned bytes, bool target,
                 std::vector<Row>& rows) {
  const bool vector = operand.kind == Operand::Kind::kVector;
  if (vector ? operand.count != count || operand.paren : count != 1) {
    return s.refuse("has a vector of a wrong length");
  }
  const Type type = bytes == 8 ? Type::kB64 : Type::kB32;
  for (unsigned i = 0; i < count; ++i) {
    const Operand& each = vector ? s.element(operand, i) : operand;
    Row row;
    if (each.kind != Operand::Kind::kRegister && !(target && each.kind == Operand::Kind::kSink)) {
      return s.refuse("needs registers");
    }
    if (target ? !s.destination(each, type, row) : !s.source(each, type, row)) return false;
    rows.push_back(row);
  }
  return true;
}

namespace {

// The registers of a fragment of mma: lane l holds group l/4, thread l%4 of it.
struct Fragments {
  Shape shape;
  Element a = Element::kF16;
  Element b = Element::kF16;
  Element c = Element::kF32;
  Element d = Element::kF32;
  bool saturate = false;
  Factors factors = Factors::kNumbers;
  bool sparse = false;  // Of the left matrix only half of each row is there.
  unsigned selector = 0;
  Rounding rounding = Rounding::kNearest;

  unsigned per_register() const { return std::max(1u, 32 / element_bits(a)); }
  unsigned stored_columns() const { return sparse ? shape.k / 2 : shape.k; }
  unsigned a_registers() const { return shape.m / 8 * (stored_columns() / (4 * per_register())); }
  unsigned b_registers() const { return shape.k / (4 * per_register()); }
  unsigned accumulators() const { return shape.m / 8 * 2; }
  unsigned registers(Element element) const {
    return element == Element::kF16 ? accumulators() / 2 : accumulators();
  }

  std::int64_t packed() const {
    const auto byte = [](unsigned value, int place) {
      return static_cast<std::int64_t>(value) << place * 8;
    };
    return byte(shape.m, 0) | byte(shape.n, 1) | byte(shape.k, 2) |
           byte(static_cast<unsigned>(a), 3) | byte(static_cast<unsigned>(b), 4) |
           byte(static_cast<unsigned>(c) << 4 | static_cast<unsigned>(d), 5) |
           byte(selector << 4 | (sparse ? 8 : 0) | static_cast<unsigned>(factors) << 1 |
                    (saturate ? 1 : 0),
                6) |
           byte(static_cast<unsigned>(rounding), 7);
  }
  static Fragments unpacked(std::int64_t value) {
    const auto byte = [&](int place) { return static_cast<unsigned>(value >> place * 8 & 0xff); };
    return {{byte(0), byte(1), byte(2)},
            static_cast<Element>(byte(3)),
            static_cast<Element>(byte(4)),
            static_cast<Element>(byte(5) >> 4),
            static_cast<Element>(byte(5) & 15),
            (byte(6) & 1) != 0,
            static_cast<Factors>(byte(6) >> 1 & 3),
            (byte(6) & 8) != 0,
            byte(6) >> 4,
            static_cast<Rounding>(byte(7))};
  }
};

// f(row, column, lane, register, element of the register)
template <class F>
void each_of_a(const Fragments& fragments, F&& f) {
  const unsigned per = fragments.per_register();
  const unsigned high = fragments.shape.m / 8;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned r = 0; r < fragments.a_registers(); ++r) {
      for (unsigned e = 0; e < per; ++e) {
        f(lane / 4 + 8 * (r % high), lane % 4 * per + e + r / high * 4 * per, lane, r, e);
      }
    }
  }
}

template <class F>
void each_of_b(const Fragments& fragments, F&& f) {
  const unsigned per = fragments.per_register();
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned r = 0; r < fragments.b_registers(); ++r) {
      for (unsigned e = 0; e < per; ++e) {
        f(lane % 4 * per + e + r * 4 * per, lane / 4, lane, r, e);
      }
    }
  }
}

// f(row, column, lane, register, element): accumulators of 16 bits lie in pairs.
template <class F>
void each_of_c(const Fragments& fragments, Element element, F&& f) {
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned i = 0; i < fragments.accumulators(); ++i) {
      const bool pairs = element == Element::kF16;
      f(lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2, lane, pairs ? i / 2 : i, pairs ? i % 2 : 0);
    }
  }
}

double read_element(Warp& warp, const std::uint32_t* rows, Element element, unsigned lane,
                    unsigned reg, unsigned index) {
  const std::uint64_t bits = get_register(warp, Row{rows[reg]}, lane);
  return decode_element(element, bits >> index * element_bits(element) % 64);
}

// Which column of the whole matrix each stored factor of the left one belongs to, by rows.
using Columns = std::array<std::uint8_t, kMatrixCells>;

// PTX ISA, "Sparse matrix storage". A lane's metadata are of a block of columns, as many as a row
// has in one register of its group: of words of 16 bits one for each of two rows, or of one of 32
// for one row. The selector says which lanes' count where not all are needed.
Columns columns_of(Warp& warp, const Fragments& fragments, Row metadata) {
  const unsigned bits = element_bits(fragments.a);
  const bool halves = bits >= 16;
  const unsigned stored = fragments.stored_columns();
  const unsigned in_block = 4 * fragments.per_register();
  const bool one_block = stored == in_block;
  Columns columns{};
  for (unsigned row = 0; row < fragments.shape.m; ++row) {
    for (unsigned i = 0; i < stored; ++i) {
      const unsigned block = i / in_block;
      const unsigned upper = row / 8;
      const unsigned member =
          halves ? (one_block ? fragments.selector : fragments.selector * 2 + block)
                 : (one_block ? fragments.selector * 2 + upper : block * 2 + upper);
      std::uint32_t word = get<std::uint32_t>(warp.row(metadata), row % 8 * 4 + member % 4);
      if (halves) word = word >> 16 * upper & 0xffff;
      const unsigned place = i % in_block;
      const auto index = [&](unsigned number) { return word >> 2 * number & 3; };
      unsigned column = 0;
      if (bits == 32) {
        column = i * 2 + index(place * 2) / 2;  // One of two.
      } else if (bits == 4) {
        column = i / 4 * 8 + index(place / 2) * 2 + i % 2;  // Two pairs of four.
      } else {
        column = i / 2 * 4 + index(place);  // Two of four.
      }
      columns[row * stored + i] = static_cast<std::uint8_t>(column);
    }
  }
  return columns;
}

void multiply_sparse(const Product& product, const Matrix& a, const Columns& columns,
                     const Matrix& b, const Matrix& c, Matrix& d) {
  const unsigned stored = product.shape.k / 2;
  for (unsigned i = 0; i < product.shape.m; ++i) {
    for (unsigned j = 0; j < product.shape.n; ++j) {
      double sum = c.at(i, j);
      for (unsigned k = 0; k < stored; ++k) {
        sum += a.at(i, k) * b.at(columns[i * stored + k], j);
      }
      if (product.saturate) sum = std::clamp(sum, -0x1p31, 0x1p31 - 1);
      d.at(i, j) = sum;
    }
  }
}

Flow multiply_matrices(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const Fragments fragments = Fragments::unpacked(step.value);
  const std::uint32_t* d_rows = warp.rows(step.extra);
  const std::uint32_t* a_rows = d_rows + fragments.registers(fragments.d);
  const std::uint32_t* b_rows = a_rows + fragments.a_registers();
  const std::uint32_t* c_rows = b_rows + fragments.b_registers();
  const Shape& shape = fragments.shape;
  Matrix a(fragments.stored_columns());
  Matrix b(shape.n);
  Matrix c(shape.n);
  Matrix d(shape.n);
  each_of_a(fragments, [&](unsigned i, unsigned k, unsigned lane, unsigned r, unsigned e) {
    a.at(i, k) = read_element(warp, a_rows, fragments.a, lane, r, e);
  });
  each_of_b(fragments, [&](unsigned k, unsigned j, unsigned lane, unsigned r, unsigned e) {
    b.at(k, j) = read_element(warp, b_rows, fragments.b, lane, r, e);
  });
  each_of_c(fragments, fragments.c,
            [&](unsigned i, unsigned j, unsigned lane, unsigned r, unsigned e) {
              c.at(i, j) = read_element(warp, c_rows, fragments.c, lane, r, e);
            });
  const Product product{shape, fragments.d, fragments.factors, fragments.saturate,
                        fragments.rounding};
  if (fragments.sparse) {
    const std::uint32_t* metadata = c_rows + fragments.registers(fragments.c);
    multiply_sparse(product, a, columns_of(warp, fragments, Row{*metadata}), b, c, d);
  } else {
    multiply(product, a, b, c, d);
  }
  each_of_c(fragments, fragments.d,
            [&](unsigned i, unsigned j, unsigned lane, unsigned r, unsigned e) {
              std::uint64_t bits = encode_element(fragments.d, d.at(i, j));
              if (e != 0) bits = bits << 16 | (get_register(warp, Row{d_rows[r]}, lane) & 0xffff);
              put_register(warp, Row{d_rows[r]}, lane, bits);
            });
  return flow;
}

bool is_one_of(Element element, std::initializer_list<Element> which) {
  return std::find(which.begin(), which.end(), element) != which.end();
}

// Integers, whose factors may differ in sign; m8 with the least k there is, m16 with up to four of
// it.
bool known_integers(const Fragments& f, unsigned least) {
  const Shape& shape = f.shape;
  return f.c == Element::kS32 && f.d == Element::kS32 && shape.k >= least &&
         (shape.m == 8 ? shape.k == least : shape.k <= 2 * least);
}

bool known_form(const Fragments& f) {
  const Shape& shape = f.shape;
  const bool accumulates16 = f.c == Element::kF16 && f.d == Element::kF16;
  const bool accumulates32 = f.c == Element::kF32 && f.d == Element::kF32;
  if (shape.n != 8) return false;
  switch (f.a) {
    case Element::kF16:
    case Element::kBF16:
      return f.b == f.a && shape.m == 16 && (shape.k == 16 || shape.k == 8) &&
             (accumulates32 || (accumulates16 && f.a == Element::kF16));
    case Element::kTF32:
      return f.b == f.a && shape.m == 16 && (shape.k == 4 || shape.k == 8) && accumulates32;
    case Element::kF64:
      return f.b == f.a && f.c == f.a && f.d == f.a && (shape.m == 16 || shape.k == 4) &&
             shape.k <= 16;
    case Element::kS8:
    case Element::kU8:
      return is_one_of(f.b, {Element::kS8, Element::kU8}) && known_integers(f, 16);
    case Element::kS4:
    case Element::kU4:
      return is_one_of(f.b, {Element::kS4, Element::kU4}) && known_integers(f, 32);
    case Element::kE4M3:
    case Element::kE5M2:
      return is_one_of(f.b, {Element::kE4M3, Element::kE5M2}) && shape.m == 16 &&
             (shape.k == 16 || shape.k == 32) && (accumulates32 || accumulates16);
    case Element::kB1:  // Counted in words.
      return f.b == f.a && known_integers(f, 4);
    case Element::kF32:
    case Element::kS32:
      break;
  }
  return false;
}

// Of a sparse left matrix one or two blocks, or at least two of small floats.
bool known_sparse_form(const Fragments& f) {
  const unsigned block = 8 * f.per_register();
  const bool one = f.shape.k == block;
  const bool two = f.shape.k == 2 * block;
  if (f.shape.m != 16 || f.shape.n != 8) return false;
  const bool accumulates16 = f.c == Element::kF16 && f.d == Element::kF16;
  const bool accumulates32 = f.c == Element::kF32 && f.d == Element::kF32;
  const bool integers = f.c == Element::kS32 && f.d == Element::kS32;
  const unsigned selectors = element_bits(f.a) >= 16 ? (one ? 4 : 2) : (one ? 2 : 1);
  if (f.selector >= selectors) return false;
  switch (f.a) {
    case Element::kF16:
      return f.b == f.a && (one || two) && (accumulates32 || accumulates16);
    case Element::kBF16:
    case Element::kTF32:
      return f.b == f.a && (one || two) && accumulates32;
    case Element::kS8:
    case Element::kU8:
      return is_one_of(f.b, {Element::kS8, Element::kU8}) && (one || two) && integers;
    case Element::kS4:
    case Element::kU4:
      return is_one_of(f.b, {Element::kS4, Element::kU4}) && (one || two) && integers;
    case Element::kE4M3:
    case Element::kE5M2:
      return is_one_of(f.b, {Element::kE4M3, Element::kE5M2}) && two && accumulates32;
    case Element::kF32:
    case Element::kF64:
    case Element::kS32:
    case Element::kB1:
      break;
  }
  return false;
}

// What a sparse product has beside: metadata and the selector.
bool take_sparsity(Selector& s, Fragments& fragments) {
  fragments.sparse = s.take("sp"_n) || s.take("sp::ordered_metadata"_n);
  if (!fragments.sparse) return s.need(4, 4);
  std::uint64_t selector = 0;
  if (!s.need(6, 6) || !s.integer(s.operand(5), selector)) return false;
  if (selector > 3) return s.refuse("has a selector that is not supported");
  fragments.selector = static_cast<unsigned>(selector);
  return true;
}

bool select_multiply(Selector& s) {
  s.take("sync"_n);
  s.take("aligned"_n);
  Fragments fragments;
  if (!take_sparsity(s, fragments)) return false;
  const auto shape = take_shape(s);
  if (!shape.has_value() || !s.take("row"_n) || !s.take("col"_n)) return s.refuse_form();
  fragments.shape = *shape;
  fragments.saturate = s.take("satfinite"_n);
  // In the order of Rounding.
  const int rounding = s.take_one({"rn"_n, "rz"_n, "rm"_n, "rp"_n});
  if (rounding >= 0) fragments.rounding = static_cast<Rounding>(rounding);
  Element* const order[] = {&fragments.d, &fragments.a, &fragments.b, &fragments.c};
  for (Element* each : order) {
    const auto element = take_element(s);
    if (!element.has_value()) return s.refuse_form();
    *each = *element;
  }
  if (rounding >= 0 && fragments.a != Element::kF64) return s.refuse_form();
  const auto factors = take_factors(s, fragments.a);
  if (!factors.has_value()) return s.refuse_form();
  fragments.factors = *factors;
  if (fragments.a == Element::kB1) fragments.shape.k /= element_bits(Element::kB1);
  if (fragments.sparse ? !known_sparse_form(fragments) : !known_form(fragments)) {
    return s.refuse_form();
  }
  const unsigned bytes = fragments.a == Element::kF64 ? 8 : 4;
  std::vector<Row> rows;
  if (!vector_rows(s, s.operand(0), fragments.registers(fragments.d), bytes, true, rows) ||
      !vector_rows(s, s.operand(1), fragments.a_registers(), bytes, false, rows) ||
      !vector_rows(s, s.operand(2), fragments.b_registers(), bytes, false, rows) ||
      !vector_rows(s, s.operand(3), fragments.registers(fragments.c), bytes, false, rows)) {
    return false;
  }
  if (fragments.sparse) {
    Row metadata;
    if (!s.source(4, Type::kB32, metadata)) return false;
    rows.push_back(metadata);
  }
  Step step;
  step.handler = &multiply_matrices;
  step.value = fragments.packed();
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

// q: the number of 8x8 matrices; p: 1 for .trans. Lanes 8j .. 8j+7 name the rows of matrix j.
template <bool Stores>
Flow move_matrices(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const std::uint32_t* rows = warp.rows(step.extra);
  const std::byte* addresses = warp.row(step.a);
  Access<Space::kShared> access(warp, 16, Stores);
  const bool transposed = step.p != 0;
  for (unsigned j = 0; j < step.q; ++j) {
    std::byte* places[8];
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned lane = j * 8 + i;
      places[i] = access.at(
          lane, get<std::uint64_t>(addresses, lane) + static_cast<std::uint64_t>(step.value));
      if (places[i] == nullptr) return access.failed();
    }
    std::byte* cells = warp.row(Row{rows[j]});
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      std::uint32_t both = Stores ? get<std::uint32_t>(cells, lane) : 0;
      for (unsigned e = 0; e < 2; ++e) {
        const unsigned row = transposed ? lane % 4 * 2 + e : lane / 4;
        const unsigned column = transposed ? lane / 4 : lane % 4 * 2 + e;
        std::byte* place = places[row] + column * 2;
        auto element = static_cast<std::uint16_t>(both >> e * 16);
        if constexpr (Stores) {
          std::memcpy(place, &element, 2);
        } else {
          std::memcpy(&element, place, 2);
          both |= static_cast<std::uint32_t>(element) << e * 16;
        }
      }
      if constexpr (!Stores) put<std::uint32_t>(cells, lane, both);
    }
  }
  return flow;
}

bool select_move_matrices(Selector& s, bool stores) {
  s.take("sync"_n);
  s.take("aligned"_n);
  Step step;
  step.handler = stores ? &move_matrices<true> : &move_matrices<false>;
  if (!s.take("m8n8"_n)) return s.refuse_form();
  const int count = s.take_one({"x1"_n, "x2"_n, "x4"_n});
  step.p = s.take("trans"_n) ? 1 : 0;
  const Space space = take_space(s);
  if (count < 0 || !s.take("b16"_n) || !s.need(2, 2) ||
      (space != Space::kShared && space != Space::kGeneric)) {
    return s.refuse_form();
  }
  step.q = 1u << count;
  std::vector<Row> rows;
  if (!vector_rows(s, s.operand(stores ? 1 : 0), step.q, 4, !stores, rows)) return false;
  step.extra = s.add_rows(rows);
  if (!s.address(s.operand(stores ? 0 : 1), space, step.a, step.value)) return false;
  // Generic addresses have to lie in the window of shared memory too; others fault.
  if (space == Space::kGeneric) step.value -= static_cast<std::int64_t>(kSharedWindow);
  return s.emit(step);
}

Flow transpose_matrix(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const std::byte* a = warp.row(step.a);
  std::uint32_t out[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    out[lane] = 0;
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned row = lane % 4 * 2 + e;
      const unsigned column = lane / 4;
      const auto both = get<std::uint32_t>(a, row * 4 + column / 2);
      out[lane] |= (both >> column % 2 * 16 & 0xffff) << e * 16;
    }
  }
  std::byte* d = warp.row(step.d);
  for_lanes(lanes, [&](unsigned lane) { put<std::uint32_t>(d, lane, out[lane]); });
  return flow;
}

bool select_transpose(Selector& s) {
  s.take("sync"_n);
  s.take("aligned"_n);
  Step step;
  step.handler = &transpose_matrix;
  if (!s.take("m8n8"_n) || !s.take("trans"_n) || !s.take("b16"_n)) return s.refuse_form();
  return s.need(2, 2) && s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
         s.emit(step);
}

}  // namespace

bool select_matrix(Selector& s) {
  switch (s.opcode()) {
    case "mma"_n:
      return s.has("m8n8k4"_n) && s.has("f16"_n) ? select_quad_pairs(s) : select_multiply(s);
    case "ldmatrix"_n:
      return select_move_matrices(s, false);
    case "stmatrix"_n:
      return select_move_matrices(s, true);
    case "movmatrix"_n:
      return select_transpose(s);
    case "wmma"_n:
      return select_wmma(s);
    case "wgmma"_n:
      return select_warpgroup(s);
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
