// Device memory: allocation, its limits, ranges, pitch.
#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using MemoryTest = ContextTest;

TEST_F(MemoryTest, AllocationsAreAlignedAndApart) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CU_OK(cu().cuMemAlloc_v2(&first, 1));
  CU_OK(cu().cuMemAlloc_v2(&second, 1));
  EXPECT_NE(0u, first);
  EXPECT_EQ(0u, first % 256);
  EXPECT_EQ(0u, second % 256);
  EXPECT_NE(first, second);
  CU_OK(cu().cuMemFree_v2(first));
  CU_OK(cu().cuMemFree_v2(second));
}

TEST_F(MemoryTest, ArgumentsOfAnAllocationAreChecked) {
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAlloc_v2(nullptr, 16));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAlloc_v2(&address, 0));
}

TEST_F(MemoryTest, MoreThanThereIsIsOutOfMemory) {
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemAlloc_v2(&address, ~std::size_t{0}));
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemAlloc_v2(&address, std::size_t{1} << 46));
  std::size_t available = 0;
  std::size_t total = 0;
  CU_OK(cu().cuMemGetInfo_v2(&available, &total));
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemAlloc_v2(&address, total + (4u << 20)));
  CU_OK(cu().cuMemAlloc_v2(&address, 4096));
  CU_OK(cu().cuMemFree_v2(address));
}

TEST_F(MemoryTest, FreeChecksItsAddress) {
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAlloc_v2(&address, 1000));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(address + 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(0x1234));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(0));
  CU_IS(CUDA_SUCCESS, cu().cuMemFree_v2(address));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(address));
}

TEST_F(MemoryTest, InfoFollowsAllocations) {
  std::size_t before = 0;
  std::size_t during = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  CU_OK(cu().cuMemGetInfo_v2(&before, &total));
  EXPECT_LE(before, total);
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAlloc_v2(&address, 64u << 20));
  CU_OK(cu().cuMemGetInfo_v2(&during, nullptr));
  EXPECT_GE(before - during, (64u << 20) - kOthersMemory);
  CU_OK(cu().cuMemFree_v2(address));
  CU_OK(cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_GE(after + kOthersMemory, before);
  CU_IS(CUDA_SUCCESS, cu().cuMemGetInfo_v2(nullptr, nullptr));
}

TEST_F(MemoryTest, FreedMemoryIsUsedAgain) {
  std::size_t available = 0;
  std::size_t total = 0;
  CU_OK(cu().cuMemGetInfo_v2(&available, &total));
  const std::size_t size = available / 4;
  for (int i = 0; i < 12; ++i) {
    CUdeviceptr address = 0;
    CU_OK(cu().cuMemAlloc_v2(&address, size));
    CU_OK(cu().cuMemFree_v2(address));
  }
}

TEST_F(MemoryTest, TheAddressRangeIsThatOfTheAllocation) {
  const DeviceMemory memory(1000);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CU_OK(cu().cuMemGetAddressRange_v2(&base, &size, memory + 999));
  EXPECT_EQ(static_cast<CUdeviceptr>(memory), base);
  EXPECT_EQ(1000u, size);
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuMemGetAddressRange_v2(&base, &size, memory + 1000));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuMemGetAddressRange_v2(&base, &size, 0));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuMemGetAddressRange_v2(&base, &size, 0x1234));
  CU_IS(CUDA_SUCCESS, cu().cuMemGetAddressRange_v2(nullptr, &size, memory));
  CU_IS(CUDA_SUCCESS, cu().cuMemGetAddressRange_v2(&base, nullptr, memory));
}

TEST_F(MemoryTest, PitchedMemoryHasAlignedRows) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  CU_OK(cu().cuMemAllocPitch_v2(&address, &pitch, 100, 10, 4));
  EXPECT_EQ(512u, pitch);
  CU_OK(cu().cuMemFree_v2(address));
  CU_OK(cu().cuMemAllocPitch_v2(&address, &pitch, 513, 10, 16));
  EXPECT_EQ(1024u, pitch);
  CU_OK(cu().cuMemFree_v2(address));
}

TEST_F(MemoryTest, PitchArgumentsAreChecked) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(&address, &pitch, 100, 10, 3));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(&address, &pitch, 100, 10, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(&address, &pitch, 0, 10, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(&address, &pitch, 100, 0, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(&address, nullptr, 100, 10, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(nullptr, &pitch, 100, 10, 4));
  const std::size_t huge = std::size_t{1} << 40;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocPitch_v2(&address, &pitch, huge, huge, 16));
}

TEST_F(MemoryTest, ManySmallAllocationsKeepTheirContents) {
  constexpr std::uint32_t kCount = 300;
  std::vector<CUdeviceptr> addresses(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    CU_OK(cu().cuMemAlloc_v2(&addresses[i], 4 + i * 7 % 900));
    CU_OK(cu().cuMemcpyHtoD_v2(addresses[i], &i, 4));
  }
  for (std::uint32_t i = 0; i < kCount; ++i) {
    std::uint32_t value = 0;
    CU_OK(cu().cuMemcpyDtoH_v2(&value, addresses[i], 4));
    ASSERT_EQ(i, value);
    CU_OK(cu().cuMemFree_v2(addresses[i]));
  }
}

}  // namespace
}  // namespace flyt::conformance
