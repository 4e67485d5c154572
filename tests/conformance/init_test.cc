// Initialisation: what works before cuInit, what does not, and the version.
#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

class InitAlone : public ::testing::Test {};
using InitTest = DriverTest;

TEST_F(InitAlone, DeviceCallsBeforeInitAreNotInitialized) {
  int count = 0;
  CUdevice device = 0;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuDeviceGetCount(&count));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuDeviceGet(&device, 0));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED,
        cu().cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
  char name[64];
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuDeviceGetName(name, 64, 0));
  std::size_t bytes = 0;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuDeviceTotalMem_v2(&bytes, 0));
}

TEST_F(InitAlone, ContextCallsBeforeInitAreNotInitialized) {
  CUcontext context = nullptr;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuCtxGetCurrent(&context));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuCtxSetCurrent(nullptr));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuDevicePrimaryCtxRetain(&context, 0));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuCtxPopCurrent_v2(&context));
}

TEST_F(InitAlone, MemoryCallsBeforeInitAreNotInitialized) {
  CUdeviceptr address = 0;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuMemAlloc_v2(&address, 16));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuMemFree_v2(0x1000));
  void* host = nullptr;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuMemHostAlloc(&host, 16, 0));
  std::size_t available = 0;
  std::size_t total = 0;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuMemGetInfo_v2(&available, &total));
}

TEST_F(InitAlone, StreamsEventsAndModulesBeforeInitAreNotInitialized) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuStreamCreate(&stream, 0));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuEventCreate(&event, 0));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuModuleLoadData(&module, "x"));
  CUmoduleLoadingMode mode{};
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuModuleGetLoadingMode(&mode));
}

TEST_F(InitAlone, TheVersionAndErrorTextsNeedNoInit) {
  int version = 0;
  CU_IS(CUDA_SUCCESS, cu().cuDriverGetVersion(&version));
  EXPECT_GE(version, 12000);
  const char* text = nullptr;
  CU_IS(CUDA_SUCCESS, cu().cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
  EXPECT_STREQ("CUDA_ERROR_INVALID_VALUE", text);
}

TEST_F(InitAlone, InitRefusesFlags) {
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuInit(1));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuInit(0x80000000u));
  CU_IS(CUDA_SUCCESS, cu().cuInit(0));
}

TEST_F(InitAlone, AFailedInitLeavesTheDriverUninitialized) {
  int count = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuInit(2));
  CU_IS(CUDA_ERROR_NOT_INITIALIZED, cu().cuDeviceGetCount(&count));
}

TEST_F(InitTest, InitMayBeRepeated) {
  CU_IS(CUDA_SUCCESS, cu().cuInit(0));
  CU_IS(CUDA_SUCCESS, cu().cuInit(0));
}

TEST_F(InitTest, VersionNeedsAPlaceToGo) {
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDriverGetVersion(nullptr));
}

}  // namespace
}  // namespace flyt::conformance
