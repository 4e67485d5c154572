// wgmma: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". Each warp makes its sixteen
// rows of the product when it comes to the instruction, for all that it reads has to be there by
// then. So nothing is left to wait for.
#include <algorithm>
#include <array>

#include "softgpu/interpreter/access.h"
#include "softgpu/interpreter/matrix.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kRowsOfWarp = 16;
constexpr unsigned kWarpsOfGroup = 4;
constexpr unsigned kColumnsMax = 256;
constexpr unsigned kFactorBytes = 32;  // Of a row of the left matrix, of every type.
constexpr unsigned kChunkBytes = 16;
constexpr unsigned kFactorsMax = 32;
constexpr unsigned kRegistersOfA = 4;

// What `Step::value` holds.
struct Form {
  Element a = Element::kF16;
  Element b = Element::kF16;
  Element d = Element::kF32;
  unsigned columns = 0;
  bool a_in_registers = false;
  bool saturates = false;
  bool negates = false;  // The product, where exactly one factor is scaled by -1.
  bool a_by_columns = false;
  bool b_by_rows = false;

  unsigned factors() const { return kFactorBytes * 8 / element_bits(a); }
  unsigned per_register() const { return d == Element::kF16 ? 2 : 1; }
  unsigned registers() const { return columns / 2 / per_register(); }

  std::int64_t packed() const {
    const auto flag = [](bool value, unsigned place) { return std::uint32_t{value} << place; };
    return static_cast<std::int64_t>(
        static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b) << 4 |
        static_cast<std::uint32_t>(d) << 8 | columns << 12 | flag(a_in_registers, 24) |
        flag(saturates, 25) | flag(negates, 26) | flag(a_by_columns, 27) | flag(b_by_rows, 28));
  }
  static Form unpacked(std::int64_t value) {
    const auto bits = static_cast<std::uint32_t>(value);
    const auto flag = [bits](unsigned place) { return (bits >> place & 1) != 0; };
    return {static_cast<Element>(bits & 15),
            static_cast<Element>(bits >> 4 & 15),
            static_cast<Element>(bits >> 8 & 15),
            bits >> 12 & 0xfff,
            flag(24),
            flag(25),
            flag(26),
            flag(27),
            flag(28)};
  }
};

// A matrix in shared memory, in pieces of 16 bytes: PTX ISA, "Matrix Descriptor Format". Along
// lines: whose pieces hold factors of one row of the left or column of the right matrix.
class Stored {
 public:
  explicit Stored(std::uint64_t descriptor)
      : start_(field(descriptor, 0)),
        leading_(field(descriptor, 16)),
        stride_(field(descriptor, 32)),
        phase_(descriptor >> 49 & 7),
        width_(kWidths[descriptor >> 62]) {}

  // The piece that holds factor `k` of line `line`; `per` factors to a piece.
  std::uint64_t along_lines(unsigned line, unsigned k, unsigned per) const {
    const std::uint64_t piece = k / per;
    const std::uint64_t within = piece * (width_ == 1 ? leading_ : kChunkBytes);
    return swizzled(start_ + line % 8 * width_ * kChunkBytes + line / 8 * stride_ + within);
  }
  // The same where pieces hold one factor of several lines.
  std::uint64_t across_lines(unsigned line, unsigned k, unsigned per) const {
    const std::uint64_t piece = line / per;
    const std::uint64_t group = k / 8;
    const std::uint64_t place =
        width_ == 1 ? piece * stride_ + group * leading_
                    : piece % width_ * kChunkBytes + piece / width_ * leading_ + group * stride_;
    return swizzled(start_ + place + k % 8 * width_ * kChunkBytes);
  }

 private:
  static constexpr std::array<unsigned, 4> kWidths = {1, 8, 4, 2};  // Pieces of a line together.

  static std::uint64_t field(std::uint64_t descriptor, unsigned place) {
    return (descriptor >> place & 0x3fff) * kChunkBytes;
  }
  std::uint64_t swizzled(std::uint64_t address) const {
    return address ^ (((address >> 7) - phase_) & (width_ - 1)) << 4;
  }

  std::uint64_t start_;
  std::uint64_t leading_;
  std::uint64_t stride_;
  std::uint64_t phase_;
  unsigned width_;
};

using Line = std::array<double, kFactorsMax>;

// Factors of `count` lines from `first` on; false: a fault.
bool read_lines(Warp& warp, std::uint64_t descriptor, Element element, bool across, unsigned first,
                unsigned count, Line* into) {
  const Stored stored(descriptor);
  const unsigned bits = element_bits(element);
  const unsigned per = kChunkBytes * 8 / bits;
  const unsigned factors = kFactorBytes * 8 / bits;
  Access<Space::kShared> access(warp, kChunkBytes, false);
  for (unsigned i = 0; i < count; ++i) {
    const std::byte* piece = nullptr;
    for (unsigned k = 0; k < factors; ++k) {
      const unsigned line = first + i;
      const unsigned index = across ? line % per : k % per;
      if (across || index == 0) {
        piece = access.at(
            0, across ? stored.across_lines(line, k, per) : stored.along_lines(line, k, per));
        if (piece == nullptr) return false;
      }
      std::uint32_t word = 0;
      std::memcpy(&word, piece + index * bits / 8, bits / 8);
      into[i][k] = decode_element(element, word);
    }
  }
  return true;
}

// Registers of the left matrix: lane l has rows l/4 and l/4 + 8, factors from l%4 on.
void read_registers(Warp& warp, const std::uint32_t* rows, Element element, Line* into) {
  const unsigned bits = element_bits(element);
  const unsigned per = 32 / bits;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    for (unsigned r = 0; r < kRegistersOfA; ++r) {
      const std::uint64_t word = get_register(warp, Row{rows[r]}, lane);
      for (unsigned e = 0; e < per; ++e) {
        into[lane / 4 + 8 * (r % 2)][lane % 4 * per + e + r / 2 * 4 * per] =
            decode_element(element, word >> e * bits);
      }
    }
  }
}

double sum_of_products(const Form& form, const Line& a, const Line& b) {
  double sum = 0;
  const unsigned factors = form.factors();
  if (form.a == Element::kB1) {
    for (unsigned k = 0; k < factors; ++k) {
      sum += std::popcount(static_cast<std::uint32_t>(a[k]) & static_cast<std::uint32_t>(b[k]));
    }
    return sum;
  }
  for (unsigned k = 0; k < factors; ++k) sum += a[k] * b[k];
  return form.negates ? -sum : sum;
}

// a, b: descriptors; q: whether to add to what is there. Rows: of d, then of a in registers.
Flow multiply_in_group(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const Form form = Form::unpacked(step.value);
  const std::uint32_t* d_rows = warp.rows(step.extra);
  const unsigned row = warp.index() % kWarpsOfGroup * kRowsOfWarp;
  std::array<Line, kRowsOfWarp> a;
  if (form.a_in_registers) {
    read_registers(warp, d_rows + form.registers(), form.a, a.data());
  } else if (!read_lines(warp, get<std::uint64_t>(warp.row(step.a), 0), form.a, form.a_by_columns,
                         row, kRowsOfWarp, a.data())) {
    return Flow::kFault;
  }
  const bool adds = (warp.predicate_value(step.q) & 1) != 0;
  const std::uint64_t right = get<std::uint64_t>(warp.row(step.b), 0);
  const unsigned bits = element_bits(form.d);
  // Eight columns at a time: of each a lane has two neighbours, in two rows.
  for (unsigned column = 0; column < form.columns; column += 8) {
    std::array<Line, 8> b;
    if (!read_lines(warp, right, form.b, form.b_by_rows, column, 8, b.data())) {
      return Flow::kFault;
    }
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned place = column / 2 + i;
        const Row at{d_rows[place / form.per_register()]};
        const unsigned shift = place % form.per_register() * bits;
        std::uint64_t word = get_register(warp, at, lane);
        double sum = adds ? decode_element(form.d, word >> shift) : 0;
        sum += sum_of_products(form, a[lane / 4 + i / 2 * 8], b[lane % 4 * 2 + i % 2]);
        if (form.saturates) sum = std::clamp(sum, -0x1p31, 0x1p31 - 1);
        const std::uint64_t mask = ((std::uint64_t{1} << bits) - 1) << shift;
        word = (word & ~mask) | (encode_element(form.d, sum) << shift & mask);
        put_register(warp, at, lane, word);
      }
    }
  }
  return flow;
}

// m64nNkK: the number of columns, where the factors are as many as the types say.
unsigned columns_named(std::uint32_t name, unsigned factors) {
  for (unsigned columns = 8; columns <= kColumnsMax; columns += 8) {
    const std::string shape = "m64n" + std::to_string(columns) + "k" + std::to_string(factors);
    if (hash_of(shape) == name) return columns;
  }
  return 0;
}

bool known_types(const Form& form) {
  const bool floats = form.d == Element::kF16 || form.d == Element::kF32;
  switch (form.a) {
    case Element::kF16:
      return form.b == form.a && floats;
    case Element::kBF16:
    case Element::kTF32:
      return form.b == form.a && form.d == Element::kF32;
    case Element::kE4M3:
    case Element::kE5M2:
      return (form.b == Element::kE4M3 || form.b == Element::kE5M2) && floats;
    case Element::kS8:
    case Element::kU8:
      return (form.b == Element::kS8 || form.b == Element::kU8) && form.d == Element::kS32;
    case Element::kB1:
      return form.b == form.a && form.d == Element::kS32;
    case Element::kF32:
    case Element::kF64:
    case Element::kS32:
    case Element::kS4:
    case Element::kU4:
      break;
  }
  return false;
}

bool take_form(Selector& s, Form& form) {
  s.take("sync"_n);
  s.take("aligned"_n);
  if (s.has("sp"_n)) return s.refuse_form();
  form.saturates = s.take("satfinite"_n);
  const auto shape = s.take_next();
  for (Element* each : {&form.d, &form.a, &form.b}) {
    const auto element = take_element(s);
    if (!element.has_value()) return s.refuse_form();
    *each = *element;
  }
  if (!known_types(form)) return s.refuse_form();
  if (form.a == Element::kB1 && (!s.take("and"_n) || !s.take("popc"_n))) return s.refuse_form();
  if (form.saturates && (form.d != Element::kS32 || form.a == Element::kB1)) {
    return s.refuse_form();
  }
  const unsigned words = form.a == Element::kB1 ? 32 : 1;
  form.columns = shape.has_value() ? columns_named(*shape, form.factors() * words) : 0;
  // Integers have no odd multiples of eight beyond 24.
  const bool odd = form.d == Element::kS32 && form.columns > 24 && form.columns % 16 != 0;
  return (form.columns != 0 && !odd) || s.refuse_form();
}

// Immediates behind the predicate: how each factor is scaled, and which are transposed.
bool take_immediates(Selector& s, Form& form) {
  const bool halves = element_bits(form.a) == 16;
  const std::size_t transposed = !halves ? 0 : form.a_in_registers ? 1 : 2;
  const std::size_t scaled = form.d == Element::kS32 ? 0 : 2;
  if (!s.need(4 + scaled + transposed, 4 + scaled + transposed)) return false;
  for (std::size_t i = 0; i < scaled + transposed; ++i) {
    std::uint64_t value = 0;
    if (!s.integer(s.operand(4 + i), value)) return false;
    if (i < scaled) {
      if (value != 1 && value != ~std::uint64_t{0}) return s.refuse("scales by 1 or -1 only");
      form.negates ^= value != 1;
      continue;
    }
    if (value > 1) return s.refuse("transposes by 0 or 1 only");
    (i + 1 == scaled + transposed ? form.b_by_rows : form.a_by_columns) = value == 1;
  }
  return true;
}

bool select_group_multiply(Selector& s) {
  Form form;
  if (!take_form(s, form)) return false;
  if (!s.need(4, 8)) return false;
  form.a_in_registers = s.operand(1).kind == Operand::Kind::kVector;
  if (!take_immediates(s, form)) return false;
  Step step;
  step.handler = &multiply_in_group;
  std::vector<Row> rows;
  if (!vector_rows(s, s.operand(0), form.registers(), 4, true, rows)) return false;
  if (form.a_in_registers) {
    if (!vector_rows(s, s.operand(1), kRegistersOfA, 4, false, rows)) return false;
  } else if (!s.source(1, Type::kB64, step.a)) {
    return false;
  }
  if (!s.source(2, Type::kB64, step.b) || !s.predicate_source(s.operand(3), step.q)) return false;
  step.value = form.packed();
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

}  // namespace

bool select_warpgroup(Selector& s) {
  switch (s.take_one({"mma_async"_n, "fence"_n, "commit_group"_n, "wait_group"_n})) {
    case 0:
      return select_group_multiply(s);
    case 1:
    case 2:
      s.take("sync"_n);
      s.take("aligned"_n);
      return s.need(0, 0);
    case 3: {
      s.take("sync"_n);
      s.take("aligned"_n);
      std::uint64_t groups = 0;
      return s.need(1, 1) && s.integer(s.operand(0), groups);
    }
  }
  return s.refuse_form();
}

}  // namespace flyt::ptx
