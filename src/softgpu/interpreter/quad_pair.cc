// mma.m8n8k4 of halves: four products at once, each made by two quads of lanes, one of the lower
// half of the warp and one of the upper. PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16".
#include "softgpu/interpreter/matrix.h"

namespace flyt::ptx {
namespace {

constexpr unsigned kPairs = 4;
constexpr unsigned kSide = 8;
constexpr unsigned kDepth = 4;
constexpr unsigned kFactorRegisters = 2;

struct Form {
  bool a_by_columns = false;
  bool b_by_columns = false;
  Element c = Element::kF32;
  Element d = Element::kF32;

  std::int64_t packed() const {
    return (a_by_columns ? 1 : 0) | (b_by_columns ? 2 : 0) | (c == Element::kF16 ? 4 : 0) |
           (d == Element::kF16 ? 8 : 0);
  }
  static Form unpacked(std::int64_t value) {
    const auto element = [value](std::int64_t bit) {
      return (value & bit) != 0 ? Element::kF16 : Element::kF32;
    };
    return {(value & 1) != 0, (value & 2) != 0, element(4), element(8)};
  }
};

unsigned registers(Element accumulator) { return accumulator == Element::kF16 ? 4 : 8; }

// Lane `member` (0 to 7) of a pair.
unsigned lane_of(unsigned pair, unsigned member) {
  return pair * 4 + member % 4 + member / 4 * (kLanes / 2);
}

double half_at(Warp& warp, const std::uint32_t* rows, unsigned lane, unsigned index) {
  const std::uint64_t word = get_register(warp, Row{rows[index / 2]}, lane);
  return decode_element(Element::kF16, word >> index % 2 * 16);
}

// The place of a member's accumulator `i`.
struct Place {
  unsigned row = 0;
  unsigned column = 0;
};
Place place_of(Element element, unsigned member, unsigned i) {
  if (element == Element::kF16) return {member, i};
  return {(member & 1) + (i & 2) + member / 4 * 4, (i & 4) + (member & 2) + (i & 1)};
}

void read_factors(Warp& warp, const Form& form, const std::uint32_t* a_rows,
                  const std::uint32_t* b_rows, unsigned pair, Matrix& a, Matrix& b) {
  for (unsigned member = 0; member < kSide; ++member) {
    const unsigned lane = lane_of(pair, member);
    const unsigned half = member / 4 * 4;
    for (unsigned i = 0; i < kDepth; ++i) {
      const double left = half_at(warp, a_rows, lane, i);
      const double right = half_at(warp, b_rows, lane, i);
      (form.a_by_columns ? a.at(half + i, member % 4) : a.at(member, i)) = left;
      (form.b_by_columns ? b.at(i, member) : b.at(member % 4, half + i)) = right;
    }
  }
}

Flow multiply_in_pairs(Warp& warp, const Step& step, Mask lanes) {
  Flow flow;
  if (!whole_warp(warp, lanes, flow)) return flow;
  const Form form = Form::unpacked(step.value);
  const std::uint32_t* d_rows = warp.rows(step.extra);
  const std::uint32_t* a_rows = d_rows + registers(form.d);
  const std::uint32_t* b_rows = a_rows + kFactorRegisters;
  const std::uint32_t* c_rows = b_rows + kFactorRegisters;
  for (unsigned pair = 0; pair < kPairs; ++pair) {
    Matrix a(kDepth);
    Matrix b(kSide);
    Matrix c(kSide);
    Matrix d(kSide);
    read_factors(warp, form, a_rows, b_rows, pair, a, b);
    for (unsigned member = 0; member < kSide; ++member) {
      for (unsigned i = 0; i < kSide; ++i) {
        const Place place = place_of(form.c, member, i);
        const unsigned lane = lane_of(pair, member);
        c.at(place.row, place.column) =
            form.c == Element::kF16
                ? half_at(warp, c_rows, lane, i)
                : decode_element(form.c, get_register(warp, Row{c_rows[i]}, lane));
      }
    }
    multiply({{kSide, kSide, kDepth}, form.d, Factors::kNumbers, false}, a, b, c, d);
    for (unsigned member = 0; member < kSide; ++member) {
      for (unsigned i = 0; i < kSide; ++i) {
        const Place place = place_of(form.d, member, i);
        const unsigned lane = lane_of(pair, member);
        const Row row{d_rows[form.d == Element::kF16 ? i / 2 : i]};
        std::uint64_t bits = encode_element(form.d, d.at(place.row, place.column));
        if (form.d == Element::kF16 && i % 2 != 0) {
          bits = bits << 16 | (get_register(warp, row, lane) & 0xffff);
        }
        put_register(warp, row, lane, bits);
      }
    }
  }
  return flow;
}

}  // namespace

bool select_quad_pairs(Selector& s) {
  s.take("sync"_n);
  s.take("aligned"_n);
  Form form;
  if (!s.take("m8n8k4"_n)) return s.refuse_form();
  for (bool* const by_columns : {&form.a_by_columns, &form.b_by_columns}) {
    const auto layout = s.take_next();  // Their order matters.
    if (layout != "row"_n && layout != "col"_n) return s.refuse_form();
    *by_columns = layout == "col"_n;
  }
  Element a = Element::kF32;
  Element b = Element::kF32;
  for (Element* const each : {&form.d, &a, &b, &form.c}) {
    const auto element = take_element(s);
    if (!element.has_value()) return s.refuse_form();
    *each = *element;
  }
  const auto accumulates = [](Element e) { return e == Element::kF16 || e == Element::kF32; };
  const bool narrows = form.c == Element::kF32 && form.d == Element::kF16;
  if (a != Element::kF16 || b != Element::kF16 || !accumulates(form.c) || !accumulates(form.d) ||
      narrows || !s.need(4, 4)) {
    return s.refuse_form();
  }
  std::vector<Row> rows;
  if (!vector_rows(s, s.operand(0), registers(form.d), 4, true, rows) ||
      !vector_rows(s, s.operand(1), kFactorRegisters, 4, false, rows) ||
      !vector_rows(s, s.operand(2), kFactorRegisters, 4, false, rows) ||
      !vector_rows(s, s.operand(3), registers(form.c), 4, false, rows)) {
    return false;
  }
  Step step;
  step.handler = &multiply_in_pairs;
  step.value = form.packed();
  step.extra = s.add_rows(rows);
  return s.emit(step);
}

}  // namespace flyt::ptx
