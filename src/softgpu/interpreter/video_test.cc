// Packed video instructions against what the host computes, field by field.
#include <algorithm>
#include <type_traits>

#include "softgpu/interpreter/testing/operate.h"

namespace flyt::ptx {
namespace {

using U32 = std::uint32_t;

std::vector<U32> words() {
  std::vector<U32> words = integer_edges<U32>();
  words.insert(words.end(),
               {0x80007fff, 0x7fff8000, 0x80808080, 0x7f80ff01, 0x0001fffe, 0xfe01ff00});
  return words;
}

// d = f(field of a, field of b) for fields of type T.
template <class T, class F>
void expect_packed(std::string_view instruction, F&& reference) {
  using Unsigned = std::make_unsigned_t<T>;
  constexpr unsigned kBits = 8 * sizeof(T);
  const auto [a, b] = pairs(words());
  const auto d = operate<U32>(std::string(instruction) + " %d, %a, %b, 0;", a, b);
  const auto sum = operate<U32>(std::string(instruction) + ".add %d, %a, %b, 7;", a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    U32 want = 0;
    U32 total = 7;
    for (unsigned at = 0; at < 32; at += kBits) {
      const int result =
          reference(int{static_cast<T>(a[i] >> at)}, int{static_cast<T>(b[i] >> at)});
      want |= U32{static_cast<Unsigned>(result)} << at;
      total += static_cast<U32>(result);
    }
    ASSERT_EQ(d[i], want) << instruction << " " << a[i] << ", " << b[i];
    ASSERT_EQ(sum[i], total) << instruction << ".add " << a[i] << ", " << b[i];
  }
}

TEST(Video, RoundsAveragesAwayFromZero) {
  const auto average = [](int a, int b) { return a + b < 0 ? (a + b) >> 1 : (a + b + 1) >> 1; };
  expect_packed<std::int16_t>("vavrg2.s32.s32.s32", average);
  expect_packed<std::int8_t>("vavrg4.s32.s32.s32", average);
  expect_packed<std::uint16_t>("vavrg2.u32.u32.u32", average);
  expect_packed<std::uint8_t>("vavrg4.u32.u32.u32", average);
}

TEST(Video, AddsAndSubtractsFieldsAndSaturates) {
  expect_packed<std::int16_t>("vadd2.s32.s32.s32", [](int a, int b) { return a + b; });
  expect_packed<std::int8_t>("vadd4.s32.s32.s32.sat",
                             [](int a, int b) { return std::clamp(a + b, -128, 127); });
  expect_packed<std::uint16_t>("vsub2.u32.u32.u32.sat",
                               [](int a, int b) { return std::clamp(a - b, 0, 65535); });
  expect_packed<std::uint8_t>("vabsdiff4.u32.u32.u32",
                              [](int a, int b) { return a < b ? b - a : a - b; });
}

// The fields of a and b have numbers, a's lowest is 0; the parts name them, the highest field
// first.
TEST(Video, TakesFieldsFromAnywhereAndWritesSome) {
  const U32 a = 0x04030201;
  const U32 b = 0x40302010;
  const U32 c = 0xaabbccdd;
  const auto run = [&](const std::string& text) {
    return operate<U32>(text, std::vector{a}, std::vector{b}, std::vector{c})[0];
  };
  EXPECT_EQ(run("vadd4.u32.u32.u32 %d, %a, %b, %c;"), 0x44332211U);
  EXPECT_EQ(run("vadd4.u32.u32.u32 %d.b3210, %a.b3210, %b.b7654, %c;"), 0x44332211U);
  EXPECT_EQ(run("vadd4.u32.u32.u32 %d, %a.b0123, %b, %c;"), 0x41322314U);
  EXPECT_EQ(run("vadd4.u32.u32.u32 %d, %a.b7700, %b.b0000, %c;"), 0x41410202U);
  EXPECT_EQ(run("vadd4.u32.u32.u32 %d.b20, %a, %b, %c;"), 0xaa33cc11U);
  EXPECT_EQ(run("vadd4.u32.u32.u32.add %d.b31, %a, %b, %c;"), c + 0x44 + 0x22);
  EXPECT_EQ(run("vadd2.u32.u32.u32 %d, %a.h01, %b, %c;"), 0x42312413U);
  EXPECT_EQ(run("vadd2.u32.u32.u32 %d.h1, %a.h23, %b.h00, %c;"), 0x2211ccddU);
  EXPECT_EQ(run("vset2.u32.u32.lt %d.h0, %a, %b, %c;"), 0xaabb0001U);
  EXPECT_EQ(run("vset4.u32.u32.gt.add %d.b210, %a.b4444, %b.b0123, %c;"), c + 3);
}

TEST(Video, ComparesFields) {
  expect_packed<std::int16_t>("vset2.s32.s32.lt", [](int a, int b) { return a < b; });
  expect_packed<std::uint16_t>("vset2.u32.u32.ge", [](int a, int b) { return a >= b; });
  expect_packed<std::int8_t>("vset4.s32.s32.gt", [](int a, int b) { return a > b; });
  expect_packed<std::uint8_t>("vset4.u32.u32.le", [](int a, int b) { return a <= b; });
  expect_packed<std::uint8_t>("vset4.u32.u32.eq", [](int a, int b) { return a == b; });
  expect_packed<std::int16_t>("vset2.s32.s32.ne", [](int a, int b) { return a != b; });
}

}  // namespace
}  // namespace flyt::ptx
