// Memsets of every width and shape.
#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using MemsetTest = ContextTest;

TEST_F(MemsetTest, EveryWidthFillsWhatItSays) {
  const DeviceMemory memory(64);
  memory.fill(0);
  CU_OK(cu().cuMemsetD8_v2(memory + 1, 0xab, 3));
  CU_OK(cu().cuMemsetD16_v2(memory + 8, 0x1234, 2));
  CU_OK(cu().cuMemsetD32_v2(memory + 16, 0xdeadbeef, 2));
  CU_OK(cu().cuCtxSynchronize());
  const auto bytes = memory.read<std::uint8_t>();
  EXPECT_EQ((std::vector<std::uint8_t>{0, 0xab, 0xab, 0xab, 0, 0, 0, 0}),
            (std::vector<std::uint8_t>(bytes.begin(), bytes.begin() + 8)));
  const auto words = memory.read<std::uint32_t>();
  EXPECT_EQ(0x12341234u, words[2]);
  EXPECT_EQ(0xdeadbeefu, words[4]);
  EXPECT_EQ(0xdeadbeefu, words[5]);
  EXPECT_EQ(0u, words[6]);
}

TEST_F(MemsetTest, RowsKeepTheirPitch) {
  const DeviceMemory memory(100 * 4);
  memory.fill(0);
  CU_OK(cu().cuMemsetD2D8_v2(memory, 100, 9, 50, 4));
  CU_OK(cu().cuCtxSynchronize());
  const auto bytes = memory.read<std::uint8_t>();
  EXPECT_EQ(9, bytes[49]);
  EXPECT_EQ(0, bytes[50]);
  EXPECT_EQ(9, bytes[349]);
  EXPECT_EQ(0, bytes[350]);
}

TEST_F(MemsetTest, AsynchronousMemsetsRunInOrder) {
  const Stream stream;
  const DeviceMemory memory(4096);
  for (unsigned i = 1; i <= 20; ++i) {
    CU_OK(cu().cuMemsetD32Async(memory, i, 1024, stream));
  }
  CU_OK(cu().cuMemsetD16Async(memory, 7, 1, stream));
  CU_OK(cu().cuMemsetD8Async(memory + 4095, 1, 1, stream));
  CU_OK(cu().cuMemsetD2D32Async(memory + 64, 16, 5, 1, 2, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  const auto words = memory.read<std::uint32_t>();
  EXPECT_EQ(7u, words[0]);
  EXPECT_EQ(20u, words[1]);
  EXPECT_EQ(5u, words[16]);
  EXPECT_EQ(20u, words[17]);
  EXPECT_EQ(5u, words[20]);
  EXPECT_EQ(0x01000014u, words[1023]);
}

TEST_F(MemsetTest, BoundsAreChecked) {
  const DeviceMemory memory(1000);
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD8_v2(memory, 0, 1000));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD8_v2(memory, 0, 1001));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD32_v2(memory, 0, 251));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD2D8_v2(memory, 100, 0, 50, 11));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD8_v2(0, 0, 1));
}

TEST_F(MemsetTest, AlignmentIsChecked) {
  const DeviceMemory memory(1000);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD16_v2(memory + 1, 0, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD32_v2(memory + 2, 0, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD2D32_v2(memory, 102, 0, 4, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD2D16_v2(memory, 101, 0, 4, 2));
}

TEST_F(MemsetTest, NothingToSetIsFine) {
  const DeviceMemory memory(1000);
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD8_v2(memory, 0, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD8_v2(0, 0, 0));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD2D8_v2(memory, 100, 0, 0, 4));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD2D8_v2(memory, 100, 0, 4, 0));
}

TEST_F(MemsetTest, ARowLongerThanThePitchIsRefusedUnlessThereIsOne) {
  const DeviceMemory memory(1000);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD2D8_v2(memory, 40, 0, 50, 4));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD2D8_v2(memory, 40, 0, 50, 1));
}

TEST_F(MemsetTest, PinnedHostMemoryCanBeSet) {
  const PinnedMemory pinned(64);
  pinned.bytes()[0] = 1;
  CU_OK(cu().cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(pinned.data()), 7, 16));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(7, pinned.bytes()[0]);
  EXPECT_EQ(7, pinned.bytes()[15]);
}

TEST_F(MemsetTest, NoElementsAreSetAnywhere) {
  const DeviceMemory memory(64);
  std::uint32_t host = 0;
  for (const CUdeviceptr at : {memory + 0, memory + 1, CUdeviceptr{0}, CUdeviceptr{0x10001},
                               reinterpret_cast<CUdeviceptr>(&host)}) {
    CU_IS(CUDA_SUCCESS, cu().cuMemsetD8_v2(at, 1, 0));
    CU_IS(CUDA_SUCCESS, cu().cuMemsetD32_v2(at, 1, 0));
    CU_IS(CUDA_SUCCESS, cu().cuMemsetD16Async(at, 1, 0, nullptr));
    CU_IS(CUDA_SUCCESS, cu().cuMemsetD2D16_v2(at, 1, 1, 4, 0));
    CU_IS(CUDA_SUCCESS, cu().cuMemsetD2D32_v2(at, 0, 1, 0, 4));
  }
}

// So many elements that their bytes are none again, in 64 bits.
TEST_F(MemsetTest, ElementsThatWrapToNoneStillNeedTheirMemory) {
  const DeviceMemory memory(64);
  constexpr std::size_t kMany = std::size_t{1} << 62;
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD32_v2(memory, 1, kMany));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD16Async(memory, 1, 2 * kMany, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD32_v2(memory + 1, 1, kMany));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD32_v2(0, 1, kMany));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD16_v2(0x10000, 1, 2 * kMany));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD32_v2(memory, 1, kMany / 2));
}

}  // namespace
}  // namespace flyt::conformance
