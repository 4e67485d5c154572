// Errors that break a context: each in a process of its own.
#include <array>
#include <memory>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class StickyAlone : public ContextTest {
 protected:
  // Launches a kernel of the fault module; the launch itself succeeds.
  void launch_fault(const char* name) {
    module = std::make_unique<Module>(kFaultPtx);
    function = module->function(name);
    CU_OK(cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  }
  std::unique_ptr<Module> module;
  CUfunction function = nullptr;
};

TEST_F(StickyAlone, AWildStoreIsAnIllegalAddressAtTheNextWaitAndForEver) {
  launch_fault("wild_store");
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemAlloc_v2(&address, 16));
  CUstream stream = nullptr;
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuStreamCreate(&stream, 0));
  CUevent event = nullptr;
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuEventCreate(&event, 0));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuStreamQuery(nullptr));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS,
        cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS,
        cu().cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
}

TEST_F(StickyAlone, QueriesOfTheProcessStillAnswerAfterAFault) {
  launch_fault("wild_store");
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  CUcontext current = nullptr;
  CUdevice found = -1;
  int value = 0;
  unsigned flags = 0;
  int active = 0;
  std::size_t bytes = 0;
  CU_IS(CUDA_SUCCESS, cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(context, current);
  CU_IS(CUDA_SUCCESS, cu().cuCtxGetDevice(&found));
  CU_IS(CUDA_SUCCESS, cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  CU_IS(CUDA_SUCCESS, cu().cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
  CU_IS(CUDA_SUCCESS, cu().cuCtxGetFlags(&flags));
  unsigned long long id = 0;
  CU_IS(CUDA_SUCCESS, cu().cuCtxGetId(context, &id));
  unsigned version = 0;
  CU_IS(CUDA_SUCCESS, cu().cuCtxGetApiVersion(context, &version));
  EXPECT_NE(0U, version);
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxGetApiVersion(nullptr, &version));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemGetInfo_v2(&bytes, &bytes));
}

TEST_F(StickyAlone, ResourcesOfABrokenContextAnswerWithItsError) {
  CUevent event = nullptr;
  CUdeviceptr address = 0;
  std::uint8_t host[16] = {};
  CU_OK(cu().cuEventCreate(&event, 0));
  CU_OK(cu().cuMemAlloc_v2(&address, 16));
  launch_fault("wild_store");
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuEventQuery(event));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuEventDestroy_v2(event));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemcpyHtoD_v2(address, host, 16));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemcpyDtoH_v2(host, address, 16));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemFree_v2(address));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuModuleUnload(*module));
}

TEST_F(StickyAlone, ABlockingCopyReportsTheFaultToo) {
  const DeviceMemory memory(16);
  std::uint8_t host[16] = {};
  launch_fault("wild_store");
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemcpyDtoH_v2(host, memory, 16));
}

TEST_F(StickyAlone, APollSeesTheFaultWithoutWaiting) {
  launch_fault("wild_store");
  CUresult last = CUDA_SUCCESS;
  ASSERT_TRUE(eventually([&] {
    last = cu().cuStreamQuery(nullptr);
    return last != CUDA_ERROR_NOT_READY;
  }));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, last);
}

TEST_F(StickyAlone, AMisalignedStoreHasItsOwnError) {
  const DeviceMemory memory(16);
  module = std::make_unique<Module>(kFaultPtx);
  CU_OK(launch(module->function("misaligned"), 1, 1, nullptr, static_cast<CUdeviceptr>(memory)));
  CU_IS(CUDA_ERROR_MISALIGNED_ADDRESS, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_MISALIGNED_ADDRESS, cu().cuCtxSynchronize());
}

TEST_F(StickyAlone, ATrapIsALaunchFailure) {
  launch_fault("trap_now");
  CU_IS(CUDA_ERROR_LAUNCH_FAILED, cu().cuCtxSynchronize());
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_LAUNCH_FAILED, cu().cuMemAlloc_v2(&address, 16));
}

// Whatever is reset or destroyed: only another process has a healthy device.
TEST_F(StickyAlone, AFaultIsEveryContextsOfItsProcess) {
  const DeviceMemory memory(16);
  CUcontext broken = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&broken, 0, device));
  launch_fault("wild_store");
  // Whatever is posted behind it fails as well.
  for (int i = 0; i < 5; ++i) {
    const Unrecorded quiet;
    cu().cuMemsetD8Async(memory, 1, 16, nullptr);
  }
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxSynchronize());
  CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
  std::array<std::uint8_t, 16> found{};
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuMemcpyDtoH_v2(found.data(), memory, found.size()));
  CUcontext another = nullptr;
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuCtxCreate_v2(&another, 0, device));
  CU_OK(cu().cuDevicePrimaryCtxReset_v2(device));
  CU_IS(CUDA_ERROR_ILLEGAL_ADDRESS, cu().cuDevicePrimaryCtxRetain(&another, device));
}

TEST_F(StickyAlone, TheNextProcessFindsAHealthyDevice) {
  const DeviceMemory memory(16);
  memory.fill(1);
  EXPECT_EQ(1, memory.read<std::uint8_t>()[15]);
}

}  // namespace
}  // namespace flyt::conformance
