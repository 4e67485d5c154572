// Video instructions on parts of registers against the steps that the PTX manual tells, one by one.
#include <algorithm>
#include <cmath>
#include <string>

#include "softgpu/interpreter/testing/operate.h"

namespace flyt::ptx {
namespace {

using U32 = std::uint32_t;

std::vector<U32> words() {
  std::vector<U32> words = integer_edges<U32>();
  words.insert(words.end(), {0x80007fff, 0x7fff8000, 0x80808080, 0x7f80ff01, 0xfe01ff00});
  return words;
}

// What stands in a word's part, "" for all of it, of a type.
std::int64_t part_of(U32 word, const std::string& part, bool sign) {
  const int bits = part.empty() ? 32 : part[0] == 'b' ? 8 : 16;
  const int number = part.empty() ? 0 : part[1] - '0';
  const std::int64_t modulus = std::int64_t{1} << bits;
  const std::int64_t value = (word >> (number * bits)) % modulus;
  return sign && value >= modulus / 2 ? value - modulus : value;
}

struct Range {
  long double least;
  long double most;
};
Range range_of(const std::string& part, bool sign) {
  const long double values = part.empty() ? 4294967296.0L : part[0] == 'b' ? 256.0L : 65536.0L;
  return sign ? Range{-values / 2, values / 2 - 1} : Range{0, values - 1};
}

// The low 32 bits of a whole number.
U32 low_bits(long double value) {
  const long double rest = std::fmod(value, 4294967296.0L);
  return static_cast<U32>(static_cast<std::int64_t>(rest));
}

U32 merged(const std::string& part, U32 value, U32 into) {
  if (part.empty()) return value;
  const U32 bits = part[0] == 'b' ? 8 : 16;
  const U32 at = static_cast<U32>(part[1] - '0') * bits;
  const U32 mask = ((U32{1} << bits) - 1) << at;
  return (into & ~mask) | (value << at & mask);
}

struct Case {
  std::string name;
  std::string d, a, b;              // Types, "s32" or "u32"; of vset d is none.
  std::string further;              // ".sat.add"
  std::string into, first, second;  // Parts.

  bool says(const char* word) const { return further.find(word) != further.npos; }
  bool has_third() const { return !into.empty() || says(".add") || says(".min") || says(".max"); }
  std::string text() const {
    const auto dotted = [](const std::string& part) { return part.empty() ? part : "." + part; };
    return name + dotted(d) + dotted(a) + dotted(b) + further + " %d" + dotted(into) + ", %a" +
           dotted(first) + ", %b" + dotted(second) + (has_third() ? ", %c;" : ";");
  }
};

long double primary(const Case& one, std::int64_t a, std::int64_t b) {
  if (one.name == "vadd") return static_cast<long double>(a + b);
  if (one.name == "vsub") return static_cast<long double>(a - b);
  if (one.name == "vabsdiff") return static_cast<long double>(std::abs(a - b));
  if (one.name == "vmin") return static_cast<long double>(std::min(a, b));
  if (one.name == "vmax") return static_cast<long double>(std::max(a, b));
  if (one.says(".eq")) return a == b;
  if (one.says(".ne")) return a != b;
  if (one.says(".lt")) return a < b;
  if (one.says(".le")) return a <= b;
  if (one.says(".gt")) return a > b;
  if (one.says(".ge")) return a >= b;
  const std::int64_t by = one.says(".wrap") ? b % 32 : std::min<std::int64_t>(b, 32);
  const long double scaled =
      std::ldexp(static_cast<long double>(a), static_cast<int>(one.name == "vshl" ? by : -by));
  return std::floor(scaled);
}

U32 reference(const Case& one, U32 a, U32 b, U32 c) {
  const bool sign = one.d == "s32";
  long double value =
      primary(one, part_of(a, one.first, one.a == "s32"), part_of(b, one.second, one.b == "s32"));
  const Range range = range_of(one.into, sign);
  if (one.says(".sat")) value = std::clamp(value, range.least, range.most);
  const auto third = static_cast<long double>(part_of(c, "", sign));
  if (one.says(".add")) return low_bits(value + third);
  if (one.says(".min")) return low_bits(std::min(value, third));
  if (one.says(".max")) return low_bits(std::max(value, third));
  return merged(one.into, low_bits(value), c);
}

void expect_as_told(const Case& one) {
  static const auto [a, b] = pairs(words());
  static const std::vector<U32> c = [] {
    std::vector<U32> values;
    for (std::size_t i = 0; i < a.size(); ++i) values.push_back(static_cast<U32>(i * 0x9e3779b9u));
    return values;
  }();
  const auto d = operate<U32>(one.text(), a, b, c);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(d[i], reference(one, a[i], b[i], c[i]))
        << one.text() << " of " << a[i] << ", " << b[i] << ", " << c[i];
  }
}

// Each instruction in all combinations of types, with these words behind them, on some parts.
void expect_all(const std::vector<std::string>& names, const std::vector<std::string>& seconds,
                const std::vector<std::string>& further) {
  const std::vector<std::string> parts = {"", "b0", "h1", "b3", "h0", "b1", "b2"};
  std::size_t next = 0;
  const auto part = [&] { return parts[next++ % parts.size()]; };
  for (const std::string& name : names) {
    for (const std::string& words : further) {
      for (const char* a : {"u32", "s32"}) {
        for (const std::string& b : seconds) {
          for (const char* d : {"u32", "s32"}) {
            Case one{name, name == "vset" ? "" : d, a, b, words, "", "", ""};
            expect_as_told(one);
            one.first = part();
            one.second = part();
            expect_as_told(one);
            if (one.has_third()) continue;
            one.into = parts[1 + next++ % 6];
            expect_as_told(one);
          }
        }
      }
    }
  }
}

TEST(ScalarVideo, CombinesPartsAndMergesOrCombinesTheResult) {
  expect_all({"vadd", "vsub", "vabsdiff", "vmin", "vmax"}, {"u32", "s32"},
             {"", ".sat", ".add", ".sat.min", ".sat.max", ".sat.add"});
}

TEST(ScalarVideo, ShiftsByWhatIsClampedOrWrapped) {
  expect_all({"vshl", "vshr"}, {"u32"},
             {".clamp", ".wrap", ".sat.clamp", ".sat.wrap", ".sat.clamp.add", ".sat.wrap.max"});
}

TEST(ScalarVideo, ComparesParts) {
  expect_all({"vset"}, {"u32", "s32"}, {".eq", ".ne", ".lt", ".le", ".gt", ".ge", ".lt.add"});
}

// The manual's steps with numbers that no type here holds: the low bits, and what .sat makes of
// them.
TEST(ScalarVideo, MultipliesAndAdds) {
  const auto run = [](const std::string& text, U32 a, U32 b, U32 c) {
    return operate<U32>(text, std::vector{a}, std::vector{b}, std::vector{c})[0];
  };
  const U32 minus = static_cast<U32>(-3);
  EXPECT_EQ(run("vmad.u32.u32.u32 %d, %a, %b, %c;", 7, 9, 5), 68U);
  EXPECT_EQ(run("vmad.s32.s32.u32 %d, %a, %b, %c;", minus, 9, 5), static_cast<U32>(-22));
  EXPECT_EQ(run("vmad.s32.u32.u32 %d, -%a, %b, %c;", 7, 9, 5), static_cast<U32>(-58));
  EXPECT_EQ(run("vmad.s32.u32.u32 %d, %a, -%b, %c;", 7, 9, 5), static_cast<U32>(-58));
  EXPECT_EQ(run("vmad.s32.u32.u32 %d, -%a, -%b, %c;", 7, 9, 5), 68U);
  EXPECT_EQ(run("vmad.s32.u32.u32 %d, %a, %b, -%c;", 7, 9, 5), 58U);
  EXPECT_EQ(run("vmad.u32.u32.u32.po %d, %a, %b, %c;", 7, 9, 5), 69U);
  EXPECT_EQ(run("vmad.u32.u32.u32.shr7 %d, %a, %b, %c;", 1000, 1000, 100), 1000100U >> 7);
  EXPECT_EQ(run("vmad.s32.s32.s32.shr15 %d, %a, %b, %c;", minus, 1 << 20, 0),
            static_cast<U32>(-96));
  EXPECT_EQ(run("vmad.u32.u32.u32.sat %d, %a, %b, %c;", 1 << 20, 1 << 20, 0), 0xffffffffU);
  EXPECT_EQ(run("vmad.s32.u32.u32.sat %d, -%a, %b, %c;", ~U32{0}, ~U32{0}, 0), 0x80000000U);
  EXPECT_EQ(run("vmad.s32.s32.s32.sat %d, %a, %b, %c;", 0x80000000, 0x80000000, 0), 0x7fffffffU);
  EXPECT_EQ(run("vmad.u32.u32.u32.sat.shr15 %d, %a, %b, %c;", 1 << 20, 1 << 20, 0), 1U << 25);
  EXPECT_EQ(run("vmad.s32.s32.u32 %d, %a.b1, %b.h1, %c;", 0x8000, 0x00030000, 1),
            static_cast<U32>(-383));
}

TEST(ScalarVideo, RefusesByNameWhatThereIsNot) {
  const auto refusal = [](const std::string& body) {
    const TestDevice device(operation_kernel(body, 4, {4, 4, 4}));
    return device.error() + device.log();
  };
  for (const std::string body :
       {"vadd.u32.u32.u32 %d.b0, %a, %b;", "vadd.u32.u32.u32.add %d.b0, %a, %b, %c;",
        "vadd.u32.u32.u32 %d, %a.b4, %b;", "vadd.u32.u32.u32 %d, %a, %b, %c;",
        "vshl.u32.u32.s32.clamp %d, %a, %b;", "vshl.u32.u32.u32 %d, %a, %b;",
        "vmad.u32.u32.u32.po %d, -%a, %b, %c;", "vmad.u32.u32.u32 %d, -%a, %b, -%c;",
        "vset.u32.u32 %d, %a, %b;", "vadd.u64.u32.u32 %d, %a, %b;"}) {
    const std::string said = refusal(body);
    EXPECT_NE(said.find(body.substr(0, body.find(' '))), said.npos) << body << ": " << said;
  }
  EXPECT_NE(refusal("add.u32 %d, %a.b0, %b;").find("add.u32"), std::string::npos);
  EXPECT_NE(refusal("add.u32 %d, -%a, %b;").find("add.u32"), std::string::npos);
  EXPECT_NE(refusal("vadd4.u32.u32.u32 %d.b01, %a, %b, %c;").find("vadd4"), std::string::npos);
  EXPECT_NE(refusal("vadd4.u32.u32.u32 %d, %a.b321, %b, %c;").find("vadd4"), std::string::npos);
  EXPECT_NE(refusal("vadd2.u32.u32.u32 %d, %a.h40, %b, %c;").find("vadd2"), std::string::npos);
}

}  // namespace
}  // namespace flyt::ptx
