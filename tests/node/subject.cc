// A tenant's program: says what GPU it sees; with "hold BYTES" it takes memory, and says after each
// line of its input whether the memory still has what it wrote; with "work" it keeps the GPU busy
// until a line comes, and is idle from then on; with "compute [WORDS]" it writes and reads back
// without a pause until its input ends; with "count" a kernel of it counts in a variable for each
// line; with "fault" one writes where nothing is.
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/functions.h"

namespace {

void need(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::printf("{\"failed\": \"%s\", \"error\": %d}\n", call, static_cast<int>(result));
  std::fflush(stdout);
  std::_Exit(1);
}

void tell(const char* what) {
  std::size_t free = 0;
  std::size_t total = 0;
  std::size_t device_total = 0;
  int count = 0;
  int sms = 0;
  need(cuDeviceGetCount(&count), "cuDeviceGetCount");
  need(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0),
       "cuDeviceGetAttribute");
  need(cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  need(cuDeviceTotalMem_v2(&device_total, 0), "cuDeviceTotalMem");
  std::printf(
      "{\"%s\": true, \"devices\": %d, \"sms\": %d, \"free\": %zu, \"total\": %zu,"
      " \"device_total\": %zu}\n",
      what, count, sms, free, total, device_total);
  std::fflush(stdout);
}

void hold(std::size_t bytes) {
  CUdeviceptr memory = 0;
  const CUresult result = cuMemAlloc_v2(&memory, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    tell("full");
    std::_Exit(0);
  }
  need(result, "cuMemAlloc");
  need(cuMemsetD8_v2(memory, 0x5a, bytes), "cuMemsetD8");
  tell("holds");
  char line[64];
  std::vector<unsigned char> back(4096);
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    need(cuMemcpyDtoH_v2(back.data(), memory + bytes - back.size(), back.size()), "cuMemcpyDtoH");
    for (const unsigned char byte : back) {
      if (byte != 0x5a) need(CUDA_ERROR_UNKNOWN, "comparison");
    }
    tell("kept");
  }
}

// A kernel counts its launches in a variable of its code.
void count() {
  static constexpr char kCode[] = R"(
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .global .align 4 .u32 counted;
    .visible .entry count(.param .u64 out) {
      .reg .u32 %r;
      .reg .u64 %out;
      ld.param.u64 %out, [out];
      ld.global.u32 %r, [counted];
      add.u32 %r, %r, 1;
      st.global.u32 [counted], %r;
      st.global.u32 [%out], %r;
      ret;
    }
  )";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr out = 0;
  need(cuModuleLoadData(&module, kCode), "cuModuleLoadData");
  need(cuModuleGetFunction(&function, module, "count"), "cuModuleGetFunction");
  need(cuMemAlloc_v2(&out, 4), "cuMemAlloc");
  void* arguments[] = {&out};
  char line[64];
  for (unsigned expected = 1; expected == 1 || std::fgets(line, sizeof line, stdin) != nullptr;
       ++expected) {
    unsigned found = 0;
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
         "cuLaunchKernel");
    need(cuMemcpyDtoH_v2(&found, out, 4), "cuMemcpyDtoH");
    if (found != expected) need(CUDA_ERROR_UNKNOWN, "comparison");
    tell("counts");
  }
}

CUfunction busy_kernel() {
  static constexpr char kCode[] = R"(
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry spin(.param .u32 turns) {
      .reg .pred %p;
      .reg .u32 %r<3>;
      ld.param.u32 %r1, [turns];
      mov.u32 %r2, 0;
    again:
      add.u32 %r2, %r2, 1;
      setp.lt.u32 %p, %r2, %r1;
      @%p bra again;
      ret;
    }
  )";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  need(cuModuleLoadData(&module, kCode), "cuModuleLoadData");
  need(cuModuleGetFunction(&function, module, "spin"), "cuModuleGetFunction");
  return function;
}

// Some milliseconds each, and several before each wait, so that there is always one under way.
void work() {
  constexpr int kLaunchesAtOnce = 16;
  std::uint32_t turns = 100000;
  void* arguments[] = {&turns};
  CUfunction function = busy_kernel();
  tell("works");
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (::poll(&input, 1, 0) == 0) {
    for (int i = 0; i < kLaunchesAtOnce; ++i) {
      need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
           "cuLaunchKernel");
    }
    need(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) tell("rests");
}

// What it reads must be what it wrote, whatever happens meanwhile.
void compute(std::size_t words) {
  // Looking at more would be a pause.
  constexpr std::size_t kLookedAt = 4096;
  CUdeviceptr memory = 0;
  need(cuMemAlloc_v2(&memory, words * 4), "cuMemAlloc");
  std::vector<unsigned> back(words);
  unsigned rounds = 0;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (; rounds == 0 || ::poll(&input, 1, 0) == 0; ++rounds) {
    for (std::size_t part = 0; part < 4; ++part) {
      need(cuMemsetD32Async(memory + part * words, rounds, words / 4, nullptr), "cuMemsetD32");
    }
    need(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    need(cuMemcpyDtoH_v2(back.data(), memory, words * 4), "cuMemcpyDtoH");
    for (std::size_t i = 0; i < words; i += words / kLookedAt) {
      if (back[i] != rounds) need(CUDA_ERROR_UNKNOWN, "comparison");
    }
    if (rounds == 0) tell("computes");
  }
  std::printf("{\"rounds\": %u}\n", rounds);
}

// Says what came of it, and begins anew.
void fault() {
  static constexpr char kCode[] = R"(
    .version 8.0
    .target sm_80
    .address_size 64
    .visible .entry astray(.param .u64 place) {
      .reg .u64 %rd<2>;
      .reg .u32 %r<2>;
      ld.param.u64 %rd1, [place];
      mov.u32 %r1, 1;
      st.global.u32 [%rd1], %r1;
      ret;
    }
  )";
  tell("waits");
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    need(cuModuleLoadData(&module, kCode), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "astray"), "cuModuleGetFunction");
    CUdeviceptr place = 64;
    void* arguments[] = {&place};
    need(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
         "cuLaunchKernel");
    const CUresult result = cuCtxSynchronize();
    CUcontext context = nullptr;
    need(cuDevicePrimaryCtxReset_v2(0), "cuDevicePrimaryCtxReset");
    need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    need(cuCtxSynchronize(), "cuCtxSynchronize");
    std::printf("{\"fault\": %d}\n", static_cast<int>(result));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  need(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  if (argc == 3 && std::strcmp(argv[1], "hold") == 0) {
    hold(std::strtoull(argv[2], nullptr, 10));
  } else if (argc == 2 && std::strcmp(argv[1], "work") == 0) {
    work();
  } else if (argc >= 2 && std::strcmp(argv[1], "compute") == 0) {
    compute(argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 4096);
  } else if (argc == 2 && std::strcmp(argv[1], "count") == 0) {
    count();
  } else if (argc == 2 && std::strcmp(argv[1], "fault") == 0) {
    fault();
  } else {
    tell("sees");
  }
  return 0;
}
