// Arrays and mipmapped arrays: descriptors, memory, and copies from and to them.
#include <cstring>
#include <numeric>

#include "tests/conformance/images.h"

namespace flyt::conformance {
namespace {

using ArrayTest = ContextTest;

CUDA_ARRAY3D_DESCRIPTOR floats(std::size_t width, std::size_t height, std::size_t depth,
                               unsigned flags = 0) {
  return {width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}

std::vector<std::uint8_t> counted(std::size_t bytes) {
  std::vector<std::uint8_t> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * 13 + i / 251);
  return values;
}

TEST_F(ArrayTest, DescriptorsComeBackAsTheyWereGiven) {
  const CUDA_ARRAY_DESCRIPTOR flat{48, 20, CU_AD_FORMAT_UNSIGNED_INT16, 2};
  CUarray array = nullptr;
  CU_OK(cu().cuArrayCreate_v2(&array, &flat));
  CUDA_ARRAY_DESCRIPTOR told{};
  CU_OK(cu().cuArrayGetDescriptor_v2(&told, array));
  EXPECT_EQ(flat.Width, told.Width);
  EXPECT_EQ(flat.Height, told.Height);
  EXPECT_EQ(flat.Format, told.Format);
  EXPECT_EQ(flat.NumChannels, told.NumChannels);
  CUDA_ARRAY3D_DESCRIPTOR whole{};
  CU_OK(cu().cuArray3DGetDescriptor_v2(&whole, array));
  EXPECT_EQ(48u, whole.Width);
  EXPECT_EQ(20u, whole.Height);
  EXPECT_EQ(0u, whole.Depth);
  EXPECT_EQ(0u, whole.Flags & CUDA_ARRAY3D_LAYERED);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArrayGetDescriptor_v2(nullptr, array));
  CU_OK(cu().cuArrayDestroy(array));
}

TEST_F(ArrayTest, LayersAndFacesAreKept) {
  const Array layers(16, 0, 5, CU_AD_FORMAT_HALF, 4, CUDA_ARRAY3D_LAYERED);
  CUDA_ARRAY3D_DESCRIPTOR told{};
  CU_OK(cu().cuArray3DGetDescriptor_v2(&told, layers));
  EXPECT_EQ(0u, told.Height);
  EXPECT_EQ(5u, told.Depth);
  EXPECT_NE(0u, told.Flags & CUDA_ARRAY3D_LAYERED);
  const Array cube(8, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
  CU_OK(cu().cuArray3DGetDescriptor_v2(&told, cube));
  EXPECT_EQ(6u, told.Depth);
  EXPECT_NE(0u, told.Flags & CUDA_ARRAY3D_CUBEMAP);
}

TEST_F(ArrayTest, ImpossibleDescriptorsAreRefused) {
  CUarray array = nullptr;
  const auto refuse = [&](CUDA_ARRAY3D_DESCRIPTOR d) {
    CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArray3DCreate_v2(&array, &d));
  };
  CUDA_ARRAY3D_DESCRIPTOR good = floats(16, 16, 0);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArray3DCreate_v2(nullptr, &good));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArray3DCreate_v2(&array, nullptr));
  refuse(floats(0, 0, 0));
  refuse(floats(0, 16, 0));
  refuse(floats(16, 0, 16));
  refuse(floats(16, 8, 6, CUDA_ARRAY3D_CUBEMAP));
  refuse(floats(16, 16, 5, CUDA_ARRAY3D_CUBEMAP));
  refuse(floats(16, 16, 7, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED));
  CUDA_ARRAY3D_DESCRIPTOR bad = good;
  bad.NumChannels = 3;
  refuse(bad);
  bad = good;
  bad.NumChannels = 0;
  refuse(bad);
  bad = good;
  bad.Format = static_cast<CUarray_format>(0x77);
  refuse(bad);
}

TEST_F(ArrayTest, TheLimitsOfTheDeviceHold) {
  CUarray array = nullptr;
  const auto most =
      static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH));
  const CUDA_ARRAY3D_DESCRIPTOR fits = floats(most, 0, 0);
  CU_OK(cu().cuArray3DCreate_v2(&array, &fits));
  CU_OK(cu().cuArrayDestroy(array));
  const CUDA_ARRAY3D_DESCRIPTOR wide = floats(most + 1, 0, 0);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArray3DCreate_v2(&array, &wide));
  const auto layers =
      static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS));
  const CUDA_ARRAY3D_DESCRIPTOR many = floats(4, 4, layers + 1, CUDA_ARRAY3D_LAYERED);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArray3DCreate_v2(&array, &many));
}

TEST_F(ArrayTest, ArraysTakeDeviceMemoryAndGiveItBack) {
  std::size_t before = 0;
  std::size_t during = 0;
  std::size_t after = 0;
  CUarray array = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR large = floats(4096, 4096, 0);
  CU_OK(cu().cuMemGetInfo_v2(&before, nullptr));
  CU_OK(cu().cuArray3DCreate_v2(&array, &large));
  CU_OK(cu().cuMemGetInfo_v2(&during, nullptr));
  CU_OK(cu().cuArrayDestroy(array));
  CU_OK(cu().cuMemGetInfo_v2(&after, nullptr));
  EXPECT_GE(before - during, (64u << 20) - kOthersMemory);
  EXPECT_GE(after + kOthersMemory, during + (64u << 20));
}

TEST_F(ArrayTest, MoreThanThereIsIsOutOfMemory) {
  // 16384^3 texels of 16 bytes: 64 TiB, within the extents of every device.
  const auto edge =
      static_cast<std::size_t>(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH));
  CUDA_ARRAY3D_DESCRIPTOR huge = floats(edge, edge, edge);
  huge.NumChannels = 4;
  CUarray array = nullptr;
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuArray3DCreate_v2(&array, &huge));
  const CUDA_ARRAY3D_DESCRIPTOR small = floats(16, 16, 0);
  CU_OK(cu().cuArray3DCreate_v2(&array, &small));
  CU_OK(cu().cuArrayDestroy(array));
}

TEST_F(ArrayTest, FlatCopiesMoveBytesOfRows) {
  const Array array(256, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  const Array other(256, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  const DeviceMemory memory(64);
  memory.fill(0x55);
  const auto sent = counted(256);
  CU_OK(cu().cuMemcpyHtoA_v2(array, 0, sent.data(), 256));
  CU_OK(cu().cuMemcpyDtoA_v2(array, 16, memory, 64));
  CU_OK(cu().cuMemcpyAtoA_v2(other, 8, array, 0, 200));
  CU_OK(cu().cuMemcpyAtoD_v2(memory, other, 8, 32));
  std::vector<std::uint8_t> received(200);
  CU_OK(cu().cuMemcpyAtoH_v2(received.data(), other, 8, 200));
  for (std::size_t i = 0; i < 200; ++i) {
    ASSERT_EQ(i >= 16 && i < 80 ? 0x55 : sent[i], received[i]) << i;
  }
  const auto on_device = memory.read<std::uint8_t>();
  EXPECT_EQ(sent[0], on_device[0]);
  EXPECT_EQ(0x55, on_device[16]);
}

// Bytes of elements, with what lies beside them in the same element left as it was.
TEST_F(ArrayTest, FlatCopiesBeginAndEndWithinElements) {
  const Array array(64, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const Array other(64, 0, 0, CU_AD_FORMAT_UNSIGNED_INT16, 4);
  const DeviceMemory memory(64);
  memory.fill(0x55);
  std::vector<std::uint8_t> expected = counted(256);
  std::vector<std::uint8_t> in_other(512, 0x11);
  CU_OK(cu().cuMemcpyHtoA_v2(array, 0, expected.data(), 256));
  CU_OK(cu().cuMemcpyHtoA_v2(other, 0, in_other.data(), 512));
  const std::vector<std::uint8_t> sent(32, 0xAA);
  const auto put = [](std::vector<std::uint8_t>& into, std::size_t at, const auto& from,
                      std::size_t count) { std::memcpy(&into[at], from, count); };
  CU_OK(cu().cuMemcpyHtoA_v2(array, 3, sent.data(), 9));
  put(expected, 3, sent.data(), 9);
  CU_OK(cu().cuMemcpyHtoA_v2(array, 33, sent.data(), 1));
  put(expected, 33, sent.data(), 1);
  CU_OK(cu().cuMemcpyDtoA_v2(array, 101, memory + 1, 6));
  put(expected, 101, std::vector<std::uint8_t>(6, 0x55).data(), 6);
  CU_OK(cu().cuMemcpyAtoA_v2(other, 13, array, 2, 243));
  put(in_other, 13, &expected[2], 243);
  CU_OK(cu().cuMemcpyAtoA_v2(array, 248, other, 17, 7));
  put(expected, 248, &in_other[17], 7);
  CU_OK(cu().cuMemcpyAtoD_v2(memory + 3, other, 15, 30));
  // Copies within the device may still be under way, which this stream does not wait for.
  CU_OK(cu().cuCtxSynchronize());
  const Stream stream;
  CU_OK(cu().cuMemcpyHtoAAsync_v2(array, 61, sent.data(), 32, stream));
  put(expected, 61, sent.data(), 32);
  std::vector<std::uint8_t> received(512);
  CU_OK(cu().cuMemcpyAtoHAsync_v2(received.data(), array, 1, 255, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0, std::memcmp(received.data(), &expected[1], 255));
  CU_OK(cu().cuMemcpyAtoH_v2(received.data(), other, 0, 512));
  EXPECT_EQ(in_other, received);
  CU_OK(cu().cuMemcpyAtoH_v2(received.data(), array, 0, 256));
  EXPECT_EQ(0, std::memcmp(received.data(), expected.data(), 256));
  const auto on_device = memory.read<std::uint8_t>();
  EXPECT_EQ(0x55, on_device[2]);
  EXPECT_EQ(0, std::memcmp(&on_device[3], &in_other[15], 30));
  EXPECT_EQ(0x55, on_device[33]);
}

TEST_F(ArrayTest, FlatCopiesGoInStreams) {
  const Array array(4096, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
  const std::size_t bytes = 4096 * 4;
  const PinnedMemory there(bytes);
  const PinnedMemory back(bytes);
  std::iota(there.bytes(), there.bytes() + bytes, std::uint8_t{3});
  const Stream stream;
  CU_OK(cu().cuMemcpyHtoAAsync_v2(array, 0, there.data(), bytes, stream));
  CU_OK(cu().cuMemcpyAtoHAsync_v2(back.data(), array, 0, bytes, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0, std::memcmp(there.data(), back.data(), bytes));
  std::vector<std::uint8_t> pageable(bytes);
  CU_OK(cu().cuMemcpyAtoHAsync_v2(pageable.data(), array, 0, bytes, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0, std::memcmp(there.data(), pageable.data(), bytes));
}

TEST_F(ArrayTest, FlatCopiesCheckTheirArguments) {
  const Array array(256, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  std::vector<std::uint8_t> host(300);
  CU_IS(CUDA_SUCCESS, cu().cuMemcpyHtoA_v2(array, 0, host.data(), 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoA_v2(array, 0, host.data(), 257));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyAtoH_v2(host.data(), array, 200, 100));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoA_v2(array, 0, nullptr, 16));
}

constexpr std::size_t kWidth = 37;
constexpr std::size_t kRows = 11;
constexpr std::size_t kTexel = 8;
constexpr std::size_t kRowBytes = kWidth * kTexel;

// The whole of a picture, as one side of a copy.
CUDA_MEMCPY2D picture_to(CUarray array, const std::vector<std::uint8_t>& from, std::size_t pitch) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from.data();
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.WidthInBytes = kRowBytes;
  copy.Height = kRows;
  return copy;
}

TEST_F(ArrayTest, PicturesKeepTheirRows) {
  const Array array(kWidth, kRows, 0, CU_AD_FORMAT_FLOAT, 2);
  constexpr std::size_t kPitch = kRowBytes + 24;
  const auto sent = counted(kPitch * kRows);
  const CUDA_MEMCPY2D there = picture_to(array, sent, kPitch);
  CU_OK(cu().cuMemcpy2D_v2(&there));
  std::vector<std::uint8_t> received(kRowBytes * kRows);
  read_array(array, received.data(), kRowBytes, kRows);
  for (std::size_t y = 0; y < kRows; ++y) {
    ASSERT_EQ(0, std::memcmp(&sent[y * kPitch], &received[y * kRowBytes], kRowBytes)) << y;
  }
}

TEST_F(ArrayTest, PartsOfPicturesMove) {
  const Array array(kWidth, kRows, 0, CU_AD_FORMAT_FLOAT, 2);
  const std::vector<std::uint8_t> blank(kRowBytes * kRows, 0xee);
  write_array(array, blank.data(), kRowBytes, kRows);
  const auto sent = counted(kRowBytes * kRows);
  CUDA_MEMCPY2D part = picture_to(array, sent, kRowBytes);
  part.srcXInBytes = 5 * kTexel;
  part.srcY = 2;
  part.dstXInBytes = 3 * kTexel;
  part.dstY = 4;
  part.WidthInBytes = 10 * kTexel;
  part.Height = 6;
  const Stream stream;
  CU_OK(cu().cuMemcpy2DAsync_v2(&part, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  std::vector<std::uint8_t> received(kRowBytes * kRows);
  read_array(array, received.data(), kRowBytes, kRows);
  for (std::size_t y = 0; y < kRows; ++y) {
    for (std::size_t x = 0; x < kRowBytes; ++x) {
      const bool inside = x >= 3 * kTexel && x < 13 * kTexel && y >= 4 && y < 10;
      const auto wanted = inside ? sent[(y - 2) * kRowBytes + x + 2 * kTexel] : 0xee;
      ASSERT_EQ(wanted, received[y * kRowBytes + x]) << x << "," << y;
    }
  }
}

TEST_F(ArrayTest, PicturesMoveBetweenArraysAndDeviceMemory) {
  const Array first(kWidth, kRows, 0, CU_AD_FORMAT_FLOAT, 2);
  const Array second(kWidth, kRows, 0, CU_AD_FORMAT_FLOAT, 2);
  constexpr std::size_t kPitch = 512;
  const DeviceMemory memory(kPitch * kRows);
  memory.fill(1);
  const auto sent = counted(kRowBytes * kRows);
  write_array(first, sent.data(), kRowBytes, kRows);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = first;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = kPitch;
  copy.WidthInBytes = kRowBytes;
  copy.Height = kRows;
  CU_OK(cu().cuMemcpy2D_v2(&copy));
  CUDA_MEMCPY2D on{};
  on.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  on.srcDevice = memory;
  on.srcPitch = kPitch;
  on.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  on.dstArray = second;
  on.WidthInBytes = kRowBytes;
  on.Height = kRows;
  CU_OK(cu().cuMemcpy2D_v2(&on));
  std::vector<std::uint8_t> received(kRowBytes * kRows);
  read_array(second, received.data(), kRowBytes, kRows);
  EXPECT_EQ(sent, received);
  EXPECT_EQ(1, memory.read<std::uint8_t>()[kRowBytes]);
  CUDA_MEMCPY3D across{};
  across.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  across.srcArray = second;
  across.srcY = 1;
  across.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  across.dstArray = first;
  across.WidthInBytes = kRowBytes;
  across.Height = 1;
  across.Depth = 1;
  CU_OK(cu().cuMemcpy3D_v2(&across));
  read_array(first, received.data(), kRowBytes, kRows);
  EXPECT_EQ(0, std::memcmp(received.data(), &sent[kRowBytes], kRowBytes));
}

TEST_F(ArrayTest, CubesKeepTheirSlices) {
  constexpr std::size_t kEdge = 9;
  constexpr std::size_t kDepth = 4;
  const Array array(kEdge, kEdge, kDepth, CU_AD_FORMAT_UNSIGNED_INT16, 1);
  const std::size_t row = kEdge * 2;
  const auto sent = counted(row * kEdge * kDepth);
  write_array(array, sent.data(), row, kEdge, kDepth);
  std::vector<std::uint8_t> received(sent.size());
  read_array(array, received.data(), row, kEdge, kDepth);
  EXPECT_EQ(sent, received);
  // One column of slices 1 and 2 into device memory.
  const DeviceMemory memory(2 * kEdge * 2);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.srcXInBytes = 4;
  copy.srcZ = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = memory;
  copy.dstPitch = 2;
  copy.dstHeight = kEdge;
  copy.WidthInBytes = 2;
  copy.Height = kEdge;
  copy.Depth = 2;
  CU_OK(cu().cuMemcpy3D_v2(&copy));
  const auto column = memory.read<std::uint8_t>();
  EXPECT_EQ(sent[row * kEdge + 4], column[0]);
  EXPECT_EQ(sent[2 * row * kEdge + 3 * row + 5], column[kEdge * 2 + 3 * 2 + 1]);
}

TEST_F(ArrayTest, LayersAreSlicesOfCopies) {
  const Array array(32, 0, 3, CU_AD_FORMAT_UNSIGNED_INT8, 4, CUDA_ARRAY3D_LAYERED);
  const auto sent = counted(32 * 4 * 3);
  write_array(array, sent.data(), 32 * 4, 1, 3);
  std::vector<std::uint8_t> received(32 * 4);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.srcZ = 2;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = received.data();
  copy.WidthInBytes = 32 * 4;
  copy.Height = 1;
  copy.Depth = 1;
  CU_OK(cu().cuMemcpy3D_v2(&copy));
  EXPECT_EQ(0, std::memcmp(&sent[2 * 32 * 4], received.data(), received.size()));
}

TEST_F(ArrayTest, LargePicturesGoInPieces) {
  // More than one message each way, with rows that are no power of two.
  constexpr std::size_t kWide = 1500;
  constexpr std::size_t kHigh = 700;
  const Array array(kWide, kHigh, 0, CU_AD_FORMAT_FLOAT, 1);
  const auto sent = counted(kWide * 4 * kHigh);
  write_array(array, sent.data(), kWide * 4, kHigh);
  std::vector<std::uint8_t> received(sent.size());
  read_array(array, received.data(), kWide * 4, kHigh);
  EXPECT_TRUE(sent == received);
  // One row larger than a message.
  const Array row(100000, 0, 0, CU_AD_FORMAT_FLOAT, 4);
  const auto wide = counted(1600000);
  CU_OK(cu().cuMemcpyHtoA_v2(row, 0, wide.data(), wide.size()));
  std::vector<std::uint8_t> back(wide.size());
  CU_OK(cu().cuMemcpyAtoH_v2(back.data(), row, 0, back.size()));
  EXPECT_TRUE(wide == back);
}

TEST_F(ArrayTest, CopiesIntoPinnedMemoryKeepPitches) {
  const Array array(kWidth, kRows, 0, CU_AD_FORMAT_FLOAT, 2);
  const auto sent = counted(kRowBytes * kRows);
  write_array(array, sent.data(), kRowBytes, kRows);
  constexpr std::size_t kPitch = 400;
  const PinnedMemory pinned(kPitch * kRows);
  std::memset(pinned.data(), 0x11, kPitch * kRows);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.srcY = 1;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = pinned.data();
  copy.dstPitch = kPitch;
  copy.WidthInBytes = kRowBytes;
  copy.Height = kRows - 1;
  const Stream stream;
  CU_OK(cu().cuMemcpy2DAsync_v2(&copy, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  for (std::size_t y = 0; y + 1 < kRows; ++y) {
    ASSERT_EQ(0, std::memcmp(pinned.bytes() + y * kPitch, &sent[(y + 1) * kRowBytes], kRowBytes));
    ASSERT_EQ(0x11, pinned.bytes()[y * kPitch + kRowBytes]);
  }
}

TEST_F(ArrayTest, CopiesBeyondAnArrayAreRefused) {
  const Array array(kWidth, kRows, 0, CU_AD_FORMAT_FLOAT, 2);
  const auto sent = counted(kRowBytes * (kRows + 1));
  CUDA_MEMCPY2D copy = picture_to(array, sent, kRowBytes);
  copy.dstY = 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
  copy = picture_to(array, sent, kRowBytes);
  copy.dstXInBytes = kTexel;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
  copy = picture_to(nullptr, sent, kRowBytes);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpy2D_v2(&copy));
}

TEST_F(ArrayTest, CopiesStayInOrderWithOtherWork) {
  const Array array(1024, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  const DeviceMemory memory(1024);
  const Stream stream;
  for (int round = 0; round < 20; ++round) {
    CU_OK(cu().cuMemsetD8Async(memory, static_cast<unsigned char>(round), 1024, stream));
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = 1024;
    copy.Height = 1;
    CU_OK(cu().cuMemcpy2DAsync_v2(&copy, stream));
    std::uint8_t first = 0xff;
    CU_OK(cu().cuMemcpyAtoHAsync_v2(&first, array, 1000, 1, stream));
    CU_OK(cu().cuStreamSynchronize(stream));
    ASSERT_EQ(round, first);
  }
}

TEST_F(ArrayTest, PeerCopiesTakeArrays) {
  const Array array(64, 4, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  const DeviceMemory memory(256);
  memory.fill(0x3c);
  CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.srcContext = context;
  copy.srcPitch = 64;
  copy.srcHeight = 4;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstContext = context;
  copy.WidthInBytes = 64;
  copy.Height = 4;
  copy.Depth = 1;
  CU_OK(cu().cuMemcpy3DPeer(&copy));
  std::vector<std::uint8_t> received(256);
  read_array(array, received.data(), 64, 4);
  EXPECT_EQ(std::vector<std::uint8_t>(256, 0x3c), received);
}

TEST_F(ArrayTest, LevelsHalveDownToOne) {
  const CUDA_ARRAY3D_DESCRIPTOR d = floats(20, 6, 0);
  CUmipmappedArray mipmapped = nullptr;
  CU_OK(cu().cuMipmappedArrayCreate(&mipmapped, &d, 100));
  const std::size_t widths[] = {20, 10, 5, 2, 1};
  const std::size_t heights[] = {6, 3, 1, 1, 1};
  CUarray level = nullptr;
  for (unsigned i = 0; i < 5; ++i) {
    CU_OK(cu().cuMipmappedArrayGetLevel(&level, mipmapped, i));
    CUDA_ARRAY3D_DESCRIPTOR told{};
    CU_OK(cu().cuArray3DGetDescriptor_v2(&told, level));
    EXPECT_EQ(widths[i], told.Width);
    EXPECT_EQ(heights[i], told.Height);
  }
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMipmappedArrayGetLevel(&level, mipmapped, 5));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMipmappedArrayGetLevel(nullptr, mipmapped, 0));
  CU_OK(cu().cuMipmappedArrayDestroy(mipmapped));
}

TEST_F(ArrayTest, LevelsHaveTheirOwnTexels) {
  const CUDA_ARRAY3D_DESCRIPTOR d = floats(16, 16, 0);
  const MipmappedArray mipmapped(d, 3);
  for (unsigned i = 0; i < 3; ++i) {
    const std::size_t edge = 16u >> i;
    const std::vector<float> texels(edge * edge, 1.5f + static_cast<float>(i));
    write_array(mipmapped.level(i), texels.data(), edge * 4, edge);
  }
  for (unsigned i = 0; i < 3; ++i) {
    const std::size_t edge = 16u >> i;
    std::vector<float> texels(edge * edge);
    read_array(mipmapped.level(i), texels.data(), edge * 4, edge);
    EXPECT_EQ(std::vector<float>(edge * edge, 1.5f + static_cast<float>(i)), texels);
  }
}

TEST_F(ArrayTest, OrdinaryArraysAreNeitherSparseNorPlanar) {
  const Array array(16, 16, 0, CU_AD_FORMAT_FLOAT, 1);
  CUDA_ARRAY_SPARSE_PROPERTIES sparse{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArrayGetSparseProperties(&sparse, array));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArrayGetSparseProperties(&sparse, nullptr));
  CUDA_ARRAY_MEMORY_REQUIREMENTS needs{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuArrayGetMemoryRequirements(&needs, array, device));
  const MipmappedArray mipmapped(floats(16, 16, 0), 2);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMipmappedArrayGetSparseProperties(&sparse, mipmapped));
}

TEST_F(ArrayTest, ArraysDieWithTheirContext) {
  CUcontext other = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&other, 0, device));
  CUarray array = nullptr;
  CUmipmappedArray mipmapped = nullptr;
  const CUDA_ARRAY3D_DESCRIPTOR d = floats(16, 16, 0);
  CU_OK(cu().cuArray3DCreate_v2(&array, &d));
  CU_OK(cu().cuMipmappedArrayCreate(&mipmapped, &d, 2));
  CU_OK(cu().cuCtxDestroy_v2(other));
  CU_OK(cu().cuCtxSetCurrent(context));
  const Array still(16, 16, 0, CU_AD_FORMAT_FLOAT, 1);
  const std::vector<float> texels(256, 2.0f);
  write_array(still, texels.data(), 64, 16);
}

}  // namespace
}  // namespace flyt::conformance
