// A child made by fork() has no CUDA, whatever its parent had; the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/fixture.h"

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

}  // namespace
}  // namespace flyt::conformance
