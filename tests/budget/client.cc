#include "tests/budget/client.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/budget/allocations.h"
#include "tests/support/cuda_library.h"
#include "tests/support/server_process.h"

namespace flyt::budget {
namespace {

constexpr const char* kPtx =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry add_one(.param .u64 data)\n{\n"
    "  .reg .b32 %r<3>;\n  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [data];\n  cvta.to.global.u64 %rd2, %rd1;\n"
    "  ld.global.u32 %r1, [%rd2];\n  add.s32 %r2, %r1, 1;\n  st.global.u32 [%rd2], %r2;\n"
    "  ret;\n}\n";
// What is made once is made by then, for every path that a launch may take.
constexpr int kWarmUp = 2000;

class Program {
 public:
  explicit Program(const tests::CudaLibrary& library) : cu_(library) {}

  CUresult open() {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUresult result = cu_.cuInit(0);
    if (result == CUDA_SUCCESS) result = cu_.cuDevicePrimaryCtxRetain(&context, 0);
    if (result == CUDA_SUCCESS) result = cu_.cuCtxSetCurrent(context);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleLoadData(&module, kPtx);
    if (result == CUDA_SUCCESS) result = cu_.cuModuleGetFunction(&add_, module, "add_one");
    if (result == CUDA_SUCCESS) result = cu_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&memory_, sizeof(int));
    const int zero = 0;
    if (result == CUDA_SUCCESS) result = cu_.cuMemcpyHtoD_v2(memory_, &zero, sizeof(zero));
    return result == CUDA_SUCCESS ? launch(1) : result;
  }
  CUresult launch(int times) {
    CUresult result = CUDA_SUCCESS;
    void* parameters[] = {&memory_};
    for (int i = 0; i < times && result == CUDA_SUCCESS; ++i) {
      result = cu_.cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr);
    }
    launched_ += times;
    return result;
  }
  // Waits for all launches, and looks whether they were made.
  CUresult check() {
    CUresult result = cu_.cuStreamSynchronize(stream_);
    int value = 0;
    if (result == CUDA_SUCCESS) result = cu_.cuMemcpyDtoH_v2(&value, memory_, sizeof(value));
    return result == CUDA_SUCCESS && value != launched_ ? CUDA_ERROR_UNKNOWN : result;
  }

 private:
  const tests::CudaLibrary cu_;
  CUfunction add_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
  int launched_ = 0;
};

CUresult count_allocations(Program& program) {
  CUresult result = program.launch(kWarmUp);
  if (result == CUDA_SUCCESS) result = program.check();
  const Allocations before = allocations();
  if (result == CUDA_SUCCESS) result = program.launch(kLaunches);
  const Allocations after = allocations();
  std::printf("here=%lld elsewhere=%lld ", static_cast<long long>(after.here - before.here),
              static_cast<long long>(after.elsewhere - before.elsewhere));
  return result == CUDA_SUCCESS ? program.check() : result;
}

}  // namespace

long status_kib(int pid, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::atol(line.c_str() + field.size() + 1);
  }
  return -1;
}

int run_client(const std::string& job) {
  const bool native = job == "native";
  const auto library =
      tests::load_cuda(tests::built_library(native ? "libflyt-softgpu.so" : "client/libcuda.so.1"));
  if (!library) {
    std::printf("%s\n", library.error().message.c_str());
    return 1;
  }
  Program program(*library);
  CUresult result = program.open();
  if (result == CUDA_SUCCESS) result = program.check();
  if (result == CUDA_SUCCESS && job == "launches") result = count_allocations(program);
  std::printf("rss_kib=%ld anonymous_kib=%ld result=%d ready\n", status_kib(::getpid(), "VmRSS"),
              status_kib(::getpid(), "RssAnon"), static_cast<int>(result));
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  return result == CUDA_SUCCESS ? 0 : 1;
}

}  // namespace flyt::budget
