// Two- and three-dimensional copies: pitches, offsets, memory types, refusals.
#include <numeric>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using CopyShapedTest = ContextTest;

constexpr std::size_t kWidth = 30;
constexpr std::size_t kRows = 12;
constexpr std::size_t kHostPitch = 50;
constexpr std::size_t kDevicePitch = 64;

std::vector<std::uint8_t> picture() {
  std::vector<std::uint8_t> bytes(kHostPitch * kRows);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + 1);
  return bytes;
}

CUDA_MEMCPY2D to_device(const std::vector<std::uint8_t>& from, CUdeviceptr to) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from.data();
  copy.srcPitch = kHostPitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = kDevicePitch;
  copy.WidthInBytes = kWidth;
  copy.Height = kRows;
  return copy;
}

TEST_F(CopyShapedTest, RowsKeepTheirPitches) {
  const DeviceMemory memory(kDevicePitch * kRows);
  memory.fill(0xcc);
  const auto sent = picture();
  const CUDA_MEMCPY2D copy = to_device(sent, memory);
  CU_OK(cu().cuMemcpy2D_v2(&copy));
  const auto all = memory.read<std::uint8_t>();
  for (std::size_t y = 0; y < kRows; ++y) {
    for (std::size_t x = 0; x < kDevicePitch; ++x) {
      const std::uint8_t wanted = x < kWidth ? sent[y * kHostPitch + x] : 0xcc;
      ASSERT_EQ(wanted, all[y * kDevicePitch + x]) << x << "," << y;
    }
  }
}

TEST_F(CopyShapedTest, OffsetsMoveBothRectangles) {
  const DeviceMemory memory(kDevicePitch * kRows);
  memory.fill(0);
  const auto sent = picture();
  CUDA_MEMCPY2D copy = to_device(sent, memory);
  copy.srcXInBytes = 3;
  copy.srcY = 2;
  copy.dstXInBytes = 5;
  copy.dstY = 1;
  copy.WidthInBytes = 10;
  copy.Height = 4;
  CU_OK(cu().cuMemcpy2DUnaligned_v2(&copy));
  const auto all = memory.read<std::uint8_t>();
  EXPECT_EQ(sent[2 * kHostPitch + 3], all[1 * kDevicePitch + 5]);
  EXPECT_EQ(sent[5 * kHostPitch + 12], all[4 * kDevicePitch + 14]);
  EXPECT_EQ(0, all[4 * kDevicePitch + 15]);
  EXPECT_EQ(0, all[5 * kDevicePitch + 5]);
}

TEST_F(CopyShapedTest, ComesBackAsItWent) {
  const DeviceMemory memory(kDevicePitch * kRows);
  const auto sent = picture();
  const Stream stream;
  CUDA_MEMCPY2D there = to_device(sent, memory);
  CU_OK(cu().cuMemcpy2DAsync_v2(&there, stream));
  std::vector<std::uint8_t> received(kWidth * kRows);
  CUDA_MEMCPY2D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = memory;
  back.srcPitch = kDevicePitch;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = received.data();
  back.dstPitch = kWidth;
  back.WidthInBytes = kWidth;
  back.Height = kRows;
  CU_OK(cu().cuMemcpy2DAsync_v2(&back, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  for (std::size_t y = 0; y < kRows; ++y) {
    for (std::size_t x = 0; x < kWidth; ++x) {
      ASSERT_EQ(sent[y * kHostPitch + x], received[y * kWidth + x]);
    }
  }
}

TEST_F(CopyShapedTest, DeviceToDeviceRectanglesCopy) {
  const DeviceMemory first(kDevicePitch * kRows);
  const DeviceMemory second(kDevicePitch * kRows);
  first.fill(1);
  second.fill(2);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = first;
  copy.srcPitch = kDevicePitch;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = second;
  copy.dstPitch = kDevicePitch;
  copy.WidthInBytes = 8;
  copy.Height = 2;
  CU_OK(cu().cuMemcpy2D_v2(&copy));
  CU_OK(cu().cuCtxSynchronize());
  const auto all = second.read<std::uint8_t>();
  EXPECT_EQ(1, all[7]);
  EXPECT_EQ(2, all[8]);
  EXPECT_EQ(1, all[kDevicePitch]);
  EXPECT_EQ(2, all[2 * kDevicePitch]);
}

TEST_F(CopyShapedTest, TheUnifiedTypeWorksForBothSides) {
  const DeviceMemory memory(kDevicePitch * kRows);
  const auto sent = picture();
  CUDA_MEMCPY2D copy = to_device(sent, memory);
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcHost = nullptr;
  copy.srcDevice = reinterpret_cast<CUdeviceptr>(sent.data());
  copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  CU_OK(cu().cuMemcpy2D_v2(&copy));
  EXPECT_EQ(sent[0], memory.read<std::uint8_t>()[0]);
}

TEST_F(CopyShapedTest, TwoDimensionalMisuseIsRefused) {
  const DeviceMemory memory(kDevicePitch * kRows);
  const auto sent = picture();
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(nullptr));
  CUDA_MEMCPY2D copy = to_device(sent, memory);
  copy.srcPitch = kWidth - 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
  copy = to_device(sent, memory);
  copy.dstPitch = kWidth - 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
  copy = to_device(sent, memory);
  copy.srcMemoryType = static_cast<CUmemorytype>(9);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
  copy = to_device(sent, memory);
  copy.dstDevice = 0x1234;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
}

TEST_F(CopyShapedTest, NothingToCopyIsFine) {
  const DeviceMemory memory(kDevicePitch * kRows);
  const auto sent = picture();
  CUDA_MEMCPY2D copy = to_device(sent, memory);
  copy.WidthInBytes = 0;
  CU_IS(CUDA_SUCCESS, cu().cuMemcpy2D_v2(&copy));
  copy = to_device(sent, memory);
  copy.Height = 0;
  CU_IS(CUDA_SUCCESS, cu().cuMemcpy2D_v2(&copy));
}

constexpr std::size_t kPlanes = 3;

CUDA_MEMCPY3D cube_to_device(const std::vector<std::uint8_t>& from, CUdeviceptr to) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from.data();
  copy.srcPitch = 20;
  copy.srcHeight = 6;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  copy.dstPitch = 32;
  copy.dstHeight = 8;
  copy.WidthInBytes = 16;
  copy.Height = 5;
  copy.Depth = kPlanes;
  return copy;
}

TEST_F(CopyShapedTest, CubesKeepPitchAndHeight) {
  std::vector<std::uint8_t> sent(20 * 6 * kPlanes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::uint8_t>(i + 1);
  const DeviceMemory memory(32 * 8 * kPlanes);
  memory.fill(0xdd);
  const CUDA_MEMCPY3D copy = cube_to_device(sent, memory);
  CU_OK(cu().cuMemcpy3D_v2(&copy));
  const auto all = memory.read<std::uint8_t>();
  for (std::size_t z = 0; z < kPlanes; ++z) {
    for (std::size_t y = 0; y < 8; ++y) {
      for (std::size_t x = 0; x < 32; ++x) {
        const bool inside = x < 16 && y < 5;
        const std::uint8_t wanted = inside ? sent[(z * 6 + y) * 20 + x] : 0xdd;
        ASSERT_EQ(wanted, all[(z * 8 + y) * 32 + x]) << x << "," << y << "," << z;
      }
    }
  }
}

TEST_F(CopyShapedTest, CubesComeBackAsynchronously) {
  std::vector<std::uint8_t> sent(20 * 6 * kPlanes, 0x42);
  const DeviceMemory memory(32 * 8 * kPlanes);
  const Stream stream;
  const CUDA_MEMCPY3D there = cube_to_device(sent, memory);
  CU_OK(cu().cuMemcpy3DAsync_v2(&there, stream));
  std::vector<std::uint8_t> received(16 * 5 * kPlanes);
  CUDA_MEMCPY3D back{};
  back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  back.srcDevice = memory;
  back.srcPitch = 32;
  back.srcHeight = 8;
  back.dstMemoryType = CU_MEMORYTYPE_HOST;
  back.dstHost = received.data();
  back.dstPitch = 16;
  back.dstHeight = 5;
  back.WidthInBytes = 16;
  back.Height = 5;
  back.Depth = kPlanes;
  CU_OK(cu().cuMemcpy3DAsync_v2(&back, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(received.size(), 0x42), received);
}

TEST_F(CopyShapedTest, ThreeDimensionalMisuseIsRefused) {
  std::vector<std::uint8_t> sent(20 * 6 * kPlanes);
  const DeviceMemory memory(32 * 8 * kPlanes);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy3D_v2(nullptr));
  CUDA_MEMCPY3D copy = cube_to_device(sent, memory);
  copy.srcPitch = 15;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy3D_v2(&copy));
  copy = cube_to_device(sent, memory);
  copy.dstHeight = 4;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy3D_v2(&copy));
  copy = cube_to_device(sent, memory);
  copy.dstDevice = 0x1000;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy3D_v2(&copy));
}

// Whether or not another slice follows.
TEST_F(CopyShapedTest, RowsBeyondTheHeightThatIsSaidAreRefused) {
  const std::vector<std::uint8_t> sent(20 * 6 * kPlanes);
  const DeviceMemory memory(32 * 8 * kPlanes);
  const auto copied = [&](auto change) {
    CUDA_MEMCPY3D copy = cube_to_device(sent, memory);
    copy.Depth = 1;
    change(copy);
    return cu().cuMemcpy3D_v2(&copy);
  };
  CU_IS(CUDA_SUCCESS, copied([](auto& copy) { copy.srcY = 1; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, copied([](auto& copy) { copy.srcY = 2; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, copied([](auto& copy) { copy.dstY = 4; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, copied([](auto& copy) { copy.srcHeight = 4; }));
  CU_IS(CUDA_SUCCESS, copied([](auto& copy) {
          copy.srcY = 1;
          copy.srcHeight = 0;
        }));
}

TEST_F(CopyShapedTest, LevelsOfDetailAreNotLookedAt) {
  const std::vector<std::uint8_t> sent(20 * 6 * kPlanes, 0x42);
  const DeviceMemory memory(32 * 8 * kPlanes);
  CUDA_MEMCPY3D copy = cube_to_device(sent, memory);
  copy.srcLOD = copy.dstLOD = 1;
  CU_OK(cu().cuMemcpy3D_v2(&copy));
  EXPECT_EQ(0x42, memory.read<std::uint8_t>()[0]);
}

TEST_F(CopyShapedTest, ABoxBesideTheDeviceMemoryThatItNamesIsRefused) {
  const DeviceMemory memory(256);
  std::vector<std::uint8_t> row(16);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = memory;
  copy.srcPitch = 64;
  copy.srcY = std::size_t{1} << 32;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = row.data();
  copy.WidthInBytes = row.size();
  copy.Height = 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
}

// Rows and offsets count elements where an array takes part, else bytes.
TEST_F(CopyShapedTest, ABatchOfBoxesTakesMemoryAndArrays) {
  if (!cu().cuMemcpy3DBatchAsync_v2.present()) GTEST_SKIP() << "an older driver";
  const Stream stream;
  std::vector<float> sent(5 * 3 * 2);
  std::iota(sent.begin(), sent.end(), 1.0F);
  std::vector<float> received(sent.size());
  CUarray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR shape{6, 3, 2, CU_AD_FORMAT_FLOAT, 1, 0};
  CU_OK(cu().cuArray3DCreate_v2(&array, &shape));
  const DeviceMemory memory(4 * 32 * 2);
  CUDA_MEMCPY3D_BATCH_OP steps[3]{};
  for (CUDA_MEMCPY3D_BATCH_OP& step : steps) {
    step.src.type = step.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    step.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  }
  steps[0].src.op.ptr = {reinterpret_cast<CUdeviceptr>(sent.data()), 20, 3, {}};
  steps[0].dst.op.ptr = {memory, 32, 4, {}};
  steps[0].extent = {20, 3, 2};
  steps[1].src.op.ptr = {memory, 8, 4, {}};
  steps[1].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
  steps[1].dst.op.array = {array, {1, 0, 0}};
  steps[1].extent = {5, 3, 2};
  steps[2].src = steps[1].dst;
  steps[2].dst.op.ptr = {reinterpret_cast<CUdeviceptr>(received.data()), 5, 3, {}};
  steps[2].extent = {5, 3, 2};
  const auto batch = [&](std::size_t count, unsigned long long flags, CUstream on) {
    return cu().cuMemcpy3DBatchAsync_v2(count, steps, flags, on);
  };
  CU_OK(batch(3, 0, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(sent, received);
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(0, 0, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(3, 1, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(3, 0, nullptr));
  steps[0].src.type = static_cast<CUmemcpy3DOperandType>(9);
  CU_IS(CUDA_ERROR_INVALID_VALUE, batch(1, 0, stream));
  CU_OK(cu().cuArrayDestroy(array));
}

// A box of a batch: 64 bytes in two rows of two slices, with one thing changed.
template <class Change>
CUDA_MEMCPY3D_BATCH_OP batched(CUdeviceptr to, CUdeviceptr from, Change change) {
  CUDA_MEMCPY3D_BATCH_OP step{};
  step.src.type = step.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  step.src.op.ptr = {from, 0, 0, {}};
  step.dst.op.ptr = {to, 0, 0, {}};
  step.extent = {64, 2, 2};
  step.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  change(step);
  return step;
}

TEST_F(CopyShapedTest, BoxesOfABatchAreCheckedMoreStrictlyThanOthers) {
  using Step = CUDA_MEMCPY3D_BATCH_OP;
  if (!cu().cuMemcpy3DBatchAsync_v2.present()) GTEST_SKIP() << "an older driver";
  const Stream stream;
  const DeviceMemory memory(1024);
  const auto run = [&](auto change) {
    Step step = batched(memory, memory + 512, change);
    return cu().cuMemcpy3DBatchAsync_v2(1, &step, 0, stream);
  };
  CU_IS(CUDA_SUCCESS, run([](Step&) {}));
  CU_IS(CUDA_SUCCESS, run([](Step& step) { step.flags = 1; }));
  CU_IS(CUDA_SUCCESS, run([](Step& step) { step.src.op.ptr.layerHeight = 2; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, run([](Step& step) { step.flags = 2; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, run([](Step& step) { step.extent.width = 0; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, run([](Step& step) { step.extent.height = 0; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, run([](Step& step) { step.extent.depth = 0; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE, run([](Step& step) {
          step.src.op.ptr.layerHeight = 1;
          step.extent.depth = 1;
        }));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        run([](Step& step) { step.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID; }));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        run([](Step& step) { step.srcAccessOrder = static_cast<CUmemcpySrcAccessOrder>(4); }));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
}

TEST_F(CopyShapedTest, ABatchTellsWhichBoxIsRefusedButOfNullPointers) {
  using Step = CUDA_MEMCPY3D_BATCH_OP;
  if (!cu().cuMemcpy3DBatchAsync.present()) GTEST_SKIP() << "another driver";
  const Stream stream;
  const DeviceMemory memory(1024);
  const auto failed = [&](auto change) {
    Step steps[] = {batched(memory, memory + 512, [](Step&) {}),
                    batched(memory, memory + 512, change)};
    std::size_t index = 77;
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy3DBatchAsync(2, steps, &index, 0, stream));
    return index;
  };
  EXPECT_EQ(1u, failed([](Step& step) { step.extent.width = 0; }));
  EXPECT_EQ(~std::size_t{0}, failed([](Step& step) { step.src.op.ptr.ptr = 0; }));
  EXPECT_EQ(~std::size_t{0}, failed([](Step& step) { step.dst.op.ptr.ptr = 0; }));
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace flyt::conformance
