// Video instructions on packed bytes and halves: vadd2, vabsdiff4, vset2 and their like.
#include "softgpu/interpreter/video.h"

#include <optional>
#include <string_view>

namespace flyt::ptx {
namespace {

using Op = VideoOp;

// value: Op | bits of a field << 8 | signs of d, a, b << 16 | .sat << 20 | .add << 21 | fields of d
// that are written << 24 | for each field, 3 bits, which one of a, then b it comes from: of the
// first source << 28, of the second << 40.
constexpr int kMask = 24;
constexpr int kFirst = 28;
constexpr int kSecond = 40;

struct Packed {
  static std::uint32_t apply(std::int64_t options, std::uint32_t a, std::uint32_t b,
                             std::uint32_t c) {
    const auto op = static_cast<Op>(options & 0xff);
    const auto bits = static_cast<unsigned>(options >> 8 & 0xff);
    const auto flag = [&](int place) { return (options >> place & 1) != 0; };
    const auto source = [&](int place, unsigned i, bool sign) {
      const auto from = static_cast<unsigned>(options >> (place + 3 * static_cast<int>(i)) & 7);
      const unsigned fields = 32 / bits;
      return field(from < fields ? a : b, from % fields * bits, bits, sign);
    };
    std::uint32_t result = flag(21) ? c : 0;
    for (unsigned i = 0; i < 32 / bits; ++i) {
      const std::uint32_t place = ((1u << bits) - 1) << (i * bits);
      if (!flag(kMask + static_cast<int>(i))) {
        if (!flag(21)) result |= c & place;
        continue;
      }
      std::int64_t value = combine(op, source(kFirst, i, flag(17)), source(kSecond, i, flag(18)));
      if (flag(20)) value = saturate(value, bits, flag(16));
      if (flag(21)) {
        result += static_cast<std::uint32_t>(value);
      } else {
        result |= static_cast<std::uint32_t>(value) << (i * bits) & place;
      }
    }
    return result;
  }
};

// What an opcode does and with fields of how many bits; of comparisons the first.
bool operation(std::uint32_t opcode, Op& op, unsigned& bits) {
  struct Known {
    std::uint32_t halves;
    std::uint32_t bytes;
    Op op;
  };
  static constexpr Known kKnown[] = {
      {"vadd2"_n, "vadd4"_n, Op::kAdd},       {"vsub2"_n, "vsub4"_n, Op::kSubtract},
      {"vavrg2"_n, "vavrg4"_n, Op::kAverage}, {"vabsdiff2"_n, "vabsdiff4"_n, Op::kDifference},
      {"vmin2"_n, "vmin4"_n, Op::kMinimum},   {"vmax2"_n, "vmax4"_n, Op::kMaximum},
      {"vset2"_n, "vset4"_n, Op::kEqual},
  };
  for (const Known& known : kKnown) {
    if (opcode != known.halves && opcode != known.bytes) continue;
    op = known.op;
    bits = opcode == known.halves ? 16 : 8;
    return true;
  }
  return false;
}

// The numbers of fields that "h10" or "b3210" names, the lowest first; nothing for what is no such
// name. `below`: of the numbers.
std::optional<std::string> numbers_in(std::string_view part, unsigned bits, unsigned below) {
  if (part.empty() || part.front() != (bits == 16 ? 'h' : 'b')) return std::nullopt;
  std::string numbers;
  for (std::size_t i = part.size() - 1; i > 0; --i) {
    const int number = part[i] - '0';
    if (number < 0 || number >= static_cast<int>(below)) return std::nullopt;
    numbers += static_cast<char>(number);
  }
  return numbers;
}

// Which fields of d are written; all if it says nothing.
bool take_mask(Selector& s, unsigned bits, std::int64_t& options) {
  const std::string_view part = s.part(0);
  const unsigned fields = 32 / bits;
  if (part.empty()) {
    options |= ((std::int64_t{1} << fields) - 1) << kMask;
    return true;
  }
  const auto numbers = numbers_in(part, bits, fields);
  if (!numbers || numbers->empty()) return s.refuse_form();
  for (std::size_t i = 0; i < numbers->size(); ++i) {
    if (i > 0 && (*numbers)[i] <= (*numbers)[i - 1]) return s.refuse_form();
    options |= std::int64_t{1} << (kMask + (*numbers)[i]);
  }
  return true;
}

// Where the fields of a source come from: its own operand's if it says nothing.
bool take_source(Selector& s, std::size_t index, unsigned bits, int place, std::int64_t& options) {
  const std::string_view part = s.part(index);
  const unsigned fields = 32 / bits;
  std::string own;
  for (unsigned i = 0; i < fields; ++i) own += static_cast<char>(i + (index == 1 ? 0 : fields));
  const auto numbers = part.empty() ? own : numbers_in(part, bits, 2 * fields);
  if (!numbers || numbers->size() != fields) return s.refuse_form();
  for (std::size_t i = 0; i < fields; ++i) {
    options |= std::int64_t{(*numbers)[i]} << (place + 3 * static_cast<int>(i));
  }
  return true;
}

}  // namespace

bool video_known(std::uint32_t opcode) {
  Op op = Op::kAdd;
  unsigned bits = 0;
  return operation(opcode, op, bits) || scalar_video_known(opcode);
}

bool select_video(Selector& s) {
  Op op = Op::kAdd;
  unsigned bits = 8;
  if (!operation(s.opcode(), op, bits)) return select_scalar_video(s);
  const bool compares = op == Op::kEqual;
  // d, a and b; what comparisons give is without a sign.
  bool signs[3] = {};
  if (!take_signs(s, compares ? signs + 1 : signs, compares ? 2 : 3)) return false;
  if (compares && !take_comparison(s, op)) return false;
  Step step;
  step.value = static_cast<std::int64_t>(op) | static_cast<std::int64_t>(bits) << 8;
  for (int i = 0; i < 3; ++i) step.value |= std::int64_t{signs[i]} << (16 + i);
  if (!compares && s.take("sat"_n)) step.value |= 1 << 20;
  if (s.take("add"_n)) step.value |= 1 << 21;
  if (!s.need(4, 4) || !take_mask(s, bits, step.value) ||
      !take_source(s, 1, bits, kFirst, step.value) ||
      !take_source(s, 2, bits, kSecond, step.value)) {
    return false;
  }
  using U = std::uint32_t;
  step.handler = &lanewise_with<Packed, U, U, U, U>;
  return s.destination(0, Type::kB32, step.d) && s.source(1, Type::kB32, step.a) &&
         s.source(2, Type::kB32, step.b) && s.source(3, Type::kB32, step.c) && s.emit(step);
}

}  // namespace flyt::ptx
