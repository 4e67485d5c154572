// What a device and the world around it do to each other.
#include <dlfcn.h>

#include <cstdint>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

// What only these tests call.
struct HostLinkCalls {
  Call<decltype(driver::Table::cuDeviceGetHostAtomicCapabilities)>
      cuDeviceGetHostAtomicCapabilities{"cuDeviceGetHostAtomicCapabilities"};
  Call<decltype(driver::Table::cuFlushGPUDirectRDMAWrites)> cuFlushGPUDirectRDMAWrites{
      "cuFlushGPUDirectRDMAWrites"};
  Call<decltype(driver::Table::cuLaunchCooperativeKernelMultiDevice)>
      cuLaunchCooperativeKernelMultiDevice{"cuLaunchCooperativeKernelMultiDevice"};
  Call<decltype(driver::Table::cuLibraryGetUnifiedFunction)> cuLibraryGetUnifiedFunction{
      "cuLibraryGetUnifiedFunction"};

  HostLinkCalls() {
    bind(cuDeviceGetHostAtomicCapabilities);
    bind(cuFlushGPUDirectRDMAWrites);
    bind(cuLaunchCooperativeKernelMultiDevice);
    bind(cuLibraryGetUnifiedFunction);
  }
  template <class One>
  static void bind(One& call) {
    call.bind(::dlsym(cu().library, call.name()));
  }
};

const HostLinkCalls& host() {
  static const HostLinkCalls calls;
  return calls;
}

using HostLinkTest = ContextTest;

TEST_F(HostLinkTest, AtomicsOfTheLinkAreTold) {
  const CUatomicOperation wanted[] = {CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS};
  unsigned int can[2] = {77, 77};
  CU_OK(host().cuDeviceGetHostAtomicCapabilities(can, wanted, 2, device));
  EXPECT_NE(77u, can[0]);
  EXPECT_NE(77u, can[1]);
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        host().cuDeviceGetHostAtomicCapabilities(nullptr, wanted, 2, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        host().cuDeviceGetHostAtomicCapabilities(can, nullptr, 2, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, host().cuDeviceGetHostAtomicCapabilities(can, wanted, 0, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, host().cuDeviceGetHostAtomicCapabilities(can, wanted, 2, 99));
}

TEST_F(HostLinkTest, WritesOfOtherDevicesCanBeFlushed) {
  CU_IS(CUDA_SUCCESS,
        host().cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                          CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        host().cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                          static_cast<CUflushGPUDirectRDMAWritesScope>(7)));
}

TEST_F(HostLinkTest, ACooperativeLaunchOnOneDeviceOfManyRuns) {
  const Stream stream;
  const DeviceMemory out(4);
  const Module module(kBasicPtx);
  CUdeviceptr address = out;
  std::uint32_t value = 31;
  void* parameters[] = {&address, &value};
  CUDA_LAUNCH_PARAMS launch{};
  launch.function = module.function("store_value");
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
  launch.hStream = stream;
  launch.kernelParams = parameters;
  out.fill(0);
  CU_OK(host().cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
  CU_OK(cu().cuStreamSynchronize(stream));
  EXPECT_EQ(31u, out.read<std::uint32_t>()[0]);
  CU_IS(CUDA_ERROR_INVALID_VALUE, host().cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, host().cuLaunchCooperativeKernelMultiDevice(&launch, 0, 0));
  launch.hStream = nullptr;
  CU_IS(CUDA_ERROR_INVALID_HANDLE, host().cuLaunchCooperativeKernelMultiDevice(&launch, 1, 0));
}

TEST_F(HostLinkTest, OrdinaryFunctionsAreNotUnified) {
  CUlibrary library = nullptr;
  void* function = nullptr;
  CU_OK(cu().cuLibraryLoadData(&library, kBasicPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE,
        host().cuLibraryGetUnifiedFunction(&function, library, "store_value"));
  CU_OK(cu().cuLibraryUnload(library));
}

}  // namespace
}  // namespace flyt::conformance
