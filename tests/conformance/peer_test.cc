// Several devices: who reaches whose memory, and copies between them.
#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// Two devices with a primary context each; the first one's is current.
class PeerTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    const Unrecorded quiet;
    int count = 0;
    CU_OK(cu().cuDeviceGetCount(&count));
    if (count < 2) GTEST_SKIP() << "one device";
    int reaches = 0;
    CU_OK(cu().cuDeviceCanAccessPeer(&reaches, 0, 1));
    if (reaches == 0) GTEST_SKIP() << "the devices do not reach each other";
    for (CUdevice number : {0, 1}) {
      CU_OK(cu().cuDevicePrimaryCtxRetain(&contexts[number], number));
    }
    CU_OK(cu().cuCtxSetCurrent(contexts[0]));
  }
  void TearDown() override {
    const Unrecorded quiet;
    for (CUdevice number : {0, 1}) {
      if (contexts[number] == nullptr) continue;
      cu().cuCtxSetCurrent(contexts[number]);
      cu().cuCtxDisablePeerAccess(contexts[1 - number]);
      cu().cuDevicePrimaryCtxRelease_v2(number);
    }
    DriverTest::TearDown();
  }
  // Words of memory of the second device, all of one value.
  CUdeviceptr make(std::size_t count, std::uint32_t value) {
    const Unrecorded quiet;
    CUdeviceptr memory = 0;
    cu().cuCtxSetCurrent(contexts[1]);
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemAlloc_v2(&memory, 4 * count));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemsetD32_v2(memory, value, count));
    EXPECT_EQ(CUDA_SUCCESS, cu().cuCtxSynchronize());
    cu().cuCtxSetCurrent(contexts[0]);
    return memory;
  }
  static std::uint32_t word_at(CUdeviceptr memory) {
    const Unrecorded quiet;
    std::uint32_t word = 0;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuMemcpyDtoH_v2(&word, memory, 4));
    return word;
  }

  CUcontext contexts[2] = {};
};

TEST_F(PeerTest, DevicesDescribeWhatIsBetweenThem) {
  int value = -1;
  CU_OK(cu().cuDeviceCanAccessPeer(&value, 1, 0));
  EXPECT_EQ(1, value);
  CU_OK(cu().cuDeviceCanAccessPeer(&value, 1, 1));
  EXPECT_EQ(0, value);
  CU_OK(cu().cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  EXPECT_EQ(1, value);
  CU_OK(cu().cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1));
  EXPECT_GE(value, 0);
  CU_IS(CUDA_ERROR_INVALID_DEVICE,
        cu().cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 99));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
}

TEST_F(PeerTest, AtomicsBetweenDevicesAreDescribed) {
  if (!cu().cuDeviceGetP2PAtomicCapabilities.present()) GTEST_SKIP() << "an older driver";
  const CUatomicOperation operations[] = {CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS};
  unsigned capabilities[2] = {~0u, ~0u};
  CU_OK(cu().cuDeviceGetP2PAtomicCapabilities(capabilities, operations, 2, 0, 1));
  EXPECT_NE(~0u, capabilities[0]);
  EXPECT_NE(~0u, capabilities[1]);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        cu().cuDeviceGetP2PAtomicCapabilities(nullptr, operations, 2, 0, 1));
}

TEST_F(PeerTest, AKernelReachesTheOtherDevicesMemoryOnceThatIsEnabled) {
  const CUdeviceptr before = make(1000, 5);
  CU_OK(cu().cuCtxEnablePeerAccess(contexts[1], 0));
  const CUdeviceptr after = make(1 << 20, 7);
  const Module module(kBasicPtx);
  CU_OK(launch(module.function("add_one"), 4, 256, nullptr, before, 1000u));
  CU_OK(launch(module.function("add_one"), 4, 256, nullptr, after, 1000u));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(6u, word_at(before));
  EXPECT_EQ(8u, word_at(after));
  EXPECT_EQ(6u, word_at(before + 4 * 999));
  CU_OK(cu().cuMemFree_v2(before));
  CU_OK(cu().cuMemFree_v2(after));
}

TEST_F(PeerTest, EnablingTwiceAndDisablingWhatIsNotEnabledAreRefused) {
  CU_IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cu().cuCtxDisablePeerAccess(contexts[1]));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxEnablePeerAccess(contexts[1], 1));
  CU_OK(cu().cuCtxEnablePeerAccess(contexts[1], 0));
  CU_IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu().cuCtxEnablePeerAccess(contexts[1], 0));
  CU_OK(cu().cuCtxDisablePeerAccess(contexts[1]));
  CU_IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cu().cuCtxDisablePeerAccess(contexts[1]));
}

TEST_F(PeerTest, CopiesBetweenDevicesNeedNoAccess) {
  const CUdeviceptr there = make(4096, 11);
  const DeviceMemory here(4 * 4096);
  CU_OK(cu().cuMemcpyPeer(here, contexts[0], there, contexts[1], 4 * 4096));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(std::vector<std::uint32_t>(4096, 11), here.read<std::uint32_t>());
  here.write(std::vector<std::uint32_t>(4096, 12));
  const Stream stream;
  CU_OK(cu().cuMemcpyPeerAsync(there, contexts[1], here, contexts[0], 4 * 4096, stream));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(12u, word_at(there + 4 * 4095));
  CU_OK(cu().cuMemcpyDtoD_v2(here, there, 4));
  CU_OK(cu().cuMemFree_v2(there));
}

TEST_F(PeerTest, PointersNameTheirDevice) {
  const CUdeviceptr there = make(16, 0);
  const DeviceMemory here(64);
  int ordinal = -1;
  CU_OK(cu().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
  EXPECT_EQ(1, ordinal);
  CU_OK(cu().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here));
  EXPECT_EQ(0, ordinal);
  CU_OK(cu().cuMemFree_v2(there));
}

TEST_F(PeerTest, AKernelOfEitherDeviceReachesHostMemory) {
  const PinnedMemory pinned(64, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  *pinned.as<std::uint32_t>() = 20;
  for (const CUcontext context : contexts) {
    CU_OK(cu().cuCtxSetCurrent(context));
    const Module module(kBasicPtx);
    CU_OK(launch(module.function("add_one"), 1, 1, nullptr,
                 reinterpret_cast<CUdeviceptr>(pinned.data()), 1u));
    CU_OK(cu().cuCtxSynchronize());
  }
  EXPECT_EQ(22u, *pinned.as<std::uint32_t>());
  CU_OK(cu().cuCtxSetCurrent(contexts[0]));
}

TEST_F(PeerTest, APoolIsOpenedToTheOtherDeviceAndClosed) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {1}};
  CUmemoryPool pool = nullptr;
  CU_OK(cu().cuMemPoolCreate(&pool, &properties));
  CUmemLocation here{};
  here.type = CU_MEM_LOCATION_TYPE_DEVICE;
  here.id = 0;
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CU_OK(cu().cuMemPoolGetAccess(&flags, pool, &here));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
  CUmemAccessDesc open{};
  open.location = here;
  open.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  // Twice is as good as once.
  CU_OK(cu().cuMemPoolSetAccess(pool, &open, 1));
  CU_OK(cu().cuMemPoolSetAccess(pool, &open, 1));
  CU_OK(cu().cuMemPoolGetAccess(&flags, pool, &here));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);

  CUdeviceptr memory = 0;
  CU_OK(cu().cuCtxSetCurrent(contexts[1]));
  {
    const Stream stream;
    CU_OK(cu().cuMemAllocFromPoolAsync(&memory, 256, pool, stream));
    CU_OK(cu().cuStreamSynchronize(stream));
  }
  CU_OK(cu().cuCtxSetCurrent(contexts[0]));
  {
    const Module module(kBasicPtx);
    CU_OK(launch(module.function("store_value"), 1, 1, nullptr, memory, 77u));
    CU_OK(cu().cuCtxSynchronize());
  }
  EXPECT_EQ(77u, word_at(memory));
  CU_OK(cu().cuMemFree_v2(memory));
  open.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CU_OK(cu().cuMemPoolSetAccess(pool, &open, 1));
  CU_OK(cu().cuMemPoolGetAccess(&flags, pool, &here));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
  CU_OK(cu().cuMemPoolDestroy(pool));
}

TEST_F(PeerTest, AMappingIsOpenedToTheOtherDeviceAndClosed) {
  constexpr std::size_t kBytes = 2 << 20;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemGenericAllocationHandle allocation = 0;
  CU_OK(cu().cuMemCreate(&allocation, kBytes, &properties, 0));
  CUdeviceptr memory = 0;
  CU_OK(cu().cuMemAddressReserve(&memory, kBytes, 0, 0, 0));
  CU_OK(cu().cuMemMap(memory, kBytes, 0, allocation, 0));
  CUmemAccessDesc access[2] = {
      {{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
      {{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  CU_OK(cu().cuMemSetAccess(memory, kBytes, access, 2));
  unsigned long long flags = 0;
  CU_OK(cu().cuMemGetAccess(&flags, &access[1].location, memory));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
  access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CU_OK(cu().cuMemSetAccess(memory, kBytes, &access[1], 1));
  CU_OK(cu().cuMemGetAccess(&flags, &access[1].location, memory));
  EXPECT_EQ(CU_MEM_ACCESS_FLAGS_PROT_NONE, flags);
  // Its own device keeps it.
  CU_OK(cu().cuMemsetD32_v2(memory, 5, 16));
  CU_OK(cu().cuCtxSynchronize());
  EXPECT_EQ(5u, word_at(memory));
  CU_OK(cu().cuMemUnmap(memory, kBytes));
  CU_OK(cu().cuMemAddressFree(memory, kBytes));
  CU_OK(cu().cuMemRelease(allocation));
}

}  // namespace
}  // namespace flyt::conformance
