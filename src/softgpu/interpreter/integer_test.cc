// Integer instructions against what the host computes.
#include <algorithm>
#include <type_traits>

#include "softgpu/interpreter/testing/operate.h"

namespace flyt::ptx {
namespace {

template <class T, class F>
void expect_binary(std::string_view instruction, F&& reference) {
  const auto [a, b] = pairs(integer_edges<T>());
  const auto d = operate<T>(std::string(instruction) + " %d, %a, %b;", a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(d[i], static_cast<T>(reference(a[i], b[i])))
        << instruction << " " << +a[i] << ", " << +b[i];
  }
}

TEST(Integer, AddsSubtractsAndMultipliesModuloItsSize) {
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  expect_binary<U16>("add.u16", [](U16 a, U16 b) { return a + b; });
  expect_binary<U32>("add.s32", [](U32 a, U32 b) { return a + b; });
  expect_binary<U64>("sub.s64", [](U64 a, U64 b) { return a - b; });
  expect_binary<U16>("mul.lo.u16", [](U16 a, U16 b) { return static_cast<U32>(a) * b; });
  expect_binary<U32>("mul.lo.s32", [](U32 a, U32 b) { return a * b; });
  expect_binary<U64>("mul.lo.u64", [](U64 a, U64 b) { return a * b; });
}

TEST(Integer, GivesTheHighHalfOfProducts) {
  expect_binary<std::int32_t>("mul.hi.s32",
                              [](std::int64_t a, std::int64_t b) { return (a * b) >> 32; });
  expect_binary<std::uint32_t>("mul.hi.u32",
                               [](std::uint64_t a, std::uint64_t b) { return (a * b) >> 32; });
  __extension__ using Wide = __int128;
  __extension__ using UnsignedWide = unsigned __int128;
  expect_binary<std::int64_t>("mul.hi.s64", [](Wide a, Wide b) { return (a * b) >> 64; });
  expect_binary<std::uint64_t>("mul.hi.u64",
                               [](UnsignedWide a, UnsignedWide b) { return (a * b) >> 64; });
}

TEST(Integer, SaturatesSumsOfThirtyTwoBits) {
  expect_binary<std::int32_t>("add.sat.s32", [](std::int64_t a, std::int64_t b) {
    return std::clamp<std::int64_t>(a + b, INT32_MIN, INT32_MAX);
  });
  expect_binary<std::int32_t>("sub.sat.s32", [](std::int64_t a, std::int64_t b) {
    return std::clamp<std::int64_t>(a - b, INT32_MIN, INT32_MAX);
  });
}

TEST(Integer, DividesTowardsZeroAndNeverTraps) {
  const auto divide = [](auto a, auto b) {
    using T = decltype(a);
    if (b == 0) return static_cast<T>(-1);
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - a);
    return static_cast<T>(a / b);
  };
  expect_binary<std::uint32_t>("div.u32", divide);
  expect_binary<std::uint64_t>("div.u64", divide);
  const auto [a, b] = pairs(integer_edges<std::int32_t>());
  const auto quotients = operate<std::int32_t>("div.s32 %d, %a, %b;", a, b);
  const auto rests = operate<std::int32_t>("rem.s32 %d, %a, %b;", a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (b[i] == 0) continue;
    const std::int64_t wide = std::int64_t{a[i]} / b[i];
    EXPECT_EQ(quotients[i], static_cast<std::int32_t>(wide));
    EXPECT_EQ(rests[i], static_cast<std::int32_t>(std::int64_t{a[i]} % b[i]));
  }
}

TEST(Integer, ComparesBySign) {
  expect_binary<std::int32_t>("min.s32", [](auto a, auto b) { return a < b ? a : b; });
  expect_binary<std::uint32_t>("max.u32", [](auto a, auto b) { return a > b ? a : b; });
  expect_binary<std::int16_t>("max.s16", [](auto a, auto b) { return a > b ? a : b; });
  expect_binary<std::uint64_t>("min.u64", [](auto a, auto b) { return a < b ? a : b; });
}

TEST(Integer, ShiftsByMoreThanItsSizeGiveZerosOrSigns) {
  const auto a = integer_edges<std::int32_t>();
  for (const std::uint32_t count : {0u, 1u, 31u, 32u, 33u, 255u, 0xffffffffu}) {
    const std::vector<std::uint32_t> counts(a.size(), count);
    const auto left = operate<std::int32_t>("shl.b32 %d, %a, %b;", a, counts);
    const auto right = operate<std::int32_t>("shr.s32 %d, %a, %b;", a, counts);
    const auto logical = operate<std::uint32_t>("shr.u32 %d, %a, %b;", a, counts);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto u = static_cast<std::uint32_t>(a[i]);
      EXPECT_EQ(left[i], count > 31 ? 0 : static_cast<std::int32_t>(u << count));
      EXPECT_EQ(right[i], a[i] >> (count > 31 ? 31 : count));
      EXPECT_EQ(logical[i], count > 31 ? 0 : u >> count);
    }
  }
}

TEST(Integer, CarriesThroughChains) {
  const auto [a, b] = pairs(integer_edges<std::uint64_t>());
  const std::string split = "mov.b64 {%x0, %x1}, %a; mov.b64 {%x2, %x3}, %b;";
  const auto sums = operate<std::uint64_t>(
      split + "add.cc.u32 %x0, %x0, %x2; addc.u32 %x1, %x1, %x3; mov.b64 %d, {%x0, %x1};", a, b);
  const auto differences = operate<std::uint64_t>(
      split + "sub.cc.u32 %x0, %x0, %x2; subc.u32 %x1, %x1, %x3; mov.b64 %d, {%x0, %x1};", a, b);
  const auto flags = operate<std::uint32_t>(
      split + "sub.cc.u32 %x0, %x0, %x2; subc.cc.u32 %x1, %x1, %x3; addc.u32 %d, 0, 0;", a, b);
  const auto products =
      operate<std::uint64_t>(split +
                                 "mad.lo.cc.u32 %x4, %x0, %x2, %x1; madc.hi.u32 %x5, %x0, %x2, %x3;"
                                 "mov.b64 %d, {%x4, %x5};",
                             a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(sums[i], a[i] + b[i]);
    EXPECT_EQ(differences[i], a[i] - b[i]);
    // After a subtraction the flag means that nothing was borrowed.
    EXPECT_EQ(flags[i], a[i] >= b[i] ? 1u : 0u);
    EXPECT_EQ(products[i],
              (a[i] & 0xffffffff) * (b[i] & 0xffffffff) + (a[i] >> 32) + (b[i] >> 32 << 32));
  }
}

TEST(Integer, FindsAndCountsBits) {
  const auto a = integer_edges<std::uint64_t>();
  const auto ones = operate<std::uint32_t>("popc.b64 %d, %a;", a);
  const auto zeros = operate<std::uint32_t>("clz.b64 %d, %a;", a);
  const auto highest = operate<std::uint32_t>("bfind.s64 %d, %a;", a);
  const auto shifts = operate<std::uint32_t>("bfind.shiftamt.u64 %d, %a;", a);
  const auto reversed = operate<std::uint64_t>("brev.b64 %d, %a;", a);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(ones[i], static_cast<std::uint32_t>(std::popcount(a[i])));
    EXPECT_EQ(zeros[i], static_cast<std::uint32_t>(std::countl_zero(a[i])));
    const std::uint64_t unlike = static_cast<std::int64_t>(a[i]) < 0 ? ~a[i] : a[i];
    EXPECT_EQ(highest[i],
              unlike == 0 ? ~0u : 63u - static_cast<std::uint32_t>(std::countl_zero(unlike)));
    EXPECT_EQ(shifts[i], a[i] == 0 ? ~0u : static_cast<std::uint32_t>(std::countl_zero(a[i])));
    for (int bit = 0; bit < 64; ++bit) {
      ASSERT_EQ(reversed[i] >> bit & 1, a[i] >> (63 - bit) & 1);
    }
  }
}

TEST(Integer, ExtractsAndInsertsFields) {
  const std::vector<std::uint32_t> a = {0x89abcdef, 0x89abcdef, 0x89abcdef, 0x89abcdef, 0xffffffff};
  const std::vector<std::uint32_t> position = {4, 28, 40, 0, 8};
  const std::vector<std::uint32_t> length = {8, 8, 8, 0, 255};
  EXPECT_EQ(operate<std::uint32_t>("bfe.u32 %d, %a, %b, %c;", a, position, length),
            (std::vector<std::uint32_t>{0xde, 0x8, 0, 0, 0x00ffffff}));
  EXPECT_EQ(operate<std::uint32_t>("bfe.s32 %d, %a, %b, %c;", a, position, length),
            (std::vector<std::uint32_t>{0xffffffde, 0xfffffff8, 0xffffffff, 0, 0xffffffff}));
  EXPECT_EQ(operate<std::uint32_t>("bfi.b32 %d, %a, 0, %b, %c;", a, position, length),
            (std::vector<std::uint32_t>{0xef0, 0xf0000000, 0, 0, 0xffffff00}));
}

TEST(Integer, PermutesBytesInEveryMode) {
  const std::vector<std::uint32_t> a(4, 0x83828180);
  const std::vector<std::uint32_t> b(4, 0x07060504);
  const std::vector<std::uint32_t> general = {0x3210, 0x7654, 0x0123, 0xb8f4};
  EXPECT_EQ(operate<std::uint32_t>("prmt.b32 %d, %a, %b, %c;", a, b, general),
            (std::vector<std::uint32_t>{0x83828180, 0x07060504, 0x80818283, 0xffff0004}));
  const std::vector<std::uint32_t> low = {0, 1, 2, 3};
  EXPECT_EQ(operate<std::uint32_t>("prmt.b32.f4e %d, %a, %b, %c;", a, b, low),
            (std::vector<std::uint32_t>{0x83828180, 0x04838281, 0x05048382, 0x06050483}));
  EXPECT_EQ(operate<std::uint32_t>("prmt.b32.rc16 %d, %a, %b, %c;", a, b, low),
            (std::vector<std::uint32_t>{0x81808180, 0x83828382, 0x81808180, 0x83828382}));
}

TEST(Integer, VectorsMoveAtOnceAndByComponents) {
  const std::vector<std::uint32_t> a = {1, 2, 0xffffffff};
  const std::vector<std::uint32_t> b = {10, 20, 30};
  const auto d = operate<std::uint32_t>(
      "{ .reg .v2 .b32 %v<2>; .reg .b32 %s; mov.v2.b32 %v1, {%a, %b}; mov.b32 %v0.x, 5;\n"
      "mov.v2.b32 %v1, {%v1.y, %v1.x}; mov.b32 %v0.y, %v1.r; mov.b32 %s, %v1.g;\n"
      "mad.lo.u32 %d, %v0.y, 1000, %s; add.u32 %d, %d, %v0.x; }",
      a, b);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(d[i], b[i] * 1000 + a[i] + 5);
}

TEST(Integer, LooksUpEveryFunctionOfThreeBits) {
  const std::vector<std::uint32_t> a = {0xf0f0f0f0};
  const std::vector<std::uint32_t> b = {0xcccccccc};
  const std::vector<std::uint32_t> c = {0xaaaaaaaa};
  for (unsigned table = 0; table < 256; ++table) {
    const auto d =
        operate<std::uint32_t>("lop3.b32 %d, %a, %b, %c, " + std::to_string(table) + ";", a, b, c);
    ASSERT_EQ(d[0], table * 0x01010101u) << table;
  }
}

TEST(Integer, ReversesBits) {
  const std::vector<std::uint32_t> a = {1, 0x80000000, 0x12345678, ~0u};
  EXPECT_EQ(operate<std::uint32_t>("brev.b32 %d, %a;", a),
            (std::vector<std::uint32_t>{0x80000000, 1, 0x1e6a2c48, ~0u}));
  const std::vector<std::uint64_t> b = {1, 0x123456789abcdef0, ~std::uint64_t{0} << 60};
  EXPECT_EQ(operate<std::uint64_t>("brev.b64 %d, %a;", b),
            (std::vector<std::uint64_t>{std::uint64_t{1} << 63, 0x0f7b3d591e6a2c48, 15}));
}

TEST(Integer, OperandsMayBeConstantExpressionsInParentheses) {
  const std::vector<std::uint32_t> a = {100};
  EXPECT_EQ(operate<std::uint32_t>("add.u32 %d, %a, (3);", a)[0], 103u);
  EXPECT_EQ(operate<std::uint32_t>("mad.lo.u32 %d, %a, (1 << 2) | 1, (3 + 4) * 2;", a)[0], 514u);
}

TEST(Integer, ALookUpTellsAPredicateWhetherAnyBitIsSet) {
  const std::vector<std::uint32_t> a = {0xf0, 0xf0, 0, 0};
  const std::vector<std::uint32_t> b = {0x30, 0x0c, 1, 2};
  const std::vector<std::uint32_t> c = {1, 1, 0, 1};  // Whether the other predicate is set.
  const auto run = [&](const std::string& join, const std::string& d, const std::string& q) {
    return operate<std::uint32_t>("setp.ne.u32 %p, %c, 0; mov.b32 %d, 7;\nlop3." + join + ".b32 " +
                                      d + "|%q, %a, %b, %c, 0xc0, " + q +
                                      ";\n@%q add.u32 %d, %d, 100;",
                                  a, b, c);
  };
  EXPECT_EQ(run("and", "%d", "%p"), (std::vector<std::uint32_t>{0x30 + 100, 0, 0, 0}));
  EXPECT_EQ(run("or", "%d", "%p"), (std::vector<std::uint32_t>{0x30 + 100, 100, 0, 100}));
  EXPECT_EQ(run("or", "_", "!%p"), (std::vector<std::uint32_t>{107, 7, 107, 7}));
}

TEST(Integer, ShiftsPairsThroughAFunnel) {
  const std::vector<std::uint32_t> low(5, 0x89abcdef);
  const std::vector<std::uint32_t> high(5, 0x01234567);
  const std::vector<std::uint32_t> count = {0, 4, 31, 32, 36};
  EXPECT_EQ(
      operate<std::uint32_t>("shf.l.wrap.b32 %d, %a, %b, %c;", low, high, count),
      (std::vector<std::uint32_t>{0x01234567, 0x12345678, 0xc4d5e6f7, 0x01234567, 0x12345678}));
  EXPECT_EQ(
      operate<std::uint32_t>("shf.r.clamp.b32 %d, %a, %b, %c;", low, high, count),
      (std::vector<std::uint32_t>{0x89abcdef, 0x789abcde, 0x02468acf, 0x01234567, 0x01234567}));
}

TEST(Integer, AddsProductsOfBytes) {
  const std::vector<std::uint32_t> a = {0xff010203};
  const std::vector<std::uint32_t> b = {0x02ff0304};
  const std::vector<std::uint32_t> c = {100};
  EXPECT_EQ(operate<std::uint32_t>("dp4a.s32.s32 %d, %a, %b, %c;", a, b, c)[0],
            static_cast<std::uint32_t>(100 - 2 - 1 + 6 + 12));
  EXPECT_EQ(operate<std::uint32_t>("dp4a.u32.u32 %d, %a, %b, %c;", a, b, c)[0],
            100u + 510 + 255 + 6 + 12);
  EXPECT_EQ(operate<std::uint32_t>("dp2a.lo.s32.s32 %d, %a, %b, %c;", a, b, c)[0],
            static_cast<std::uint32_t>(100 + 0x0203 * 4 + (0xff01 - 65536) * 3));
}

}  // namespace
}  // namespace flyt::ptx
