#include "client/code/launch.h"

#include <gtest/gtest.h>

#include <cstring>

namespace flyt::client {
namespace {

// A pointer, a 32-bit number, and a byte after a gap.
KernelCode three_parameters() {
  KernelCode code;
  code.parameters = {{0, 8}, {8, 4}, {16, 1}};
  code.parameter_bytes = 17;
  return code;
}

TEST(PackedParameters, LaysValuesOutAndClearsGaps) {
  std::uint64_t pointer = 0x1122334455667788;
  std::uint32_t number = 0xAABBCCDD;
  std::uint8_t byte = 0xEE;
  void* values[] = {&pointer, &number, &byte};
  PackedParameters packed;
  ASSERT_EQ(packed.pack(three_parameters(), values, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(packed.bytes().size(), 17U);
  EXPECT_EQ(std::memcmp(packed.bytes().data(), &pointer, 8), 0);
  EXPECT_EQ(std::memcmp(packed.bytes().data() + 8, &number, 4), 0);
  EXPECT_EQ(packed.bytes()[12], std::byte{0});
  EXPECT_EQ(packed.bytes()[16], std::byte{0xEE});
}

TEST(PackedParameters, RefusesMissingValues) {
  PackedParameters packed;
  EXPECT_EQ(packed.pack(three_parameters(), nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(PackedParameters, IgnoresValuesOfAKernelWithoutParameters) {
  PackedParameters packed;
  EXPECT_EQ(packed.pack(KernelCode{}, nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(packed.bytes().empty());
}

TEST(PackedParameters, TakesABufferAsItIs) {
  std::array<std::byte, 12> buffer{};
  std::size_t size = buffer.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  PackedParameters packed;
  ASSERT_EQ(packed.pack(three_parameters(), nullptr, extra), CUDA_SUCCESS);
  EXPECT_TRUE(packed.from_buffer());
  EXPECT_EQ(packed.bytes().data(), buffer.data());
  EXPECT_EQ(packed.bytes().size(), 12U);
}

TEST(PackedParameters, RefusesABufferBesideValues) {
  std::array<std::byte, 12> buffer{};
  std::size_t size = buffer.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  void* values[] = {&size, &size, &size};
  PackedParameters packed;
  EXPECT_EQ(packed.pack(three_parameters(), values, extra), CUDA_ERROR_INVALID_VALUE);
}

TEST(PackedParameters, RefusesUnknownAndUselessExtras) {
  std::size_t size = 0;
  std::byte byte{};
  void* unknown[] = {pointer_at(77), nullptr, CU_LAUNCH_PARAM_END};
  void* empty[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &byte, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  void* huge[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &byte, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                  CU_LAUNCH_PARAM_END};
  PackedParameters packed;
  EXPECT_EQ(packed.pack(three_parameters(), nullptr, unknown), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(packed.pack(three_parameters(), nullptr, empty), CUDA_ERROR_INVALID_VALUE);
  size = PackedParameters::kBytesMax + 1;
  EXPECT_EQ(packed.pack(three_parameters(), nullptr, huge), CUDA_ERROR_INVALID_VALUE);
}

TEST(PackedParameters, TakesMoreThanTheInlineSpace) {
  KernelCode code;
  code.parameters = {{0, 6000}};
  code.parameter_bytes = 6000;
  std::vector<std::byte> value(6000, std::byte{7});
  void* values[] = {value.data()};
  PackedParameters packed;
  ASSERT_EQ(packed.pack(code, values, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(packed.bytes().size(), 6000U);
  EXPECT_EQ(packed.bytes().back(), std::byte{7});
}

TEST(AcceptedLaunches, KeepsTheLastFew) {
  AcceptedLaunches accepted;
  EXPECT_FALSE(accepted.contains(1));
  for (std::uint64_t key = 1; key <= 9; ++key) accepted.add(key);
  EXPECT_FALSE(accepted.contains(1));
  EXPECT_TRUE(accepted.contains(2));
  EXPECT_TRUE(accepted.contains(9));
  accepted.clear();
  EXPECT_FALSE(accepted.contains(9));
}

TEST(PackedAttributes, CarriesOnlyTheBytesThatAnAttributeHas) {
  CUlaunchAttribute first;
  CUlaunchAttribute second;
  std::memset(static_cast<void*>(&first), 0xAA, sizeof first);
  std::memset(static_cast<void*>(&second), 0x55, sizeof second);
  for (CUlaunchAttribute* attribute : {&first, &second}) {
    attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute->value.clusterDim = {2, 1, 1};
  }
  CUlaunchConfig config{};
  config.numAttrs = 1;
  PackedAttributes one;
  PackedAttributes other;
  config.attrs = &first;
  ASSERT_EQ(one.pack(config), CUDA_SUCCESS);
  config.attrs = &second;
  ASSERT_EQ(other.pack(config), CUDA_SUCCESS);
  ASSERT_EQ(one.bytes().size(), other.bytes().size());
  EXPECT_EQ(std::memcmp(one.bytes().data(), other.bytes().data(), one.bytes().size()), 0);
}

struct ToldParameters {
  std::vector<std::uint32_t> offsets;
  std::vector<std::uint32_t> sizes;
};

TEST(KernelCode, HasParametersThatAKernelCanHave) {
  const auto code = make_code("kernel", ToldParameters{{0, 8, 16}, {8, 4, 1}});
  ASSERT_NE(code, nullptr);
  EXPECT_EQ(code->parameters.size(), 3U);
  EXPECT_EQ(code->parameter_bytes, 17U);
  constexpr std::uint32_t kMost = KernelCode::kParameterBytesMax;
  EXPECT_NE(make_code("kernel", ToldParameters{{kMost - 1}, {1}}), nullptr);
  EXPECT_EQ(make_code("kernel", ToldParameters{{kMost - 1}, {2}}), nullptr);
  EXPECT_EQ(make_code("kernel", ToldParameters{{kMost + 1}, {0}}), nullptr);
  // Their sums are small, in 32 bits.
  EXPECT_EQ(make_code("kernel", ToldParameters{{8, 0xfffffff0}, {8, 0x20}}), nullptr);
  EXPECT_EQ(make_code("kernel", ToldParameters{{0x20}, {0xfffffff0}}), nullptr);
}

}  // namespace
}  // namespace flyt::client
