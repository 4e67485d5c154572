// Contexts: the current one, the stack, primary contexts, limits.
#include <atomic>
#include <cstring>
#include <string_view>
#include <thread>

#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using ContextStackTest = DriverTest;
using ContextStateTest = ContextTest;
class PrimaryAlone : public DriverTest {};

TEST_F(ContextStackTest, AThreadBeginsWithoutAContext) {
  CUcontext current = reinterpret_cast<CUcontext>(1);
  std::thread([&] { CU_IS(CUDA_SUCCESS, cu().cuCtxGetCurrent(&current)); }).join();
  EXPECT_EQ(nullptr, current);
}

TEST_F(ContextStackTest, CallsWithoutAContextAreInvalidContext) {
  CUdevice found = 0;
  CUdeviceptr address = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  std::size_t bytes = 0;
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxGetDevice(&found));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxSynchronize());
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuMemAlloc_v2(&address, 16));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuStreamCreate(&stream, 0));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuEventCreate(&event, 0));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuStreamQuery(nullptr));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuStreamSynchronize(nullptr));
  CUmodule module = nullptr;
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuModuleLoadData(&module, ".version 7.0"));
  CUcontext popped = nullptr;
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxPopCurrent_v2(&popped));
}

TEST_F(ContextStackTest, CreateMakesCurrentAndDestroyTakesItAway) {
  CUcontext made = nullptr;
  CUcontext current = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(made, current);
  CUdevice found = -1;
  CU_OK(cu().cuCtxGetDevice(&found));
  EXPECT_EQ(device, found);
  CU_OK(cu().cuCtxDestroy_v2(made));
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
}

TEST_F(ContextStackTest, TheStackIsLastInFirstOut) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CUcontext popped = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&first, 0, device));
  CU_OK(cu().cuCtxCreate_v2(&second, 0, device));
  EXPECT_NE(first, second);
  CU_OK(cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(second, popped);
  CU_OK(cu().cuCtxPushCurrent_v2(second));
  CU_OK(cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(second, popped);
  CU_OK(cu().cuCtxPopCurrent_v2(&popped));
  EXPECT_EQ(first, popped);
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxPopCurrent_v2(&popped));
  CU_OK(cu().cuCtxDestroy_v2(first));
  CU_OK(cu().cuCtxDestroy_v2(second));
}

TEST_F(ContextStackTest, SetCurrentReplacesTheTop) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CUcontext current = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&first, 0, device));
  CU_OK(cu().cuCtxCreate_v2(&second, 0, device));
  CU_OK(cu().cuCtxSetCurrent(first));
  CU_OK(cu().cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(first, current);
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(first, current);
  CU_OK(cu().cuCtxSetCurrent(nullptr));
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
  CU_OK(cu().cuCtxDestroy_v2(first));
  CU_OK(cu().cuCtxDestroy_v2(second));
}

TEST_F(ContextStackTest, ADestroyedContextIsPushedAndOfNoUse) {
  CUcontext made = nullptr;
  CUcontext current = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CU_OK(cu().cuCtxDestroy_v2(made));
  CU_OK(cu().cuCtxPushCurrent_v2(made));
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(made, current);
  CU_IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu().cuCtxSynchronize());
  CU_OK(cu().cuCtxPopCurrent_v2(&current));
  EXPECT_EQ(made, current);
}

TEST_F(ContextStackTest, NullArgumentsAreRefused) {
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetCurrent(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxCreate_v2(nullptr, 0, device));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxPushCurrent_v2(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxDestroy_v2(nullptr));
}

TEST_F(ContextStackTest, CreationChecksFlagsAndDevice) {
  CUcontext made = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxCreate_v2(&made, 0xffff0000u, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuCtxCreate_v2(&made, 0, -1));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuCtxCreate_v2(&made, 0, 99));
}

TEST_F(ContextStackTest, NewerCreateCallsMakeContextsToo) {
  CUcontext made = nullptr;
  CU_OK(cu().cuCtxCreate_v3(&made, nullptr, 0, CU_CTX_SCHED_BLOCKING_SYNC, device));
  unsigned flags = 0;
  CU_OK(cu().cuCtxGetFlags(&flags));
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_BLOCKING_SYNC), flags & CU_CTX_SCHED_MASK);
  CU_OK(cu().cuCtxDestroy_v2(made));
  CU_OK(cu().cuCtxCreate_v4(&made, nullptr, 0, device));
  CU_OK(cu().cuCtxGetFlags(&flags));
  EXPECT_EQ(0u, flags);
  CU_OK(cu().cuCtxDestroy_v2(made));
}

TEST_F(ContextStackTest, MemoryOfAContextDiesWithIt) {
  CUcontext made = nullptr;
  CUdeviceptr address = 0;
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CU_OK(cu().cuMemAlloc_v2(&address, 32u << 20));
  CU_OK(cu().cuCtxDestroy_v2(made));
  CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
  CU_OK(cu().cuMemGetInfo_v2(&before, &total));
  CU_OK(cu().cuMemAlloc_v2(&address, 32u << 20));
  CU_OK(cu().cuMemGetInfo_v2(&after, &total));
  EXPECT_LE(before - after, (32u << 20) + kOthersMemory);
  EXPECT_GE(before - after, (32u << 20) - kOthersMemory);
  CU_OK(cu().cuCtxDestroy_v2(made));
}

TEST_F(ContextStackTest, AnAddressIsGoodInEveryContextOfTheProcess) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CUdeviceptr address = 0;
  std::uint32_t value = 0x12345678;
  std::uint32_t read = 0;
  CU_OK(cu().cuCtxCreate_v2(&first, 0, device));
  CU_OK(cu().cuMemAlloc_v2(&address, 4));
  CU_OK(cu().cuMemcpyHtoD_v2(address, &value, 4));
  CU_OK(cu().cuCtxCreate_v2(&second, 0, device));
  CU_OK(cu().cuMemcpyDtoH_v2(&read, address, 4));
  EXPECT_EQ(value, read);
  CU_OK(cu().cuCtxDestroy_v2(second));
  CU_OK(cu().cuCtxDestroy_v2(first));
}

TEST_F(ContextStackTest, AFunctionOfAnotherContextCannotBeLaunched) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&first, 0, device));
  CU_OK(cu().cuCtxCreate_v2(&second, 0, device));
  CUstream of_second = nullptr;
  CU_OK(cu().cuStreamCreate(&of_second, 0));
  CUcontext owner = nullptr;
  CU_OK(cu().cuCtxSetCurrent(first));
  CU_OK(cu().cuStreamGetCtx(of_second, &owner));
  EXPECT_EQ(second, owner);
  CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(of_second));
  CU_OK(cu().cuCtxDestroy_v2(second));
  CU_OK(cu().cuCtxDestroy_v2(first));
}

TEST_F(ContextStackTest, WorkInAStreamOfAnotherContextIsThatContexts) {
  constexpr std::size_t kBytes = 1 << 20;
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&first, 0, device));
  CU_OK(cu().cuCtxCreate_v2(&second, 0, device));
  {
    const Stream of_second;
    Gate gate;
    const DeviceMemory memory(kBytes);
    const PinnedMemory in(kBytes);
    const PinnedMemory out(kBytes);
    std::memset(in.data(), 7, kBytes);
    std::memset(out.data(), 0, kBytes);
    gate.close(of_second);
    CU_OK(cu().cuCtxSetCurrent(first));
    CU_OK(cu().cuMemcpyHtoDAsync_v2(memory, in.data(), kBytes, of_second));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out.data(), memory, kBytes, of_second));
    CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(of_second));
    std::atomic<bool> waited{false};
    std::thread waiter([&] {
      CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(first));
      CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(of_second));
      waited = true;
    });
    for (int i = 0; i < 100; ++i) CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(of_second));
    EXPECT_FALSE(waited);
    gate.open();
    waiter.join();
    EXPECT_EQ(0, std::memcmp(in.data(), out.data(), kBytes));
    CU_OK(cu().cuCtxSetCurrent(second));
  }
  CU_OK(cu().cuCtxDestroy_v2(second));
  CU_OK(cu().cuCtxDestroy_v2(first));
}

// Whatever was on its way into its page-locked memory has arrived or never will.
TEST_F(ContextStackTest, DestroyingAContextEndsItsCopiesToTheHost) {
  constexpr std::size_t kBytes = 8 << 20;
  for (int i = 0; i < 5; ++i) {
    CUcontext made = nullptr;
    CUdeviceptr memory = 0;
    void* out = nullptr;
    CUstream stream = nullptr;
    CU_OK(cu().cuCtxCreate_v2(&made, 0, device));
    CU_OK(cu().cuMemAlloc_v2(&memory, kBytes));
    CU_OK(cu().cuMemHostAlloc(&out, kBytes, 0));
    CU_OK(cu().cuStreamCreate(&stream, 0));
    CU_OK(cu().cuMemcpyDtoHAsync_v2(out, memory, kBytes, stream));
    CU_OK(cu().cuCtxDestroy_v2(made));
  }
}

TEST_F(ContextStateTest, LimitsCanBeReadAndSet) {
  std::size_t stack = 0;
  CU_OK(cu().cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
  EXPECT_GE(stack, 512u);
  std::size_t fifo = 0;
  CU_OK(cu().cuCtxGetLimit(&fifo, CU_LIMIT_PRINTF_FIFO_SIZE));
  EXPECT_GE(fifo, 65536u);
  CU_OK(cu().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
  std::size_t changed = 0;
  CU_OK(cu().cuCtxGetLimit(&changed, CU_LIMIT_STACK_SIZE));
  EXPECT_EQ(2048u, changed);
  CU_OK(cu().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack));
}

TEST_F(ContextStateTest, TheBufferOfPrintfIsNeverSmallerThanHalfAMebibyte) {
  std::size_t before = 0;
  CU_OK(cu().cuCtxGetLimit(&before, CU_LIMIT_PRINTF_FIFO_SIZE));
  for (const std::size_t bytes : {0, 1, 65536}) {
    CU_OK(cu().cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes));
    std::size_t told = 0;
    CU_OK(cu().cuCtxGetLimit(&told, CU_LIMIT_PRINTF_FIFO_SIZE));
    EXPECT_EQ(512u << 10, told);
  }
  CU_OK(cu().cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, before));
}

TEST_F(ContextStateTest, LimitArgumentsAreChecked) {
  std::size_t value = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetLimit(&value, static_cast<CUlimit>(77)));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxSetLimit(static_cast<CUlimit>(77), 1));
  CU_IS(CUDA_ERROR_UNSUPPORTED_LIMIT, cu().cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
}

TEST_F(ContextStateTest, CacheAndSharedMemoryConfigurations) {
  CUfunc_cache cache = CU_FUNC_CACHE_PREFER_L1;
  CU_OK(cu().cuCtxGetCacheConfig(&cache));
  CU_OK(cu().cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
  CU_OK(cu().cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxSetCacheConfig(static_cast<CUfunc_cache>(99)));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetCacheConfig(nullptr));
  CUsharedconfig shared = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  CU_OK(cu().cuCtxGetSharedMemConfig(&shared));
  CU_OK(cu().cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxSetSharedMemConfig(static_cast<CUsharedconfig>(9)));
}

TEST_F(ContextStateTest, VersionIdPrioritiesAndFlags) {
  unsigned version = 0;
  CU_OK(cu().cuCtxGetApiVersion(context, &version));
  EXPECT_GE(version, 3010u);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetApiVersion(context, nullptr));
  unsigned long long id = 0;
  unsigned long long same = 0;
  CU_OK(cu().cuCtxGetId(context, &id));
  CU_OK(cu().cuCtxGetId(nullptr, &same));
  EXPECT_EQ(id, same);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetId(context, nullptr));
  int least = 1;
  int greatest = 1;
  CU_OK(cu().cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(0, least);
  EXPECT_LE(greatest, least);
  CU_IS(CUDA_SUCCESS, cu().cuCtxGetStreamPriorityRange(nullptr, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetFlags(nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuCtxGetDevice(nullptr));
}

TEST_F(PrimaryAlone, RetainActivatesAndTheLastReleaseDeactivates) {
  unsigned flags = 9;
  int active = 9;
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(0, active);
  EXPECT_EQ(0u, flags);
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CU_OK(cu().cuDevicePrimaryCtxRetain(&first, device));
  CU_OK(cu().cuDevicePrimaryCtxRetain(&second, device));
  EXPECT_EQ(first, second);
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(1, active);
  CUcontext current = nullptr;
  CU_OK(cu().cuCtxGetCurrent(&current));
  EXPECT_EQ(nullptr, current);
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(device));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(1, active);
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(device));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(0, active);
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuDevicePrimaryCtxRelease_v2(device));
}

TEST_F(PrimaryAlone, FlagsCanBeSetBeforeAndWhileActive) {
  unsigned flags = 0;
  int active = 0;
  CU_OK(cu().cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_YIELD));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_YIELD), flags);
  CUcontext made = nullptr;
  CU_OK(cu().cuDevicePrimaryCtxRetain(&made, device));
  CU_OK(cu().cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_SPIN));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_SPIN), flags & CU_CTX_SCHED_MASK);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevicePrimaryCtxSetFlags_v2(device, 0xff000000u));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_MAP_HOST));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDevicePrimaryCtxSetFlags_v2(99, 0));
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(device));
}

TEST_F(PrimaryAlone, TheFirstVersionSetsFlagsBeforeOnly) {
  unsigned flags = 0;
  int active = 0;
  CU_IS(CUDA_SUCCESS, cu().cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_YIELD));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_YIELD), flags);
  CUcontext made = nullptr;
  CU_OK(cu().cuDevicePrimaryCtxRetain(&made, device));
  CU_IS(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
        cu().cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_SPIN));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevicePrimaryCtxSetFlags(device, CU_CTX_MAP_HOST));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(static_cast<unsigned>(CU_CTX_SCHED_YIELD), flags & CU_CTX_SCHED_MASK);
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(device));
}

TEST_F(PrimaryAlone, ResetFreesEverythingAndKeepsTheHandleUsable) {
  CUcontext made = nullptr;
  CU_OK(cu().cuDevicePrimaryCtxRetain(&made, device));
  CU_OK(cu().cuCtxSetCurrent(made));
  CUdeviceptr address = 0;
  CU_OK(cu().cuMemAlloc_v2(&address, 1 << 20));
  CU_OK(cu().cuDevicePrimaryCtxReset_v2(device));
  unsigned flags = 0;
  int active = 1;
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(0, active);
  CU_OK(cu().cuDevicePrimaryCtxRetain(&made, device));
  CU_OK(cu().cuCtxSetCurrent(made));
  CU_OK(cu().cuMemAlloc_v2(&address, 1 << 20));
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(device));
}

TEST_F(PrimaryAlone, ResetForgetsTheFlags) {
  unsigned flags = 0;
  int active = 1;
  CU_OK(cu().cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_YIELD));
  CU_OK(cu().cuDevicePrimaryCtxReset_v2(device));
  CU_OK(cu().cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT_EQ(0u, flags & CU_CTX_SCHED_MASK);
}

TEST_F(PrimaryAlone, DestroyingAPrimaryContextIsRefused) {
  CUcontext made = nullptr;
  CU_OK(cu().cuDevicePrimaryCtxRetain(&made, device));
  CU_IS(CUDA_ERROR_INVALID_CONTEXT, cu().cuCtxDestroy_v2(made));
  CU_OK(cu().cuDevicePrimaryCtxRelease_v2(device));
}

TEST_F(PrimaryAlone, ArgumentsAreChecked) {
  CUcontext made = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevicePrimaryCtxRetain(nullptr, device));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDevicePrimaryCtxRetain(&made, 99));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDevicePrimaryCtxRelease_v2(99));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDevicePrimaryCtxReset_v2(99));
  unsigned flags = 0;
  int active = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevicePrimaryCtxGetState(device, nullptr, &active));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuDevicePrimaryCtxGetState(device, &flags, nullptr));
  CU_IS(CUDA_ERROR_INVALID_DEVICE, cu().cuDevicePrimaryCtxGetState(99, &flags, &active));
}

// Whoever makes contexts and whoever destroys them need not be the same thread, in a server either.
TEST_F(ContextStackTest, ContextsComeAndGoWithoutEnd) {
  // Where making one is no matter of milliseconds.
  char name[64] = "";
  CU_OK(cu().cuDeviceGetName(name, sizeof name, device));
  const int count = std::string_view(name).find("Software") != std::string_view::npos ? 1200 : 10;
  const Unrecorded quiet;
  for (int i = 0; i < count; ++i) {
    CUcontext made = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cu().cuCtxCreate_v2(&made, 0, device)) << i;
    ASSERT_EQ(CUDA_SUCCESS, cu().cuCtxDestroy_v2(made)) << i;
  }
}

TEST_F(ContextStateTest, AContextIsCurrentPerThread) {
  CUcontext seen = nullptr;
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
    CU_IS(CUDA_SUCCESS, cu().cuCtxGetCurrent(&seen));
  }).join();
  EXPECT_EQ(context, seen);
}

}  // namespace
}  // namespace flyt::conformance
