// Virtual memory management: reserve, create, map, set access.
#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class VmmTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 0) {
      GTEST_SKIP() << "no virtual memory management";
    }
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU_OK(cu().cuMemGetAllocationGranularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  }
  CUmemAllocationProp properties{};
  CUmemAccessDesc access{};
  std::size_t unit = 0;
};

TEST_F(VmmTest, GranularityIsAPowerOfTwo) {
  EXPECT_GT(unit, 0u);
  EXPECT_EQ(0u, unit & (unit - 1));
  std::size_t value = 0;
  CU_OK(cu().cuMemGetAllocationGranularity(&value, &properties,
                                           CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  EXPECT_EQ(0u, value % unit);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemGetAllocationGranularity(nullptr, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemGetAllocationGranularity(&value, &properties,
                                           static_cast<CUmemAllocationGranularity_flags>(2)));
}

// NCCL asks before it tries whether there is such memory.
TEST_F(VmmTest, GranularityOfHostMemoryIsTold) {
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  std::size_t value = 0;
  CU_OK(cu().cuMemGetAllocationGranularity(&value, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_GT(value, 0u);
  EXPECT_EQ(0u, value & (value - 1));
}

TEST_F(VmmTest, MappedMemoryIsMemory) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CU_OK(cu().cuMemAddressReserve(&address, 4 * unit, 0, 0, 0));
  CU_OK(cu().cuMemCreate(&handle, 2 * unit, &properties, 0));
  CU_OK(cu().cuMemMap(address + unit, 2 * unit, 0, handle, 0));
  CU_OK(cu().cuMemSetAccess(address + unit, 2 * unit, &access, 1));
  CU_OK(cu().cuMemRelease(handle));
  const Module module(kBasicPtx);
  CU_OK(launch(module.function("store_value"), 1, 1, nullptr, address + 3 * unit - 4, 71u));
  std::uint32_t value = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&value, address + 3 * unit - 4, 4));
  EXPECT_EQ(71u, value);
  CU_OK(cu().cuMemsetD8_v2(address + unit, 5, 2 * unit));
  CU_OK(cu().cuMemcpyDtoH_v2(&value, address + unit, 4));
  EXPECT_EQ(0x05050505u, value);
  CU_OK(cu().cuMemUnmap(address + unit, 2 * unit));
  CU_OK(cu().cuMemAddressFree(address, 4 * unit));
}

TEST_F(VmmTest, WithoutAccessMemoryCannotBeTouched) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CU_OK(cu().cuMemAddressReserve(&address, unit, 0, 0, 0));
  CU_OK(cu().cuMemCreate(&handle, unit, &properties, 0));
  CU_OK(cu().cuMemMap(address, unit, 0, handle, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD8_v2(address, 1, 4));
  unsigned long long flags = 9;
  CU_OK(cu().cuMemGetAccess(&flags, &properties.location, address));
  EXPECT_EQ(0u, flags);
  CUdeviceptr reached = 1;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuPointerGetAttribute(&reached, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
  CU_OK(cu().cuMemSetAccess(address, unit, &access, 1));
  CU_OK(cu().cuMemGetAccess(&flags, &properties.location, address));
  EXPECT_EQ(3u, flags);
  CU_OK(cu().cuPointerGetAttribute(&reached, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address));
  EXPECT_EQ(address, reached);
  const int one = 1;
  CU_IS(CUDA_ERROR_NOT_SUPPORTED,
        cu().cuPointerSetAttribute(&one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
  CU_IS(CUDA_SUCCESS, cu().cuMemsetD8_v2(address, 1, 4));
  CU_OK(cu().cuCtxSynchronize());
  CU_OK(cu().cuMemUnmap(address, unit));
  CU_OK(cu().cuMemRelease(handle));
  CU_OK(cu().cuMemAddressFree(address, unit));
}

TEST_F(VmmTest, MemoryForReadingIsNotWritten) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CU_OK(cu().cuMemAddressReserve(&address, 2 * unit, 0, 0, 0));
  for (std::size_t i = 0; i < 2; ++i) {
    CU_OK(cu().cuMemCreate(&handle, unit, &properties, 0));
    CU_OK(cu().cuMemMap(address + i * unit, unit, 0, handle, 0));
    CU_OK(cu().cuMemRelease(handle));
  }
  CU_OK(cu().cuMemSetAccess(address, 2 * unit, &access, 1));
  CU_OK(cu().cuMemsetD8_v2(address, 6, 2 * unit));
  CU_OK(cu().cuCtxSynchronize());
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CU_OK(cu().cuMemSetAccess(address + unit, unit, &access, 1));
  std::uint32_t value = 0;
  CU_OK(cu().cuMemcpyDtoH_v2(&value, address + unit, 4));
  EXPECT_EQ(0x06060606u, value);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD8_v2(address + unit, 1, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemsetD8_v2(address + unit - 4, 1, 8));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyHtoD_v2(address + unit, &value, 4));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemcpyDtoD_v2(address + unit, address, 4));
  CU_OK(cu().cuMemcpyDtoD_v2(address, address + unit, 4));
  CU_OK(cu().cuCtxSynchronize());
  CU_OK(cu().cuMemUnmap(address, 2 * unit));
  CU_OK(cu().cuMemAddressFree(address, 2 * unit));
}

TEST_F(VmmTest, MemoryThatWasNotMappedHasAccessForNobody) {
  const DeviceMemory memory(64);
  const PinnedMemory pinned(64);
  unsigned long long flags = 9;
  for (const CUdeviceptr address :
       {static_cast<CUdeviceptr>(memory), reinterpret_cast<CUdeviceptr>(pinned.data())}) {
    flags = 9;
    CU_OK(cu().cuMemGetAccess(&flags, &properties.location, address));
    EXPECT_EQ(0u, flags);
  }
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemGetAccess(&flags, &properties.location, 0x1234));
}

TEST_F(VmmTest, TheGranularityIsTheSameEverywhere) {
  CUmemAllocationProp elsewhere = properties;
  elsewhere.location = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
  std::size_t bytes = 0;
  CU_OK(cu().cuMemGetAllocationGranularity(&bytes, &elsewhere, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(unit, bytes);
  elsewhere.type = CU_MEM_ALLOCATION_TYPE_MANAGED;
  CU_OK(cu().cuMemGetAllocationGranularity(&bytes, &elsewhere, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  EXPECT_EQ(unit, bytes);
}

TEST_F(VmmTest, MemoryThatOnlyAnotherDeviceMayUseIsCopiedByThat) {
  if (!has_peer()) GTEST_SKIP() << "no two devices that reach each other";
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CU_OK(cu().cuMemAddressReserve(&address, unit, 0, 0, 0));
  CU_OK(cu().cuMemCreate(&handle, unit, &properties, 0));
  CU_OK(cu().cuMemMap(address, unit, 0, handle, 0));
  access.location.id = 1;
  CU_OK(cu().cuMemSetAccess(address, unit, &access, 1));
  CU_OK(cu().cuMemRelease(handle));
  CUcontext other = nullptr;
  CU_OK(cu().cuDevicePrimaryCtxRetain(&other, 1));
  CU_OK(cu().cuCtxPushCurrent_v2(other));
  std::uint32_t value = 0;
  CU_OK(cu().cuMemsetD32_v2(address, 12, 4));
  CU_OK(cu().cuMemcpyDtoH_v2(&value, address + 4, 4));
  EXPECT_EQ(12u, value);
  unsigned int flags = 0;
  CU_OK(cu().cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
  EXPECT_EQ(3u, flags);
  CU_OK(cu().cuCtxPopCurrent_v2(nullptr));
  CU_OK(cu().cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
  EXPECT_EQ(0u, flags);
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(1));
  CU_OK(cu().cuMemUnmap(address, unit));
  CU_OK(cu().cuMemAddressFree(address, unit));
}

TEST_F(VmmTest, TheSamePagesCanBeSeenAtTwoAddresses) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CU_OK(cu().cuMemAddressReserve(&address, 2 * unit, 0, 0, 0));
  CU_OK(cu().cuMemCreate(&handle, unit, &properties, 0));
  CU_OK(cu().cuMemMap(address, unit, 0, handle, 0));
  CU_OK(cu().cuMemMap(address + unit, unit, 0, handle, 0));
  CU_OK(cu().cuMemSetAccess(address, 2 * unit, &access, 1));
  const std::uint32_t sent = 0xabcdef01;
  std::uint32_t received = 0;
  CU_OK(cu().cuMemcpyHtoD_v2(address + 128, &sent, 4));
  CU_OK(cu().cuMemcpyDtoH_v2(&received, address + unit + 128, 4));
  EXPECT_EQ(sent, received);
  CU_OK(cu().cuMemUnmap(address, 2 * unit));
  CU_OK(cu().cuMemRelease(handle));
  CU_OK(cu().cuMemAddressFree(address, 2 * unit));
}

TEST_F(VmmTest, ReservationArgumentsAreChecked) {
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressReserve(&address, 0, 0, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressReserve(&address, 100, 0, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressReserve(&address, 4 * unit, 3, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressReserve(&address, 4 * unit, 0, 0, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressReserve(&address, 4 * unit, 0, unit / 2, 0));
  CU_OK(cu().cuMemAddressReserve(&address, 4 * unit, 0, 0, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressFree(address, unit));
  CU_OK(cu().cuMemAddressFree(address, 4 * unit));
}

TEST_F(VmmTest, CreationArgumentsAreChecked) {
  CUmemGenericAllocationHandle handle = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, unit + 1, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, 0, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, unit, &properties, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, unit, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(nullptr, unit, &properties, 0));
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemCreate(&handle, std::size_t{1} << 45, &properties, 0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_WIN32;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, unit, &properties, 0));
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location.id = 99;
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuMemCreate(&handle, unit, &properties, 0));
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, device};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemCreate(&handle, unit, &properties, 0));
}

TEST_F(VmmTest, MappingIsChecked) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CU_OK(cu().cuMemAddressReserve(&address, 4 * unit, 0, 0, 0));
  CU_OK(cu().cuMemCreate(&handle, 2 * unit, &properties, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemMap(address, 2 * unit, 0, handle, 1));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemMap(address, unit, unit, handle, 0));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemMap(address, 3 * unit, 0, handle, 0));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemMap(address, 1, 0, handle, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemMap(address + 1, 2 * unit, 0, handle, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemMap(address, 2 * unit, 0, 0, 0));
  CU_OK(cu().cuMemMap(address, 2 * unit, 0, handle, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemMap(address, 2 * unit, 0, handle, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemSetAccess(address, 4 * unit, &access, 1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemSetAccess(address, 2 * unit, &access, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemSetAccess(address, 2 * unit, nullptr, 1));
  CUmemAccessDesc elsewhere = access;
  elsewhere.location.id = 99;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemSetAccess(address, 2 * unit, &elsewhere, 1));
  elsewhere.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemSetAccess(address, 2 * unit, &elsewhere, 1));
  elsewhere.location = {CU_MEM_LOCATION_TYPE_NONE, 0};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemSetAccess(address, 2 * unit, &elsewhere, 1));
  unsigned long long flags = 0;
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuMemGetAccess(&flags, &elsewhere.location, address));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemUnmap(address, unit));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAddressFree(address, 4 * unit));
  CU_OK(cu().cuMemUnmap(address, 2 * unit));
  CU_OK(cu().cuMemRelease(handle));
  CU_OK(cu().cuMemAddressFree(address, 4 * unit));
}

TEST_F(VmmTest, AHandleCanBeFoundAgainFromItsAddress) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle found = 0;
  CU_OK(cu().cuMemAddressReserve(&address, unit, 0, 0, 0));
  CU_OK(cu().cuMemCreate(&handle, unit, &properties, 0));
  CU_OK(cu().cuMemMap(address, unit, 0, handle, 0));
  CU_OK(cu().cuMemRetainAllocationHandle(&found, reinterpret_cast<void*>(address)));
  EXPECT_EQ(handle, found);
  CUmemAllocationProp read{};
  CU_OK(cu().cuMemGetAllocationPropertiesFromHandle(&read, found));
  EXPECT_EQ(CU_MEM_ALLOCATION_TYPE_PINNED, read.type);
  CU_OK(cu().cuMemRelease(found));
  CU_OK(cu().cuMemUnmap(address, unit));
  CU_OK(cu().cuMemRelease(handle));
  CU_OK(cu().cuMemAddressFree(address, unit));
  const DeviceMemory memory(16);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemRetainAllocationHandle(
            &found, reinterpret_cast<void*>(static_cast<CUdeviceptr>(memory))));
}

}  // namespace
}  // namespace flyt::conformance
