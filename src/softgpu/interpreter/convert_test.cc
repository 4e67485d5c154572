#include <cmath>
#include <limits>

#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/testing/operate.h"

namespace flyt::ptx {
namespace {

TEST(Convert, ExtendsBySignOfTheSourceAndCuts) {
  const std::vector<std::uint32_t> a = {0x80, 0x7f, 0x12345680, 0xffffffff};
  using Words = std::vector<std::uint32_t>;
  EXPECT_EQ(operate<std::uint32_t>("cvt.s32.s8 %d, %a;", a),
            (Words{0xffffff80, 0x7f, 0xffffff80, 0xffffffff}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.u32.u8 %d, %a;", a), (Words{0x80, 0x7f, 0x80, 0xff}));
  EXPECT_EQ(operate<std::uint64_t>("cvt.s64.s32 %d, %a;", a)[3], ~std::uint64_t{0});
  EXPECT_EQ(operate<std::uint64_t>("cvt.u64.u32 %d, %a;", a)[3], 0xffffffffull);
  EXPECT_EQ(operate<std::uint64_t>("cvt.s16.s8 %d, %a;", a)[0], 0xffffffffffffff80ull);
}

TEST(Convert, SaturatesIntegers) {
  const std::vector<std::int32_t> a = {-1, 127, 128, 70000, -70000};
  EXPECT_EQ(operate<std::int32_t>("cvt.sat.s8.s32 %d, %a;", a),
            (std::vector<std::int32_t>{-1, 127, 127, 127, -128}));
  EXPECT_EQ(operate<std::int32_t>("cvt.sat.u16.s32 %d, %a;", a),
            (std::vector<std::int32_t>{0, 127, 128, 65535, 0}));
}

TEST(Convert, RoundsFloatsToIntegersAndClamps) {
  const std::vector<float> a = {2.5f, -2.5f, 3.5f, 3e9f, -3e9f, NAN, 1e30f, -0.4f};
  using Ints = std::vector<std::int32_t>;
  EXPECT_EQ(operate<std::int32_t>("cvt.rni.s32.f32 %d, %a;", a),
            (Ints{2, -2, 4, INT32_MAX, INT32_MIN, 0, INT32_MAX, 0}));
  EXPECT_EQ(operate<std::int32_t>("cvt.rzi.s32.f32 %d, %a;", a),
            (Ints{2, -2, 3, INT32_MAX, INT32_MIN, 0, INT32_MAX, 0}));
  EXPECT_EQ(operate<std::int32_t>("cvt.rmi.s32.f32 %d, %a;", a),
            (Ints{2, -3, 3, INT32_MAX, INT32_MIN, 0, INT32_MAX, -1}));
  EXPECT_EQ(operate<std::int32_t>("cvt.rpi.s32.f32 %d, %a;", a),
            (Ints{3, -2, 4, INT32_MAX, INT32_MIN, 0, INT32_MAX, 0}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.rzi.u32.f32 %d, %a;", a),
            (std::vector<std::uint32_t>{2, 0, 3, 3000000000u, 0, 0, ~0u, 0}));
  EXPECT_EQ(operate<std::int64_t>("cvt.rzi.s64.f32 %d, %a;", a)[6], INT64_MAX);
  EXPECT_EQ(operate<float>("cvt.rni.f32.f32 %d, %a;", a)[0], 2.0f);
}

TEST(Convert, RoundsIntegersToFloatsInEveryDirection) {
  const std::vector<std::uint64_t> a = {0x1000001, 0xffffffffffffffff, 0x20000000000001, 5};
  EXPECT_EQ(operate<float>("cvt.rz.f32.u64 %d, %a;", a)[0], 16777216.0f);
  EXPECT_EQ(operate<float>("cvt.rp.f32.u64 %d, %a;", a)[0], 16777218.0f);
  EXPECT_EQ(operate<float>("cvt.rn.f32.u64 %d, %a;", a)[1], 0x1p64f);
  EXPECT_EQ(operate<float>("cvt.rm.f32.u64 %d, %a;", a)[1], 0x1.fffffep63f);
  EXPECT_EQ(operate<double>("cvt.rn.f64.u64 %d, %a;", a)[2], 0x1p53);
  EXPECT_EQ(operate<double>("cvt.rp.f64.u64 %d, %a;", a)[2], 0x1.0000000000001p53);
  EXPECT_EQ(operate<std::uint16_t>("cvt.rn.f16.u64 %d, %a;", a)[3], 0x4500);
}

// The figures are an H100's.
TEST(Convert, NansKeepWhatTheHardwareKeeps) {
  using Words = std::vector<std::uint32_t>;
  using Longs = std::vector<std::uint64_t>;
  const Longs wide = {0x7ff8000000000000, 0x7ff4000000000001, 0xfff8000000000123,
                      0x7fffffffffffffff};
  EXPECT_EQ(operate<std::uint32_t>("cvt.rn.f32.f64 %d, %a;", wide),
            (Words{0x7fc00000, 0x7fe00000, 0xffc00000, 0x7fffffff}));
  const Words narrow = {0x7fc00000, 0x7f800001, 0xffc01234, 0x7fffffff};
  EXPECT_EQ(
      operate<std::uint64_t>("cvt.f64.f32 %d, %a;", narrow),
      (Longs{0x7ff8000000000000, 0x7ff8000020000000, 0xfff8024680000000, 0x7fffffffe0000000}));
  EXPECT_EQ(operate<std::uint64_t>("cvt.ftz.f64.f32 %d, %a;", narrow),
            Longs(4, 0x7fffffffe0000000));
  for (const char* text :
       {"abs.f32 %d, %a;", "neg.f32 %d, %a;", "abs.ftz.f32 %d, %a;", "neg.ftz.f32 %d, %a;"}) {
    EXPECT_EQ(operate<std::uint32_t>(text, narrow), Words(4, 0x7fffffff)) << text;
  }
}

// ptxas makes a shift of the conversion, and additions and products of the others; read from its
// opcodes, not measured.
TEST(Convert, HalvesKeepANanOnlyWhereTheyAreShifted) {
  const std::vector<std::uint16_t> nans = {0x7f81, 0xff81, 0x7fff, 0xffff};
  EXPECT_EQ(operate<std::uint32_t>("cvt.f32.bf16 %d, %a;", nans),
            (std::vector<std::uint32_t>{0x7f810000, 0xff810000, 0x7fff0000, 0xffff0000}));
  for (const char* text : {"abs.bf16 %d, %a;", "neg.bf16 %d, %a;", "abs.f16 %d, %a;",
                           "neg.f16 %d, %a;", "abs.ftz.f16 %d, %a;", "neg.ftz.f16 %d, %a;"}) {
    EXPECT_EQ(operate<std::uint16_t>(text, nans), std::vector<std::uint16_t>(4, 0x7fff)) << text;
  }
  const std::vector<std::uint32_t> pairs = {0x3c007f81, 0xffffbc00};
  EXPECT_EQ(operate<std::uint32_t>("neg.f16x2 %d, %a;", pairs),
            (std::vector<std::uint32_t>{0xbc007fff, 0x7fff3c00}));
}

TEST(Convert, NarrowsDoublesInEveryDirection) {
  const auto a = double_edges();
  const auto down = operate<float>("cvt.rm.f32.f64 %d, %a;", a);
  const auto up = operate<float>("cvt.rp.f32.f64 %d, %a;", a);
  const auto nearest = operate<float>("cvt.rn.f32.f64 %d, %a;", a);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != a[i]) continue;
    EXPECT_EQ(nearest[i], static_cast<float>(a[i]));
    EXPECT_LE(static_cast<double>(down[i]), a[i]);
    EXPECT_GE(static_cast<double>(up[i]), a[i]);
    const bool exact = static_cast<double>(nearest[i]) == a[i];
    EXPECT_EQ(up[i], exact ? down[i] : std::nextafter(down[i], INFINITY));
  }
}

TEST(Convert, KnowsEveryHalfBothWays) {
  std::vector<std::uint16_t> a;
  for (unsigned bits = 0; bits < 0x10000; ++bits) a.push_back(static_cast<std::uint16_t>(bits));
  const auto wide = operate<float>("cvt.f32.f16 %d, %a;", a);
  const auto back = operate<std::uint16_t>("cvt.f32.f16 %x0, %a; cvt.rn.f16.f32 %d, %x0;", a);
  for (unsigned i = 0; i < 0x10000; ++i) {
    const double value = widen(i, kHalfFormat);
    if (value != value) {
      ASSERT_EQ(back[i], 0x7fff);
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide[i]), value);
    ASSERT_EQ(back[i], i);
  }
}

TEST(Convert, RoundsFloatsToHalvesLikeTheExactWay) {
  std::vector<float> a = float_edges();
  for (std::uint32_t bits = 0x33000000; bits < 0x48000000; bits += 70001) {
    a.push_back(float_of(bits));
  }
  const auto half = operate<std::uint16_t>("cvt.rn.f16.f32 %d, %a;", a);
  const auto toward_zero = operate<std::uint16_t>("cvt.rz.f16.f32 %d, %a;", a);
  const auto bfloat = operate<std::uint16_t>("cvt.rn.bf16.f32 %d, %a;", a);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(half[i], narrow(a[i], kHalfFormat, Rounding::kNearest, false)) << a[i];
    ASSERT_EQ(toward_zero[i], narrow(a[i], kHalfFormat, Rounding::kZero, false)) << a[i];
    ASSERT_EQ(bfloat[i], narrow(a[i], kBfloatFormat, Rounding::kNearest, false)) << a[i];
  }
}

TEST(Convert, CutsDoublesToIntegersAndClamps) {
  const std::vector<double> a = {-2.9, 3e9, -3e9, NAN, 1e30, -1e30, 0x1p62, -0.5, 0x1p63, 0x1.8p63};
  using Limits = std::numeric_limits<std::int64_t>;
  EXPECT_EQ(operate<std::int64_t>("cvt.rzi.s64.f64 %d, %a;", a),
            (std::vector<std::int64_t>{-2, 3000000000, -3000000000, Limits::min(), Limits::max(),
                                       Limits::min(), std::int64_t{1} << 62, 0, Limits::max(),
                                       Limits::max()}));
  constexpr std::uint64_t kTop = std::uint64_t{1} << 63;
  EXPECT_EQ(operate<std::uint64_t>("cvt.rzi.u64.f64 %d, %a;", a),
            (std::vector<std::uint64_t>{0, 3000000000, 0, kTop, ~std::uint64_t{0}, 0, kTop / 2, 0,
                                        kTop, kTop + kTop / 2}));
  EXPECT_EQ(operate<std::int32_t>("cvt.rzi.s32.f64 %d, %a;", a),
            (std::vector<std::int32_t>{-2, INT32_MAX, INT32_MIN, INT32_MIN, INT32_MAX, INT32_MIN,
                                       INT32_MAX, 0, INT32_MAX, INT32_MAX}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.rzi.u32.f64 %d, %a;", a),
            (std::vector<std::uint32_t>{0, 3000000000, 0, 1u << 31, ~0u, 0, ~0u, 0, ~0u, ~0u}));
  const std::vector<float> b = {-2.9f, 0x1p40f, NAN, 0x1p63f};
  EXPECT_EQ(operate<std::int64_t>("cvt.rzi.s64.f32 %d, %a;", b),
            (std::vector<std::int64_t>{-2, std::int64_t{1} << 40, Limits::min(), Limits::max()}));
}

TEST(Convert, PacksSaturatedIntegersOfAnySize) {
  const std::vector<std::int32_t> a = {3, -70000, 200};
  const std::vector<std::int32_t> b = {-1, 70000, -200};
  const std::vector<std::uint32_t> c = {0x12345678, 0x9abcdef0, 7};
  EXPECT_EQ(operate<std::uint32_t>("cvt.pack.sat.s16.s32 %d, %a, %b;", a, b, c),
            (std::vector<std::uint32_t>{0x0003ffff, 0x80007fff, 0x00c8ff38}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.pack.sat.u16.s32 %d, %a, %b;", a, b, c),
            (std::vector<std::uint32_t>{0x00030000, 0x0000ffff, 0x00c80000}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.pack.sat.s8.s32.b32 %d, %a, %b, %c;", a, b, c),
            (std::vector<std::uint32_t>{0x567803ff, 0xdef0807f, 0x00077f80}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.pack.sat.u4.s32.b32 %d, %a, %b, %c;", a, b, c),
            (std::vector<std::uint32_t>{0x34567830, 0xbcdef00f, 0x000007f0}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.pack.sat.s4.s32.b32 %d, %a, %b, %c;", a, b, c),
            (std::vector<std::uint32_t>{0x3456783f, 0xbcdef087, 0x00000778}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.pack.sat.s2.s32.b32 %d, %a, %b, %c;", a, b, c),
            (std::vector<std::uint32_t>{0x23456787, 0xabcdef09, 0x00000076}));
}

TEST(Convert, PacksTwoFloatsTheFirstOneHigh) {
  const std::vector<float> a = {1, -70000};
  const std::vector<float> b = {2, 0.5f};
  EXPECT_EQ(operate<std::uint32_t>("cvt.rn.f16x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint32_t>{0x3c004000, 0xfc003800}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint32_t>{0x3f804000, 0x00003f00}));
  EXPECT_EQ(operate<std::uint16_t>("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint16_t>{0x3840, 0xfe30}));
  EXPECT_EQ(operate<std::uint16_t>("cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint16_t>{0x3c40, 0xfb38}));
}

TEST(Convert, PacksTwoFloatsOfFourAndSixBits) {
  const std::vector<float> a = {1.5f, -7, 0.25f, NAN};
  const std::vector<float> b = {-0.5f, 100, 0.75f, INFINITY};
  EXPECT_EQ(operate<std::uint32_t>(".reg .b8 %s; cvt.rn.satfinite.e2m1x2.f32 %s, %a, %b;"
                                   "cvt.u32.u8 %d, %s;",
                                   a, b),
            (std::vector<std::uint32_t>{0x39, 0xf7, 0x02, 0x77}));
  EXPECT_EQ(operate<std::uint16_t>("cvt.rn.satfinite.e2m3x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint16_t>{0x0c24, 0x3e1f, 0x0206, 0x1f1f}));
  EXPECT_EQ(operate<std::uint16_t>("cvt.rn.satfinite.e3m2x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint16_t>{0x0e28, 0x371f, 0x040a, 0x1f1f}));
}

TEST(Convert, WidensFloatsOfFourAndSixBits) {
  const std::vector<std::uint32_t> a = {0x39, 0xf7};
  EXPECT_EQ(
      operate<std::uint32_t>(".reg .b8 %s; cvt.u8.u32 %s, %a; cvt.rn.f16x2.e2m1x2 %d, %s;", a),
      (std::vector<std::uint32_t>{0x3e00b800, 0xc6004600}));
  const std::vector<std::uint16_t> b = {0x0c24, 0x3e1f};
  EXPECT_EQ(operate<std::uint32_t>("cvt.rn.f16x2.e2m3x2 %d, %a;", b),
            (std::vector<std::uint32_t>{0x3e00b800, 0xc7004780}));
}

TEST(Convert, PowersOfTwoAreExponentsAlone) {
  const std::vector<float> a = {1, 3, -3, INFINITY};
  const std::vector<float> b = {0, 0x1p-126f, NAN, 0x1.8p127f};
  EXPECT_EQ(operate<std::uint16_t>("cvt.rz.satfinite.ue8m0x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint16_t>{0x7f00, 0x8001, 0x80ff, 0xfefe}));
  EXPECT_EQ(operate<std::uint16_t>("cvt.rp.ue8m0x2.f32 %d, %a, %b;", a, b),
            (std::vector<std::uint16_t>{0x7f00, 0x8101, 0x81ff, 0xffff}));
  EXPECT_EQ(operate<std::uint32_t>("cvt.rn.bf16x2.ue8m0x2 %d, %a;",
                                   std::vector<std::uint16_t>{0x7f00, 0xff80}),
            (std::vector<std::uint32_t>{0x3f800040, 0x7fff4000}));
}

TEST(Convert, KnowsEveryByteFloat) {
  std::vector<std::uint16_t> a;
  for (unsigned bits = 0; bits < 256; ++bits) a.push_back(static_cast<std::uint16_t>(bits));
  const auto halves = operate<std::uint32_t>("cvt.rn.f16x2.e4m3x2 %d, %a;", a);
  EXPECT_EQ(halves[0x38], 0x3c00u);
  EXPECT_EQ(halves[0x7e], 0x5f00u);  // 448
  EXPECT_EQ(halves[0x7f], 0x7fffu);
  EXPECT_EQ(halves[0x01], 0x1800u);  // 2^-9
}

TEST(Convert, RoundsToTf32) {
  const std::vector<std::uint32_t> a = {0x3f801000, 0x3f800fff, 0x3f803000};
  EXPECT_EQ(operate<std::uint32_t>("cvt.rna.tf32.f32 %d, %a;", a),
            (std::vector<std::uint32_t>{0x3f802000, 0x3f800000, 0x3f804000}));
}

TEST(Move, PacksAndUnpacksVectors) {
  const std::vector<std::uint64_t> a = {0x0123456789abcdef};
  EXPECT_EQ(operate<std::uint64_t>("mov.b64 {%x0, %x1}, %a; mov.b64 %d, {%x1, %x0};", a)[0],
            0x89abcdef01234567u);
  EXPECT_EQ(operate<std::uint64_t>(".reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a;"
                                   "mov.b64 %d, {%h3, %h2, %h1, %h0};",
                                   a)[0],
            0xcdef89ab45670123u);
  EXPECT_EQ(operate<std::uint32_t>("mov.b64 {_, %d}, %a;", a)[0], 0x01234567u);
  EXPECT_EQ(operate<std::uint64_t>(".reg .b128 %w; mov.b128 %w, {%a, 5}; mov.b128 {%t1, %t2}, %w;"
                                   "add.u64 %d, %t1, %t2;",
                                   a)[0],
            0x0123456789abcdf4u);
}

}  // namespace
}  // namespace flyt::ptx
