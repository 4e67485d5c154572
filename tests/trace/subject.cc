// A program to be traced: subject MODE. It makes calls whose number its test knows.
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/testing/forks.h"
#include "cuda/functions.h"

namespace {

void need(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "subject: %s: error %d\n", call, static_cast<int>(result));
  std::exit(1);
}

void start() {
  need(cuInit(0), "cuInit");
  CUcontext context = nullptr;
  need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

// 1 allocation, `fills` posted calls, 1 synchronisation, 1 copy to the host, 1 refused call.
void work(int fills) {
  CUdeviceptr memory = 0;
  need(cuMemAlloc_v2(&memory, 4096), "cuMemAlloc");
  for (int i = 0; i < fills; ++i) need(cuMemsetD8Async(memory, 1, 4096, nullptr), "cuMemsetD8");
  need(cuCtxSynchronize(), "cuCtxSynchronize");
  char host[4096];
  need(cuMemcpyDtoH_v2(host, memory, sizeof host), "cuMemcpyDtoH");
  if (cuCheckpointProcessUnlock(0, nullptr) != CUDA_ERROR_NOT_SUPPORTED) std::exit(1);
}

int threads() {
  start();
  CUcontext context = nullptr;
  need(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) {
    all.emplace_back([context] {
      need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
      work(50);
    });
  }
  for (std::thread& one : all) one.join();
  return 0;
}

// A child of a process that uses CUDA may not use it, and its calls are its own.
int forks() {
  start();
  flyt::wait_until_other_threads_sleep();
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    for (int i = 0; i < 3; ++i) {
      if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED) ::_exit(1);
    }
    ::_exit(0);
  }
  const std::optional<int> status = flyt::status_of(child);
  work(10);
  return status == 0 ? 0 : 1;
}

// 101 questions about one event, of which the last is answered with yes.
int polls() {
  start();
  static std::atomic<int> step;
  CUevent event = nullptr;
  need(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  const CUhostFn stand = [](void*) {
    step = 1;
    step.notify_all();
    step.wait(1);
  };
  need(cuLaunchHostFunc(nullptr, stand, nullptr), "cuLaunchHostFunc");
  need(cuEventRecord(event, nullptr), "cuEventRecord");
  step.wait(0);
  for (int i = 0; i < 100; ++i) {
    if (cuEventQuery(event) != CUDA_ERROR_NOT_READY) return 1;
  }
  step = 2;
  step.notify_all();
  need(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  need(cuEventQuery(event), "cuEventQuery");
  return 0;
}

// The program and a stream write to managed memory by turns, and each sees what the other wrote.
int managed() {
  start();
  constexpr std::size_t kBytes = 1 << 20;
  CUdeviceptr memory = 0;
  need(cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
  auto* const bytes = static_cast<unsigned char*>(flyt::pointer_at(memory));
  for (unsigned char turn = 1; turn <= 10; ++turn) {
    std::memset(bytes, turn, kBytes / 2);
    need(cuMemcpyDtoDAsync_v2(memory + kBytes / 2, memory, kBytes / 2, nullptr), "cuMemcpyDtoD");
    need(cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    if (bytes[kBytes / 2] != turn || bytes[kBytes - 1] != turn) return 1;
  }
  need(cuMemFree_v2(memory), "cuMemFree");
  return 0;
}

// 200 copies that wait, each followed by a wait for nothing more.
int waits_twice() {
  start();
  constexpr std::size_t kBytes = 4096;
  CUdeviceptr memory = 0;
  void* host = nullptr;
  need(cuMemAlloc_v2(&memory, kBytes), "cuMemAlloc");
  need(cuMemHostAlloc(&host, kBytes, 0), "cuMemHostAlloc");
  std::memset(host, 1, kBytes);
  for (int i = 0; i < 200; ++i) {
    need(cuMemcpyHtoD_v2(memory, host, kBytes), "cuMemcpyHtoD");
    need(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  return 0;
}

// Dies while one thread waits for what never ends.
[[noreturn]] void hang() {
  start();
  static std::atomic<bool> waits;
  const CUhostFn die = [](void*) {
    waits.wait(false);
    flyt::wait_until_other_threads_sleep();
    ::raise(SIGKILL);
  };
  need(cuLaunchHostFunc(nullptr, die, nullptr), "cuLaunchHostFunc");
  waits = true;
  waits.notify_all();
  need(cuCtxSynchronize(), "cuCtxSynchronize");
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "nothing") return 3;
  if (mode == "threads") return threads();
  if (mode == "forks") return forks();
  if (mode == "polls") return polls();
  if (mode == "managed") return managed();
  if (mode == "waits_twice") return waits_twice();
  if (mode == "hangs") hang();
  start();
  work(10);
  if (mode == "killed") ::raise(SIGKILL);
  if (mode == "signalled") {
    std::puts("ready");
    std::fflush(stdout);
    ::pause();
  }
  return 0;
}
