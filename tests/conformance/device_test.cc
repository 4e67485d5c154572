// Devices: counting, naming, attributes.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using DeviceTest = DriverTest;

int device_count() {
  const Unrecorded quiet;
  int count = 0;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuDeviceGetCount(&count));
  return count;
}

TEST_F(DeviceTest, ThereIsAtLeastOne) {
  int count = 0;
  CU_OK(cu().cuDeviceGetCount(&count));
  EXPECT_GE(count, 1);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetCount(nullptr));
}

TEST_F(DeviceTest, OrdinalsOutsideTheCountAreInvalidDevices) {
  CUdevice found = -1;
  CU_OK(cu().cuDeviceGet(&found, 0));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGet(&found, -1));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGet(&found, device_count()));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGet(nullptr, 0));
}

TEST_F(DeviceTest, TheNameIsTerminatedAndFits) {
  char name[256];
  std::memset(name, 'x', sizeof(name));
  CU_OK(cu().cuDeviceGetName(name, sizeof(name), device));
  const std::size_t length = std::strlen(name);
  EXPECT_GT(length, 0u);
  EXPECT_LT(length, sizeof(name));
}

TEST_F(DeviceTest, ANameCutShortIsTerminated) {
  char name[8];
  std::memset(name, 'x', sizeof(name));
  CU_OK(cu().cuDeviceGetName(name, 5, device));
  EXPECT_LE(::strnlen(name, sizeof(name)), 4u);
  EXPECT_EQ('x', name[5]);
}

TEST_F(DeviceTest, NameArgumentsAreChecked) {
  char name[16];
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetName(nullptr, 16, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetName(name, 16, 12345));
}

TEST_F(DeviceTest, AttributesDescribeAUsableDevice) {
  int value = 0;
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  EXPECT_EQ(32, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device));
  EXPECT_EQ(1024, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, device));
  EXPECT_EQ(1024, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device));
  EXPECT_EQ(64, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device));
  EXPECT_EQ(2147483647, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device));
  EXPECT_EQ(65535, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device));
  EXPECT_EQ(1, value);
  CU_OK(cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  EXPECT_GE(value, 1);
}

TEST_F(DeviceTest, EveryAttributeUpToTheLastKnownIsAnswered) {
  for (int which = 1; which <= 147; ++which) {
    int value = 0;
    const CUresult result =
        cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(which), device);
    EXPECT_EQ(CUDA_SUCCESS, result) << "attribute " << which;
  }
}

TEST_F(DeviceTest, AttributeArgumentsAreChecked) {
  int value = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), device));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(-1), device));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1));
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4711));
}

TEST_F(DeviceTest, MemoryAndCapabilityAgreeWithTheOldCalls) {
  std::size_t bytes = 0;
  CU_OK(cu().cuDeviceTotalMem_v2(&bytes, device));
  EXPECT_GE(bytes, 64u << 20);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceTotalMem_v2(nullptr, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceTotalMem_v2(&bytes, 99));
  int major = 0;
  int minor = -1;
  CU_OK(cu().cuDeviceComputeCapability(&major, &minor, device));
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), major);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), minor);
  CUdevprop properties{};
  CU_OK(cu().cuDeviceGetProperties(&properties, device));
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), properties.maxThreadsPerBlock);
  EXPECT_EQ(32, properties.SIMDWidth);
}

TEST_F(DeviceTest, TheUuidIsStableAndNotZero) {
  CUuuid first{};
  CUuuid second{};
  CU_OK(cu().cuDeviceGetUuid_v2(&first, device));
  CU_OK(cu().cuDeviceGetUuid(&second, device));
  EXPECT_EQ(0, std::memcmp(&first, &second, sizeof(first)));
  const CUuuid zero{};
  EXPECT_NE(0, std::memcmp(&first, &zero, sizeof(first)));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetUuid_v2(nullptr, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetUuid_v2(&first, 77));
}

TEST_F(DeviceTest, ThePciBusIdLeadsBackToTheDevice) {
  char id[32] = {};
  CU_OK(cu().cuDeviceGetPCIBusId(id, sizeof(id), device));
  CUdevice found = -1;
  CU_OK(cu().cuDeviceGetByPCIBusId(&found, id));
  EXPECT_EQ(device, found);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetPCIBusId(nullptr, 32, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetByPCIBusId(nullptr, id));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetByPCIBusId(&found, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetByPCIBusId(&found, "nonsense"));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetByPCIBusId(&found, "0fff:77:1f.0"));
}

TEST_F(DeviceTest, ADeviceIsNotItsOwnPeer) {
  int can = -1;
  CU_OK(cu().cuDeviceCanAccessPeer(&can, device, device));
  EXPECT_EQ(0, can);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceCanAccessPeer(nullptr, device, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceCanAccessPeer(&can, device, 99));
}

TEST_F(DeviceTest, ADefaultPoolExistsWherePoolsAreSupported) {
  if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) GTEST_SKIP() << "no pools";
  CUmemoryPool pool = nullptr;
  CUmemoryPool current = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&pool, device));
  CU_OK(cu().cuDeviceGetMemPool(&current, device));
  EXPECT_NE(nullptr, pool);
  EXPECT_EQ(pool, current);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetDefaultMemPool(nullptr, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetDefaultMemPool(&pool, 99));
}

TEST_F(DeviceTest, NamesOfWindowsAreLookedAtAndNotSupported) {
  char luid[8] = {};
  unsigned int mask = 0;
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuDeviceGetLuid(luid, &mask, 0));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetLuid(luid, &mask, 99));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetLuid(nullptr, &mask, 0));
}

TEST_F(DeviceTest, RowsOfTexturesAreOfFormatsThatThereAre) {
  std::size_t width = 0;
  CU_OK(cu().cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 4, 0));
  EXPECT_GT(width, 0u);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetTexture1DLinearMaxWidth(&width, static_cast<CUarray_format>(0x77), 1, 0));
}

TEST_F(DeviceTest, AnAffinityOfNoKindIsNotSupported) {
  int supported = 7;
  CU_OK(cu().cuDeviceGetExecAffinitySupport(&supported, static_cast<CUexecAffinityType>(5), 0));
  EXPECT_EQ(0, supported);
}

}  // namespace
}  // namespace flyt::conformance
