// cuGetProcAddress: names, versions and flags lead to the right variant of a function.
#include <dlfcn.h>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using ProcAddressTest = DriverTest;

void* exported(const char* name) { return ::dlsym(cu().library, name); }

void* look_up(const char* name, int version, cuuint64_t flags = 0) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = cu().cuGetProcAddress_v2(name, &found, version, flags, &status);
  if (result != CUDA_SUCCESS || status != CU_GET_PROC_ADDRESS_SUCCESS) return nullptr;
  return found;
}

TEST_F(ProcAddressTest, TheVersionChoosesTheVariant) {
  EXPECT_EQ(exported("cuMemAlloc"), look_up("cuMemAlloc", 2000));
  EXPECT_EQ(exported("cuMemAlloc_v2"), look_up("cuMemAlloc", 3020));
  EXPECT_EQ(exported("cuMemAlloc_v2"), look_up("cuMemAlloc", 12000));
  EXPECT_EQ(exported("cuStreamGetCtx"), look_up("cuStreamGetCtx", 12000));
  EXPECT_EQ(exported("cuStreamGetCtx_v2"), look_up("cuStreamGetCtx", 12050));
  EXPECT_EQ(exported("cuDeviceGetUuid"), look_up("cuDeviceGetUuid", 9020));
  EXPECT_EQ(exported("cuDeviceGetUuid_v2"), look_up("cuDeviceGetUuid", 11040));
  EXPECT_EQ(exported("cuGetProcAddress"), look_up("cuGetProcAddress", 11030));
  EXPECT_EQ(exported("cuGetProcAddress_v2"), look_up("cuGetProcAddress", 12000));
  EXPECT_EQ(exported("cuCtxCreate_v4"), look_up("cuCtxCreate", 13000));
}

TEST_F(ProcAddressTest, ThePerThreadFlagChoosesThePerThreadVariant) {
  constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(exported("cuLaunchKernel_ptsz"), look_up("cuLaunchKernel", 7000, kPerThread));
  EXPECT_EQ(exported("cuLaunchKernel"), look_up("cuLaunchKernel", 7000));
  EXPECT_EQ(exported("cuMemcpyHtoD_v2_ptds"), look_up("cuMemcpyHtoD", 7000, kPerThread));
  EXPECT_EQ(exported("cuMemAlloc_v2"), look_up("cuMemAlloc", 12000, kPerThread));
  EXPECT_EQ(exported("cuStreamQuery_ptsz"), look_up("cuStreamQuery", 12000, kPerThread));
}

TEST_F(ProcAddressTest, AnUnknownNameIsReportedSo) {
  void* found = reinterpret_cast<void*>(1);
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CU_IS(CUDA_SUCCESS, cu().cuGetProcAddress_v2("cuNoSuchFunction", &found, 12000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  EXPECT_EQ(nullptr, found);
  found = reinterpret_cast<void*>(1);
  CU_IS(CUDA_SUCCESS, cu().cuGetProcAddress_v2("cuNoSuchFunction", &found, 12000, 0, nullptr));
  EXPECT_EQ(nullptr, found);
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuGetProcAddress("cuNoSuchFunction", &found, 12000, 0));
}

TEST_F(ProcAddressTest, AVersionOlderThanTheFunctionIsReportedSo) {
  void* found = reinterpret_cast<void*>(1);
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  CU_IS(CUDA_SUCCESS, cu().cuGetProcAddress_v2("cuLaunchKernelEx", &found, 11000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
  EXPECT_EQ(nullptr, found);
}

TEST_F(ProcAddressTest, ArgumentsAreChecked) {
  void* found = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetProcAddress_v2("cuInit", &found, 12000, 99, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetProcAddress_v2("cuInit", &found, 99000, 0, nullptr));
}

// What a static cudart of CUDA 13.0 cannot start without.
constexpr const char* kNeededByRuntime[] = {"cuInit",
                                            "cuDriverGetVersion",
                                            "cuDeviceGet",
                                            "cuDeviceGetCount",
                                            "cuDeviceGetName",
                                            "cuDeviceTotalMem",
                                            "cuDeviceGetAttribute",
                                            "cuDeviceGetUuid",
                                            "cuDevicePrimaryCtxRetain",
                                            "cuDevicePrimaryCtxRelease",
                                            "cuDevicePrimaryCtxGetState",
                                            "cuCtxGetCurrent",
                                            "cuCtxSetCurrent",
                                            "cuCtxGetDevice",
                                            "cuCtxSynchronize",
                                            "cuModuleLoadData",
                                            "cuModuleGetFunction",
                                            "cuModuleGetGlobal",
                                            "cuModuleUnload",
                                            "cuLibraryLoadData",
                                            "cuLibraryGetKernel",
                                            "cuLibraryGetGlobal",
                                            "cuLibraryUnload",
                                            "cuKernelGetFunction",
                                            "cuMemAlloc",
                                            "cuMemFree",
                                            "cuMemGetInfo",
                                            "cuMemHostAlloc",
                                            "cuMemFreeHost",
                                            "cuMemcpy",
                                            "cuMemcpyAsync",
                                            "cuMemcpyHtoD",
                                            "cuMemcpyDtoH",
                                            "cuMemcpyHtoDAsync",
                                            "cuMemcpyDtoHAsync",
                                            "cuMemsetD8",
                                            "cuMemsetD8Async",
                                            "cuMemsetD32",
                                            "cuStreamCreate",
                                            "cuStreamDestroy",
                                            "cuStreamSynchronize",
                                            "cuStreamQuery",
                                            "cuStreamWaitEvent",
                                            "cuStreamIsCapturing",
                                            "cuEventCreate",
                                            "cuEventRecord",
                                            "cuEventQuery",
                                            "cuEventSynchronize",
                                            "cuEventElapsedTime",
                                            "cuEventDestroy",
                                            "cuLaunchKernel",
                                            "cuLaunchKernelEx",
                                            "cuLaunchCooperativeKernel",
                                            "cuLaunchHostFunc",
                                            "cuFuncGetAttribute",
                                            "cuFuncSetAttribute",
                                            "cuPointerGetAttributes",
                                            "cuGetErrorName",
                                            "cuGetErrorString",
                                            "cuGetExportTable",
                                            "cuGetProcAddress",
                                            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                                            "cuMemAllocAsync",
                                            "cuMemFreeAsync"};

TEST_F(ProcAddressTest, EverythingTheRuntimeNeedsIsThere) {
  for (const char* name : kNeededByRuntime) {
    EXPECT_NE(nullptr, look_up(name, 13000)) << name;
    EXPECT_NE(nullptr, look_up(name, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) << name;
  }
}

}  // namespace
}  // namespace flyt::conformance
