// A tenant's program: says what GPU it sees; with "hold BYTES" it takes memory, and says after each
// line of its input whether the memory still has what it wrote.
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

}  // namespace

int main(int argc, char** argv) {
  need(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  if (argc == 3 && std::strcmp(argv[1], "hold") == 0) {
    hold(std::strtoull(argv[2], nullptr, 10));
  } else {
    tell("sees");
  }
  return 0;
}
