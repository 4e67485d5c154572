// Stream-ordered allocation and memory pools.
#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class PoolTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    if (attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) GTEST_SKIP() << "no pools";
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
  }
  std::uint64_t value_of(CUmemoryPool pool, CUmemPool_attribute which) const {
    std::uint64_t value = 0;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemPoolGetAttribute(pool, which, &value));
    return value;
  }
  // That neither makes nor tells a pool.
  void refuses(CUmemLocationType where, CUmemAllocationType type) {
    CUmemoryPool pool = nullptr;
    properties.location = {where, 0};
    properties.allocType = type;
    CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemPoolCreate(&pool, &properties));
    if (!cu().cuMemGetDefaultMemPool.present()) return;
    CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemGetDefaultMemPool(&pool, &properties.location, type));
  }
  CUmemPoolProps properties{};
};

TEST_F(PoolTest, AllocatesUsesAndFreesInStreamOrder) {
  const Stream stream;
  const Module module(kBasicPtx);
  CUdeviceptr address = 0;
  std::uint32_t value = 0;
  CU_OK(cu().cuMemAllocAsync(&address, 1000, stream));
  EXPECT_NE(0u, address);
  CU_OK(launch(module.function("store_value"), 1, 1, stream, address, 12u));
  CU_OK(cu().cuMemcpyDtoHAsync_v2(&value, address, 4, stream));
  CU_OK(cu().cuMemFreeAsync(address, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(12u, value);
}

TEST_F(PoolTest, ArgumentsAreChecked) {
  const Stream stream;
  CUdeviceptr address = 1;
  CU_IS(CUDA_SUCCESS, cu().cuMemAllocAsync(&address, 0, stream));
  EXPECT_EQ(0u, address);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemAllocAsync(nullptr, 16, stream));
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemAllocAsync(&address, std::size_t{1} << 45, stream));
  CU_IS(CUDA_SUCCESS, cu().cuMemFreeAsync(0, stream));
  CU_OK(cu().cuMemAllocAsync(&address, 100, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeAsync(address + 1, stream));
  CU_OK(cu().cuMemFreeAsync(address, stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFreeAsync(address, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(PoolTest, BothFreesTakeBothKindsOfMemory) {
  const Stream stream;
  CUdeviceptr from_pool = 0;
  CUdeviceptr ordinary = 0;
  CU_OK(cu().cuMemAllocAsync(&from_pool, 100, stream));
  CU_OK(cu().cuMemFree_v2(from_pool));
  CU_OK(cu().cuMemAlloc_v2(&ordinary, 100));
  CU_OK(cu().cuMemFreeAsync(ordinary, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemFree_v2(ordinary));
}

TEST_F(PoolTest, AFreedBlockIsUsedAgainOnItsStream) {
  const Stream stream;
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  CU_OK(cu().cuMemAllocAsync(&first, 1 << 20, stream));
  CU_OK(cu().cuMemFreeAsync(first, stream));
  CU_OK(cu().cuMemAllocAsync(&second, 1 << 20, stream));
  EXPECT_EQ(first, second);
  CU_OK(cu().cuMemFreeAsync(second, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
}

TEST_F(PoolTest, KernelsKeepTheirMemoryWhileItIsGivenToThoseBehindThem) {
  constexpr std::uint32_t kWords = 1 << 18;
  const Stream stream;
  const Module module(kBasicPtx);
  for (int i = 0; i < 50; ++i) {
    CUdeviceptr address = 0;
    CU_OK(cu().cuMemAllocAsync(&address, kWords * 4, stream));
    CU_OK(launch(module.function("add_one"), kWords / 256, 256, stream, address, kWords));
    CU_OK(cu().cuMemFreeAsync(address, stream));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
}

// What was given away in smaller pieces than before.
TEST_F(PoolTest, FillsAndCopiesKeepTheirMemoryWhileLessOfItIsGivenToThoseBehindThem) {
  constexpr std::size_t kBytes = 500;
  const Stream stream;
  const Module module(kBasicPtx);
  const DeviceMemory busy(4 << 20);
  const DeviceMemory kept(kBytes);
  for (int i = 0; i < 20; ++i) {
    CUdeviceptr large = 0;
    CUdeviceptr small = 0;
    // Something to stand behind.
    CU_OK(launch(module.function("add_one"), 4096, 256, stream, static_cast<CUdeviceptr>(busy),
                 1u << 20));
    CU_OK(cu().cuMemAllocAsync(&large, kBytes, stream));
    CU_OK(cu().cuMemsetD8Async(large, 7, kBytes, stream));
    CU_OK(cu().cuMemcpyDtoDAsync_v2(kept, large, kBytes, stream));
    CU_OK(cu().cuMemFreeAsync(large, stream));
    CU_OK(cu().cuMemAllocAsync(&small, kBytes - 100, stream));
    CU_OK(cu().cuMemFreeAsync(small, stream));
  }
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(std::vector<std::uint8_t>(kBytes, 7), kept.read<std::uint8_t>());
}

TEST_F(PoolTest, AnOwnPoolCountsWhatIsUsed) {
  const Stream stream;
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuMemPoolCreate(&pool, &properties));
  EXPECT_EQ(0u, value_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&address, 1 << 20, pool, stream));
  EXPECT_EQ(1u << 20, value_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_GE(value_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 1u << 20);
  CU_OK(cu().cuMemFreeAsync(address, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(0u, value_of(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_EQ(1u << 20, value_of(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
  CU_OK(cu().cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(0u, value_of(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  CU_OK(cu().cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, AttributesCanBeSetAndAreChecked) {
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuMemPoolCreate(&pool, &properties));
  std::uint64_t threshold = ~std::uint64_t{0};
  int off = 0;
  CU_OK(cu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT_EQ(threshold, value_of(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
  CU_OK(cu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &off));
  std::uint64_t value = 5;
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(99), &value));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(99), &value));
  CU_OK(cu().cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, TheDefaultPoolCannotBeDestroyed) {
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&pool, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolDestroy(pool));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolTrimTo(nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolCreate(nullptr, &properties));
}

TEST_F(PoolTest, PoolsOfHostMemoryAreNotSupported) {
  if (attribute(CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED) != 0) GTEST_SKIP() << "they are";
  refuses(CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED);
  refuses(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ALLOCATION_TYPE_PINNED);
  CUmemoryPool pool = nullptr;
  properties.location.type = CU_MEM_LOCATION_TYPE_NONE;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolCreate(&pool, &properties));
}

TEST_F(PoolTest, PoolsOfManagedMemoryAreNotSupported) {
  if (attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) != 0) GTEST_SKIP() << "they may be";
  refuses(CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED);
  refuses(CU_MEM_LOCATION_TYPE_NONE, CU_MEM_ALLOCATION_TYPE_MANAGED);
}

TEST_F(PoolTest, TheDevicesPoolCanBeReplaced) {
  CUmemoryPool original = nullptr;
  CUmemoryPool pool = nullptr;
  CUmemoryPool read = nullptr;
  CU_OK(cu().cuDeviceGetMemPool(&original, device));
  CU_OK(cu().cuMemPoolCreate(&pool, &properties));
  CU_OK(cu().cuDeviceSetMemPool(device, pool));
  CU_OK(cu().cuDeviceGetMemPool(&read, device));
  EXPECT_EQ(pool, read);
  CU_OK(cu().cuMemPoolDestroy(pool));
  CU_OK(cu().cuDeviceGetMemPool(&read, device));
  EXPECT_EQ(original, read);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceSetMemPool(device, nullptr));
}

TEST_F(PoolTest, AccessOfTheOwnDeviceIsReadWrite) {
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&pool, device));
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CU_OK(cu().cuMemPoolGetAccess(&flags, pool, &properties.location));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
}

TEST_F(PoolTest, AccessOfOthersIsCheckedByWhatTheyAre) {
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuMemPoolCreate(&pool, &properties));
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU_IS(CUDA_SUCCESS, cu().cuMemPoolGetAccess(&flags, pool, &access.location));
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemPoolSetAccess(pool, &access, 1));
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 99};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolGetAccess(&flags, pool, &access.location));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuMemPoolSetAccess(pool, &access, 1));
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  CU_IS(CUDA_ERROR_NOT_SUPPORTED, cu().cuMemPoolSetAccess(pool, &access, 1));
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuMemPoolSetAccess(pool, &access, 1));
  CU_IS(CUDA_SUCCESS, cu().cuMemPoolSetAccess(pool, &access, 0));
  CU_OK(cu().cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, WhatThereIsNotHasNoPool) {
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuDeviceGetDefaultMemPool(&pool, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceSetMemPool(99, pool));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDeviceGetMemPool(&pool, 99));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDeviceGetDefaultMemPool(&pool, 99));
  properties.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolCreate(&pool, &properties));
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.maxSize = ~std::size_t{0};
  CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cu().cuMemPoolCreate(&pool, &properties));
  properties.maxSize = 0;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuMemPoolCreate(&pool, &properties));
  if (!cu().cuMemGetMemPool.present()) return;
  CU_IS(CUDA_ERROR_NOT_SUPPORTED,
        cu().cuMemGetMemPool(&pool, &properties.location, CU_MEM_ALLOCATION_TYPE_PINNED));
}

TEST_F(PoolTest, PoolMemoryKnowsItsPool) {
  const Stream stream;
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuMemPoolCreate(&pool, &properties));
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAllocFromPoolAsync(&address, 700, pool, stream));
  CUmemoryPool owner = nullptr;
  CU_OK(cu().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
  EXPECT_EQ(pool, owner);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  CU_OK(cu().cuMemGetAddressRange_v2(&base, &size, address + 5));
  EXPECT_EQ(address, base);
  EXPECT_EQ(700u, size);
  CU_OK(cu().cuMemFreeAsync(address, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  CU_OK(cu().cuMemPoolDestroy(pool));
}

}  // namespace
}  // namespace flyt::conformance
