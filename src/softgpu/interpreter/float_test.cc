#include <cfenv>
#include <cmath>

#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/testing/operate.h"

namespace flyt::ptx {
namespace {

std::uint32_t canonical_bits(float value) { return bits_of(canonical(value)); }

// f(x, y) computed in a rounding direction of the host, one value at a time.
template <class T, class F>
T rounded(int direction, F&& f, T x, T y) {
  const int before = std::fegetround();
  std::fesetround(direction);
  volatile T a = x;
  volatile T b = y;
  volatile T result = f(a, b);
  std::fesetround(before);
  return result;
}

struct Direction {
  const char* name;
  int host;
};
constexpr Direction kDirections[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

template <class T>
auto bits(T value) {
  if constexpr (sizeof(T) == 4)
    return canonical_bits(value);
  else
    return value == value ? bits_of(value) : ~std::uint64_t{0};
}

template <class T, class F>
void expect_rounded(const std::string& opcode, const std::vector<T>& values, F&& reference) {
  const auto [a, b] = pairs(values);
  for (const Direction& direction : kDirections) {
    const std::string instruction =
        opcode + "." + direction.name + (sizeof(T) == 4 ? ".f32" : ".f64") + " %d, %a, %b;";
    const auto d = operate<T>(instruction, a, b);
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(bits(d[i]), bits(rounded<T>(direction.host, reference, a[i], b[i])))
          << instruction << " " << a[i] << ", " << b[i];
    }
  }
}

TEST(Float, RoundsSumsProductsAndQuotientsInEveryDirection) {
  const auto singles = float_edges();
  const auto doubles = double_edges();
  expect_rounded("add", singles, [](float a, float b) { return a + b; });
  expect_rounded("sub", singles, [](float a, float b) { return a - b; });
  expect_rounded("mul", singles, [](float a, float b) { return a * b; });
  expect_rounded("div", singles, [](float a, float b) { return a / b; });
  expect_rounded("add", doubles, [](double a, double b) { return a + b; });
  expect_rounded("mul", doubles, [](double a, double b) { return a * b; });
  expect_rounded("div", doubles, [](double a, double b) { return a / b; });
}

TEST(Float, RoundsRootsAndReciprocalsInEveryDirection) {
  const auto values = float_edges();
  for (const Direction& direction : kDirections) {
    const std::string suffix = std::string(".") + direction.name + ".f32 %d, %a;";
    const auto roots = operate<float>("sqrt" + suffix, values);
    const auto reciprocals = operate<float>("rcp" + suffix, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto root = [](float a, float) { return std::sqrt(a); };
      const auto reciprocal = [](float a, float) { return 1.0f / a; };
      EXPECT_EQ(bits(roots[i]), bits(rounded<float>(direction.host, root, values[i], 0)));
      EXPECT_EQ(bits(reciprocals[i]),
                bits(rounded<float>(direction.host, reciprocal, values[i], 0)));
    }
  }
}

TEST(Float, FusesWithOneRounding) {
  const auto values = float_edges();
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;
  for (const float x : values) {
    for (const float y : values) {
      for (const float z : values) {
        a.push_back(x);
        b.push_back(y);
        c.push_back(z);
      }
    }
  }
  const auto d = operate<float>("fma.rn.f32 %d, %a, %b, %c;", a, b, c);
  const auto up = operate<float>("fma.rp.f32 %d, %a, %b, %c;", a, b, c);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(bits(d[i]), bits(std::fma(a[i], b[i], c[i]))) << a[i] << " " << b[i] << " " << c[i];
    // The portable way must agree with the processor's.
    ASSERT_EQ(bits(fused(a[i], b[i], c[i])), bits(std::fma(a[i], b[i], c[i])));
    ASSERT_TRUE(up[i] != up[i] || up[i] >= d[i]);
  }
}

TEST(Float, FlushesSubnormalOperandsAndResults) {
  const std::vector<std::uint32_t> a = {0x00000001, 0x80000001, 0x00800000, 0x3f800000};
  const std::vector<std::uint32_t> b = {0x3f800000, 0x3f800000, 0x3f000000, 0x00400000};
  EXPECT_EQ(operate<std::uint32_t>("mul.rn.ftz.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint32_t>{0, 0x80000000, 0, 0}));
  EXPECT_EQ(operate<std::uint32_t>("mul.rn.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint32_t>{1, 0x80000001, 0x00400000, 0x00400000}));
}

TEST(Float, GivesTheCanonicalNan) {
  const std::vector<std::uint32_t> a = {0xffc12345, 0x7f800000, 0x7f800001};
  const std::vector<std::uint32_t> b = {0x3f800000, 0xff800000, 0x40000000};
  for (const auto bits : operate<std::uint32_t>("add.f32 %d, %a, %b;", a, b)) {
    EXPECT_EQ(bits, 0x7fffffffu);
  }
}

TEST(Float, SaturatesToTheUnitIntervalAndNanToZero) {
  const std::vector<float> a = {-3, 0.25f, 7, NAN, -0.0f};
  const std::vector<float> b(5, 0.0f);
  EXPECT_EQ(operate<float>("add.sat.f32 %d, %a, %b;", a, b),
            (std::vector<float>{0, 0.25f, 1, 0, 0}));
}

TEST(Float, ExtremesIgnoreNansUnlessAskedFor) {
  const std::vector<std::uint32_t> a = {0x7fc00000, 0x3f800000, 0x80000000, 0x7fc00000};
  const std::vector<std::uint32_t> b = {0x3f800000, 0x7fc00000, 0x00000000, 0x7fc00001};
  EXPECT_EQ(operate<std::uint32_t>("min.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint32_t>{0x3f800000, 0x3f800000, 0x80000000, 0x7fffffff}));
  EXPECT_EQ(operate<std::uint32_t>("max.NaN.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint32_t>{0x7fffffff, 0x7fffffff, 0, 0x7fffffff}));
}

TEST(Float, ExtremesMayBeOfThree) {
  const std::vector<std::uint32_t> a = {0x3f800000, 0x7fc00000};
  const std::vector<std::uint32_t> b = {0xc0000000, 0x40000000};
  const std::vector<std::uint32_t> c = {0x40400000, 0x40400000};
  EXPECT_EQ(operate<std::uint32_t>("max.f32 %d, %a, %b, %c;", a, b, c),
            (std::vector<std::uint32_t>{0x40400000, 0x40400000}));
  EXPECT_EQ(operate<std::uint32_t>("min.NaN.f32 %d, %a, %b, %c;", a, b, c),
            (std::vector<std::uint32_t>{0xc0000000, 0x7fffffff}));
  EXPECT_EQ(operate<std::uint32_t>("min.abs.f32 %d, %b, %c, %c;", a, b, c),
            (std::vector<std::uint32_t>{0x40000000, 0x40000000}));
}

TEST(Float, PairsAreTwoNumbersInOneRegister) {
  // {1.5, -2}, {2^-149, 3}
  const std::vector<std::uint64_t> a = {0xc00000003fc00000, 0x4040000000000001};
  const std::vector<std::uint64_t> b = {0x4080000040000000, 0x3f80000000000001};
  EXPECT_EQ(operate<std::uint64_t>("add.rn.f32x2 %d, %a, %b;", a, b),
            (std::vector<std::uint64_t>{0x4000000040600000, 0x4080000000000002}));
  EXPECT_EQ(operate<std::uint64_t>("add.ftz.f32x2 %d, %a, %b;", a, b)[1], 0x4080000000000000u);
  EXPECT_EQ(operate<std::uint64_t>("sub.f32x2 %d, %a, %b;", a, b)[0], 0xc0c00000bf000000u);
  EXPECT_EQ(operate<std::uint64_t>("mul.rp.f32x2 %d, %a, %b;", a, b),
            (std::vector<std::uint64_t>{0xc100000040400000, 0x4040000000000001}));
  EXPECT_EQ(operate<std::uint64_t>("fma.rn.f32x2 %d, %a, %b, %a;", a, b)[0], 0xc120000040900000u);
  EXPECT_EQ(operate<std::uint64_t>("mov.b64 %d, %a; fma.rz.f32x2 %d, %d, %b, %d;", a, b)[0],
            0xc120000040900000u);
}

TEST(Float, ApproximationsAreCloseAndRightAtTheEdges) {
  const std::vector<float> x = {0.5f, 1, 2, 10.25f, 100};
  const auto sine = operate<float>("sin.approx.f32 %d, %a;", x);
  const auto power = operate<float>("ex2.approx.ftz.f32 %d, %a;", x);
  const auto logarithm = operate<float>("lg2.approx.f32 %d, %a;", x);
  const auto root = operate<float>("rsqrt.approx.f32 %d, %a;", x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(sine[i], std::sin(x[i]), 1e-6);
    EXPECT_FLOAT_EQ(power[i], std::exp2(x[i]));
    EXPECT_FLOAT_EQ(logarithm[i], std::log2(x[i]));
    EXPECT_FLOAT_EQ(root[i], 1 / std::sqrt(x[i]));
  }
  const std::vector<float> edges = {0, -INFINITY, INFINITY};
  EXPECT_EQ(operate<float>("ex2.approx.f32 %d, %a;", edges), (std::vector<float>{1, 0, INFINITY}));
  EXPECT_EQ(operate<float>("lg2.approx.f32 %d, %a;", std::vector<float>{0, INFINITY}),
            (std::vector<float>{-INFINITY, INFINITY}));
}

TEST(Float, TestsProperties) {
  const std::vector<float> x = {1, INFINITY, NAN, 1e-40f, 0};
  const auto test = [&](const std::string& property) {
    return operate<std::uint32_t>("testp." + property + ".f32 %p, %a; selp.u32 %d, 1, 0, %p;", x);
  };
  using Bits = std::vector<std::uint32_t>;
  EXPECT_EQ(test("finite"), (Bits{1, 0, 0, 1, 1}));
  EXPECT_EQ(test("notanumber"), (Bits{0, 0, 1, 0, 0}));
  EXPECT_EQ(test("normal"), (Bits{1, 0, 0, 0, 0}));
  EXPECT_EQ(test("subnormal"), (Bits{0, 0, 0, 1, 0}));
}

TEST(Half, RoundsEverySumAndProductOfSomeValuesOnce) {
  std::vector<std::uint16_t> values;
  for (unsigned bits = 0; bits < 0x10000; bits += 401)
    values.push_back(static_cast<std::uint16_t>(bits));
  const auto [a, b] = pairs(values);
  const auto sums = operate<std::uint16_t>("add.f16 %d, %a, %b;", a, b);
  const auto products = operate<std::uint16_t>("mul.rn.bf16 %d, %a, %b;", a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double sum = widen(a[i], kHalfFormat) + widen(b[i], kHalfFormat);
    ASSERT_EQ(sums[i], narrow(sum, kHalfFormat, Rounding::kNearest, false)) << a[i] << " " << b[i];
    const double product = widen(a[i], kBfloatFormat) * widen(b[i], kBfloatFormat);
    ASSERT_EQ(products[i], narrow(product, kBfloatFormat, Rounding::kNearest, false))
        << a[i] << " " << b[i];
  }
}

TEST(Half, WhatIsNotPositiveIsPlusZeroWhereThatIsAskedFor) {
  const std::vector<std::uint32_t> a = {0x80008000};  // -0, -0
  const std::vector<std::uint32_t> b = {0x00003c00};  // 0, 1
  EXPECT_EQ(operate<std::uint32_t>("fma.rn.f16x2 %d, %a, %b, %c;", a, b, a)[0], 0x80008000u);
  EXPECT_EQ(operate<std::uint32_t>("fma.rn.relu.f16x2 %d, %a, %b, %c;", a, b, a)[0], 0u);
}

TEST(Half, WorksOnBothHalvesOfAPair) {
  const std::vector<std::uint32_t> a = {0x3c004000};  // 1, 2
  const std::vector<std::uint32_t> b = {0x42004400};  // 3, 4
  const std::vector<std::uint32_t> c = {0xc4003c00};  // -4, 1
  EXPECT_EQ(operate<std::uint32_t>("fma.rn.f16x2 %d, %a, %b, %c;", a, b, c)[0], 0xbc004880u);
  EXPECT_EQ(operate<std::uint32_t>("fma.rn.relu.f16x2 %d, %a, %b, %c;", a, b, c)[0], 0x00004880u);
  EXPECT_EQ(operate<std::uint32_t>("neg.f16x2 %d, %a;", a)[0], 0xbc00c000u);
  EXPECT_EQ(operate<std::uint32_t>("setp.gt.f16x2 %p|%q, %a, %b; selp.u32 %x0, 1, 0, %p;"
                                   "selp.u32 %d, 2, %x0, %q;",
                                   b, c)[0],
            2u);
}

TEST(Compare, OrderedAndUnorderedAgreeButForNans) {
  const std::vector<float> a = {1, 2, NAN};
  const std::vector<float> b = {2, 1, 1};
  const auto compare = [&](const std::string& how) {
    return operate<std::uint32_t>("set." + how + ".u32.f32 %d, %a, %b;", a, b);
  };
  using Bits = std::vector<std::uint32_t>;
  constexpr std::uint32_t kYes = ~0u;
  EXPECT_EQ(compare("lt"), (Bits{kYes, 0, 0}));
  EXPECT_EQ(compare("ltu"), (Bits{kYes, 0, kYes}));
  EXPECT_EQ(compare("ne"), (Bits{kYes, kYes, 0}));
  EXPECT_EQ(compare("neu"), (Bits{kYes, kYes, kYes}));
  EXPECT_EQ(compare("nan"), (Bits{0, 0, kYes}));
  EXPECT_EQ(compare("num"), (Bits{kYes, kYes, 0}));
}

TEST(Compare, JoinsAnswersWithPredicates) {
  const std::vector<std::uint32_t> a = {1, 5};
  const std::vector<std::uint32_t> b = {3, 3};
  EXPECT_EQ(operate<std::uint32_t>("setp.lt.u32 %q, %a, %b;"
                                   "setp.gt.and.u32 %p|%q, %b, 2, !%q;"
                                   "selp.u32 %x0, 1, 0, %p; selp.u32 %x1, 2, 0, %q;"
                                   "or.b32 %d, %x0, %x1;",
                                   a, b),
            (std::vector<std::uint32_t>{0, 1}));
}

}  // namespace
}  // namespace flyt::ptx
