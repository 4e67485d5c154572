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
    return cu().cuTensorMapEncodeTiled(
        map, type, rank, address, size, stride, box, element, CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
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

}  // namespace
}  // namespace flyt::conformance
