// BoxCopy: what the driver accepts of 2D and 3D copies, case by case as an H200 answered.
#include "client/transfers/box_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.h"

namespace flyt::client {
namespace {

constexpr std::uint64_t kDevice = 0x300000000000;

class BoxCopyTest : public ::testing::Test {
 protected:
  BoxCopyTest() : host(1 << 16) {
    Memory memory;
    memory.base = kDevice;
    memory.bytes = 1000;
    EXPECT_TRUE(map.add(memory));
    flat.srcMemoryType = CU_MEMORYTYPE_HOST;
    flat.srcHost = host.data();
    flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    flat.dstDevice = kDevice;
    deep.srcMemoryType = CU_MEMORYTYPE_HOST;
    deep.srcHost = host.data();
    deep.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    deep.dstDevice = kDevice;
  }
  template <class Copy>
  CUresult make(const Copy& copy) {
    return make_box_copy({map, arrays}, copy, box);
  }

  MemoryMap map;
  ArrayTable arrays{wire::HandleKind::kArray};
  std::vector<std::byte> host;
  CUDA_MEMCPY2D flat{};
  CUDA_MEMCPY3D deep{};
  BoxCopy box;
};

TEST_F(BoxCopyTest, NothingToCopyIsFineWhateverElseIsWrong) {
  EXPECT_EQ(make(CUDA_MEMCPY2D{}), CUDA_SUCCESS);
  EXPECT_TRUE(box.empty());
  EXPECT_EQ(make(CUDA_MEMCPY3D{}), CUDA_SUCCESS);
}

TEST_F(BoxCopyTest, APitchOfZeroMeansNoGaps) {
  flat.WidthInBytes = 10;
  flat.Height = 10;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  EXPECT_EQ(box.to.pitch, 10U);
}

TEST_F(BoxCopyTest, TheLastRowMustFitToTheByte) {
  flat.srcPitch = flat.dstPitch = 100;
  flat.WidthInBytes = 100;
  flat.Height = 10;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  flat.Height = 11;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.Height = 9;
  flat.dstY = 1;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  EXPECT_EQ(box.to.address, kDevice + 100);
  flat.dstY = 2;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BoxCopyTest, ARowMustFitItsPitchFromWhereItStarts) {
  flat.srcPitch = flat.dstPitch = 100;
  flat.WidthInBytes = 100;
  flat.Height = 2;
  flat.dstXInBytes = 1;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.WidthInBytes = 99;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  flat.Height = 1;
  flat.srcPitch = 5;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BoxCopyTest, RefusesUnknownKindsOfMemoryAndNullPointers) {
  flat.WidthInBytes = 10;
  flat.Height = 1;
  flat.srcMemoryType = static_cast<CUmemorytype>(9);
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.srcArray = static_cast<CUarray>(pointer_at(0x1000));
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_HANDLE);
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = nullptr;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.srcHost = host.data();
  flat.dstDevice = 0;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BoxCopyTest, AnArraysSideMustLieInsideIt) {
  const auto made = arrays.make();
  made.state->descriptor = {10, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  made.state->extent = cuda::extent_of(made.state->descriptor);
  arrays.publish(made.handle);
  flat.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  flat.dstArray = static_cast<CUarray>(pointer_at(made.handle));
  flat.dstXInBytes = 8;
  flat.dstY = 1;
  flat.WidthInBytes = 32;
  flat.Height = 3;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  EXPECT_EQ(box.to.memory, BoxSide::Memory::kArray);
  EXPECT_EQ(box.to.x, 8U);
  flat.Height = 4;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.Height = 3;
  flat.dstXInBytes = 6;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BoxCopyTest, HostMemoryIsNoDeviceMemoryButUnifiedMayBeEither) {
  flat.WidthInBytes = 10;
  flat.Height = 1;
  flat.dstDevice = address_of(host.data()) + 100;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  EXPECT_EQ(box.to.memory, BoxSide::Memory::kHost);
  flat.dstDevice = kDevice;
  EXPECT_EQ(make(flat), CUDA_SUCCESS);
  EXPECT_EQ(box.to.memory, BoxSide::Memory::kDevice);
}

TEST_F(BoxCopyTest, SizesThatOverflowAreRefused) {
  flat.WidthInBytes = 10;
  flat.Height = std::uint64_t{1} << 63;
  flat.srcPitch = flat.dstPitch = std::uint64_t{1} << 60;
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  flat.Height = 1;
  flat.dstXInBytes = ~std::uint64_t{0};
  EXPECT_EQ(make(flat), CUDA_ERROR_INVALID_VALUE);
  deep.WidthInBytes = deep.Height = deep.Depth = ~std::uint64_t{0};
  EXPECT_EQ(make(deep), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BoxCopyTest, SlicesFollowTheHeightThatIsGiven) {
  deep.WidthInBytes = 10;
  deep.Height = 5;
  deep.Depth = 20;
  deep.srcPitch = deep.dstPitch = 10;
  deep.srcHeight = deep.dstHeight = 5;
  EXPECT_EQ(make(deep), CUDA_SUCCESS);
  EXPECT_EQ(box.to.slice_pitch, 50U);
  deep.Depth = 21;
  EXPECT_EQ(make(deep), CUDA_ERROR_INVALID_VALUE);
  deep.Depth = 2;
  deep.srcHeight = 4;
  EXPECT_EQ(make(deep), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(BoxCopyTest, RowsArePackedAndCopiedInOrder) {
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i % 251);
  flat.srcPitch = 16;
  flat.WidthInBytes = 4;
  flat.Height = 3;
  ASSERT_EQ(make(flat), CUDA_SUCCESS);
  std::vector<std::byte> packed(8);
  pack_rows(box, 0, 1, 2, packed.data());
  EXPECT_EQ(packed[0], host[16]);
  EXPECT_EQ(packed[3], host[19]);
  EXPECT_EQ(packed[4], host[32]);
  std::vector<std::byte> out(64);
  flat.dstMemoryType = CU_MEMORYTYPE_HOST;
  flat.dstHost = out.data();
  flat.dstPitch = 8;
  ASSERT_EQ(make(flat), CUDA_SUCCESS);
  copy_on_host(box);
  EXPECT_EQ(out[8], host[16]);
  EXPECT_EQ(out[19], host[35]);
  EXPECT_EQ(out[4], std::byte{0});
}

}  // namespace
}  // namespace flyt::client
