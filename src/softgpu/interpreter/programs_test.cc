// Whole kernels as nvcc compiles them, optimised and for debugging.
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "softgpu/interpreter/numeric.h"
#include "softgpu/interpreter/testing/device.h"

namespace flyt::ptx {
namespace {

class Programs : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string text() {
    std::ifstream file(std::string(FLYT_TEST_KERNELS) + "/" + GetParam());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  TestDevice device_{text()};
};

TEST_P(Programs, CallThroughTablesOfFunctions) {
  ASSERT_EQ(device_.error(), "");
  device_.launch.block = {32, 1, 1};
  const auto out = device_.allocate(32 * 4);
  ASSERT_FALSE(device_.run("pick", out).has_value());
  const auto values = device_.get<std::int32_t>(out, 32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(values[i], (i % 2 == 0 ? 2 * i : 3 * i) + i % 4 + 1);
}

TEST_P(Programs, ReduceOverWarpsAndBlocks) {
  ASSERT_EQ(device_.error(), "");
  std::vector<std::int32_t> in(4096);
  std::int32_t sum = 0;
  for (int i = 0; i < 4096; ++i) sum += in[i] = i * 7 % 1001 - 300;
  const auto out = device_.put(std::vector<std::int32_t>{0});
  device_.launch.grid = {32, 1, 1};
  device_.launch.block = {128, 1, 1};
  ASSERT_FALSE(device_.run("warp_sum", device_.put(in), out).has_value());
  EXPECT_EQ(device_.get<std::int32_t>(out, 1)[0], sum);
}

TEST_P(Programs, MixHalvesAndConstants) {
  ASSERT_EQ(device_.error(), "");
  const std::vector<std::uint32_t> a = {0x3c004000, 0x38003c00};  // (2, 1), (1, 0.5)
  const std::vector<std::uint32_t> b = {0x00003c00, 0x3c000000};  // (1, 0), (0, 1)
  const auto c = device_.allocate(8);
  device_.launch.block = {2, 1, 1};
  ASSERT_FALSE(device_.run("halves", device_.put(a), device_.put(b), c).has_value());
  const auto values = device_.get<float>(c, 2);
  EXPECT_NEAR(values[0], 0.5 * 5 / (1 + std::exp(1.0)), 1e-5);
  EXPECT_NEAR(values[1], 2.0 * 1 / (1 + std::exp(1.25)), 1e-5);
}

TEST_P(Programs, BranchByCases) {
  ASSERT_EQ(device_.error(), "");
  const auto d = device_.put(std::vector<std::int32_t>{5, 4, 3, 2, 1, 0, -1, 6});
  device_.launch.block = {8, 1, 1};
  ASSERT_FALSE(device_.run("cases", d).has_value());
  EXPECT_EQ(device_.get<std::int32_t>(d, 8), (std::vector<std::int32_t>{0, 11, 9, -7, 9, 4, 1, 1}));
}

TEST_P(Programs, Print) {
  ASSERT_EQ(device_.error(), "");
  ASSERT_FALSE(device_.run("speak", 9).has_value());
  EXPECT_EQ(device_.output(), "9 words  2.25\n");
}

TEST_P(Programs, IndexLocalMemory) {
  ASSERT_EQ(device_.error(), "");
  const auto out = device_.allocate(64 * 4);
  device_.launch.block = {64, 1, 1};
  ASSERT_FALSE(device_.run("spill", out, 29).has_value());
  int a[32];
  for (int i = 0; i < 32; ++i) a[i] = i * 29;
  for (int i = 0; i < 29; ++i) a[(i * 7) & 31] += a[(i * 3) & 31];
  int s = 0;
  for (const int value : a) s ^= value;
  for (const int value : device_.get<std::int32_t>(out, 64)) EXPECT_EQ(value, s);
}

TEST_P(Programs, Recurse) {
  ASSERT_EQ(device_.error(), "");
  const auto out = device_.allocate(16 * 4);
  device_.launch.block = {16, 1, 1};
  ASSERT_FALSE(device_.run("recurse", out).has_value());
  EXPECT_EQ(device_.get<std::int32_t>(out, 16)[15], 610);
}

TEST_P(Programs, MakeObjectsWithVirtualFunctions) {
  ASSERT_EQ(device_.error(), "");
  const auto out = device_.allocate(32 * 4);
  device_.launch.block = {32, 1, 1};
  ASSERT_FALSE(device_.run("shapes", out).has_value());
  const auto values = device_.get<float>(out, 32);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(values[i], static_cast<float>(i % 2 == 0 ? i * i : i * 3));
  }
  EXPECT_EQ(device_.released(), 32);
}

TEST_P(Programs, MultiplyMatricesByTiles) {
  ASSERT_EQ(device_.error(), "");
  constexpr int kSide = 64;
  std::vector<float> a(kSide * kSide);
  std::vector<float> b(kSide * kSide);
  for (int i = 0; i < kSide * kSide; ++i) {
    a[i] = static_cast<float>(i % 13 - 6);
    b[i] = static_cast<float>(i % 7 - 3);
  }
  const auto c = device_.allocate(kSide * kSide * 4);
  device_.launch.grid = {kSide / 16, kSide / 16, 1};
  device_.launch.block = {16, 16, 1};
  ASSERT_FALSE(device_.run("tile", device_.put(a), device_.put(b), c, kSide).has_value());
  const auto values = device_.get<float>(c, kSide * kSide);
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      float sum = 0;
      for (int k = 0; k < kSide; ++k) sum += a[i * kSide + k] * b[k * kSide + j];
      ASSERT_EQ(values[i * kSide + j], sum);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ByNvcc, Programs, ::testing::Values("optimized.ptx", "debug.ptx"),
                         [](const auto& info) { return std::string(info.param).substr(0, 5); });

}  // namespace
}  // namespace flyt::ptx
