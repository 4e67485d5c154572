// A child made by fork() has no CUDA, whatever its parent had; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace flyt::conformance {
namespace {

class ForkAlone : public ContextTest {};

// Runs in the child; the exit status names the first call that answered otherwise.
[[noreturn]] void call_in_child() {
  const Unrecorded quiet;
  int count = 0;
  CUcontext current = nullptr;
  CUdeviceptr address = 0;
  int version = 0;
  if (cu().cuInit(0) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(1);
  if (cu().cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(2);
  if (cu().cuCtxGetCurrent(&current) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(3);
  if (cu().cuMemAlloc_v2(&address, 16) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(4);
  if (cu().cuDriverGetVersion(&version) != CUDA_SUCCESS) ::_exit(5);
  ::_exit(0);
}

TEST_F(ForkAlone, TheChildIsNotInitializedAndTheParentGoesOn) {
  const DeviceMemory memory(64);
  memory.fill(7);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) call_in_child();
  int status = -1;
  ASSERT_TRUE(eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status)) << "the child's call of that number answered otherwise";
  EXPECT_EQ(7, memory.read<std::uint8_t>()[63]);
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

// What a library does with objects that it has from before the fork.
[[noreturn]] void use_objects_in_child(CUstream stream, CUevent event, CUdeviceptr memory,
                                       CUfunction function) {
  const Unrecorded quiet;
  std::uint8_t host[64] = {};
  constexpr CUresult kNone = CUDA_ERROR_NOT_INITIALIZED;
  if (cu().cuStreamSynchronize(stream) != kNone) ::_exit(1);
  if (cu().cuStreamQuery(stream) != kNone) ::_exit(2);
  if (cu().cuEventSynchronize(event) != kNone) ::_exit(3);
  if (cu().cuEventDestroy_v2(event) != kNone) ::_exit(4);
  if (cu().cuMemcpyHtoD_v2(memory, host, sizeof(host)) != kNone) ::_exit(5);
  if (cu().cuMemcpyDtoH_v2(host, memory, sizeof(host)) != kNone) ::_exit(6);
  if (cu().cuMemFree_v2(memory) != kNone) ::_exit(7);
  if (cu().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) != kNone) {
    ::_exit(8);
  }
  if (cu().cuCtxSynchronize() != kNone) ::_exit(9);
  if (cu().cuDevicePrimaryCtxRelease_v2(0) != kNone) ::_exit(10);
  ::_exit(0);
}

TEST_F(ForkAlone, AForkWhileAnotherThreadWaitsLeavesThatThreadWaiting) {
  const Module module(kBasicPtx);
  const CUfunction function = module.function("add_one");
  const DeviceMemory memory(64);
  const Stream held;
  const Event event;
  Gate gate;
  gate.close(held);
  CU_OK(cu().cuEventRecord(event, held));
  std::atomic<bool> waiting{false};
  std::atomic<bool> released{false};
  std::thread waiter([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    waiting = true;
    CU_IS(CUDA_SUCCESS, cu().cuEventSynchronize(event));
    released = true;
  });
  ASSERT_TRUE(eventually([&] { return waiting.load(); }));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) use_objects_in_child(held, event, memory, function);
  int status = -1;
  ASSERT_TRUE(eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status)) << "the child's call of that number answered otherwise";
  EXPECT_FALSE(released);
  gate.open();
  waiter.join();
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

// The thread that forked is the child's only one: with its end the child exits.
TEST_F(ForkAlone, AChildWhoseThreadEndsLeavesTheStreamOfItsParentsThread) {
  Gate gate;
  pid_t child = -1;
  int status = -1;
  std::thread([&] {
    CU_IS(CUDA_SUCCESS, cu().cuCtxSetCurrent(context));
    gate.close(CU_STREAM_PER_THREAD);
    child = ::fork();
    if (child == 0) {
      // Before whatever else there is at exit, of which the parent has its own.
      std::atexit([] { ::_exit(0); });
      return;
    }
    EXPECT_TRUE(eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; }));
    CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(CU_STREAM_PER_THREAD));
    gate.open();
    CU_IS(CUDA_SUCCESS, cu().cuStreamSynchronize(CU_STREAM_PER_THREAD));
  }).join();
  ASSERT_GE(child, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  CU_IS(CUDA_SUCCESS, cu().cuCtxSynchronize());
}

}  // namespace
}  // namespace flyt::conformance
