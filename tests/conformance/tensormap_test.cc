// Tensor maps: 128 bytes of pure arithmetic over an address, and its refusals.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

class TensorMapTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9) {
      GTEST_SKIP() << "tensor maps need compute capability 9";
    }
  }
  // A float16 matrix of 128 x 64 in boxes of 64 x 32, with one thing changed by each test.
  CUresult encode(CUtensorMap* map, void* address) const {
    return cu().cuTensorMapEncodeTiled(map, type, rank, address, size, stride, box, element,
                                       interleave, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  cuuint32_t rank = 2;
  cuuint64_t size[5] = {128, 64, 1, 1, 1};
  cuuint64_t stride[4] = {256, 0, 0, 0};
  cuuint32_t box[5] = {64, 32, 1, 1, 1};
  cuuint32_t element[5] = {1, 1, 1, 1, 1};
};

TEST_F(TensorMapTest, EncodingIsAFunctionOfItsArguments) {
  const DeviceMemory memory(128 * 64 * 2);
  alignas(64) CUtensorMap first;
  alignas(64) CUtensorMap second;
  std::memset(&first, 0x11, sizeof(first));
  std::memset(&second, 0x22, sizeof(second));
  void* address = reinterpret_cast<void*>(static_cast<CUdeviceptr>(memory));
  CU_OK(encode(&first, address));
  CU_OK(encode(&second, address));
  EXPECT_EQ(0, std::memcmp(&first, &second, sizeof(first)));
  box[1] = 16;
  CU_OK(encode(&second, address));
  EXPECT_NE(0, std::memcmp(&first, &second, sizeof(first)));
}

TEST_F(TensorMapTest, TheAddressCanBeReplaced) {
  const DeviceMemory memory(2 * 128 * 64 * 2);
  alignas(64) CUtensorMap first;
  alignas(64) CUtensorMap second;
  const CUdeviceptr base = memory;
  CU_OK(encode(&first, reinterpret_cast<void*>(base)));
  CU_OK(encode(&second, reinterpret_cast<void*>(base + 4096)));
  CU_OK(cu().cuTensorMapReplaceAddress(&first, reinterpret_cast<void*>(base + 4096)));
  EXPECT_EQ(0, std::memcmp(&first, &second, sizeof(first)));
}

TEST_F(TensorMapTest, AContextIsNeeded) {
  const DeviceMemory memory(128 * 64 * 2);
  alignas(64) CUtensorMap map;
  void* address = reinterpret_cast<void*>(static_cast<CUdeviceptr>(memory));
  CU_OK(encode(&map, address));
  CU_OK(cu().cuCtxSetCurrent(nullptr));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, encode(&map, address));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuTensorMapReplaceAddress(&map, address));
  CU_OK(cu().cuCtxSetCurrent(context));
}

TEST_F(TensorMapTest, ArgumentsAreChecked) {
  const DeviceMemory memory(128 * 64 * 2);
  alignas(64) CUtensorMap map;
  const CUdeviceptr base = memory;
  void* address = reinterpret_cast<void*>(base);
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(nullptr, address));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, reinterpret_cast<void*>(base + 8)));
  rank = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  rank = 6;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  rank = 2;
  box[0] = 257;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  box[0] = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  box[0] = 64;
  stride[0] = 24;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  stride[0] = 256;
  size[0] = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  size[0] = 128;
  element[1] = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  element[1] = 1;
  CU_IS(CUDA_SUCCESS, encode(&map, address));
}

TEST_F(TensorMapTest, WhatLaterGpusHaveIsRefused) {
  if (attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) != 9) GTEST_SKIP();
  const DeviceMemory memory(128 * 64 * 2);
  alignas(64) CUtensorMap map;
  void* address = reinterpret_cast<void*>(static_cast<CUdeviceptr>(memory));
  for (const CUtensorMapSwizzle each :
       {CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B}) {
    swizzle = each;
    CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  }
  swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
  size[0] = box[0] = 128;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
}

TEST_F(TensorMapTest, ABoxIsWholeSixteensOfBytesAndNotTooLarge) {
  const DeviceMemory memory(128 * 64 * 2);
  alignas(64) CUtensorMap map;
  void* address = reinterpret_cast<void*>(static_cast<CUdeviceptr>(memory));
  CU_IS(CUDA_SUCCESS, encode(&map, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, reinterpret_cast<void*>(std::uint64_t{1} << 57)));
  rank = 3;
  stride[1] = 64 * 256;
  interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
  CU_IS(CUDA_SUCCESS, encode(&map, address));
  box[0] = 12;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  interleave = CU_TENSOR_MAP_INTERLEAVE_32B;
  box[0] = 64;
  CU_IS(CUDA_SUCCESS, encode(&map, address));
  interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  box[0] = box[1] = 256;
  box[2] = 8;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(&map, address));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuTensorMapEncodeTiled(
            &map, type, 1, address, size, nullptr, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

// A tensor of 64 x 32 x 16 x 8 words by columns of 16 pixels, whose corners a test changes.
class Im2colTest : public TensorMapTest {
 protected:
  CUresult encode(int first_lower, int first_upper, cuuint32_t channels = 16) const {
    const int lower[] = {first_lower, 0};
    const int upper[] = {first_upper, 0};
    alignas(64) CUtensorMap map;
    return cu().cuTensorMapEncodeIm2col(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, nullptr, lengths, strides, lower, upper, channels,
        16, element, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  CUresult encode_wide(int lower, int upper, cuuint32_t channels, int mode) const {
    alignas(64) CUtensorMap map;
    return cu().cuTensorMapEncodeIm2colWide(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, nullptr, lengths, strides, lower, upper, channels,
        16, element, CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapIm2ColWideMode>(mode),
        CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  cuuint64_t lengths[4] = {64, 32, 16, 8};
  cuuint64_t strides[3] = {1024, 32768, 524288};
};

TEST_F(Im2colTest, SomePixelLiesBetweenTheCorners) {
  CU_IS(CUDA_SUCCESS, encode(0, 0));
  CU_IS(CUDA_SUCCESS, encode(-128, 0));
  CU_IS(CUDA_SUCCESS, encode(0, 127));
  CU_IS(CUDA_SUCCESS, encode(16, 0));
  CU_IS(CUDA_SUCCESS, encode(0, -17));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(127, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(0, -128));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(-129, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(4, -64));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(0, 0, 6));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(0, 0, 257));
  lengths[1] = std::uint64_t{1} << 31;
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode(0, 0));
}

TEST_F(Im2colTest, MapsOfWideColumnsAreMade) {
  if (!cu().cuTensorMapEncodeIm2colWide.present()) GTEST_SKIP() << "an older driver";
  CU_IS(CUDA_SUCCESS, encode_wide(0, 0, 16, 0));
  CU_IS(CUDA_SUCCESS, encode_wide(-128, 127, 16, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode_wide(127, 0, 16, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode_wide(0, 128, 16, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode_wide(0, 0, 32, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, encode_wide(0, 0, 16, 2));
}

}  // namespace
}  // namespace flyt::conformance
