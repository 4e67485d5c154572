#include "tests/recovery/held_calls.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>

#include "base/assert.h"
#include "base/bytes.h"
#include "tests/recovery/survivor_code.h"

namespace flyt::tests {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kCopyBytes = 4 * kMiB;

// A signal's handler has no other way to know them.
std::atomic<std::byte*> held_page{nullptr};
std::atomic<bool> reached{false};
std::atomic<bool> released{false};

void on_fault(int signal, siginfo_t* info, void*) {
  std::byte* const page = held_page.load();
  const std::uint64_t address = address_of(info->si_addr);
  if (page == nullptr || address - address_of(page) >= kPageBytes) {
    ::signal(signal, SIG_DFL);
    return;
  }
  reached.store(true);
  while (!released.load()) ::sched_yield();
  ::mprotect(page, kPageBytes, PROT_READ | PROT_WRITE);
}

// Until the process ends.
std::byte* map(std::size_t bytes) {
  void* const mapped =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FLYT_ASSERT(mapped != MAP_FAILED);
  return static_cast<std::byte*>(mapped);
}

std::string text(CUresult result) { return std::to_string(static_cast<int>(result)); }

}  // namespace

template <class Call>
void HeldCalls::hold(std::byte* page, Call call) {
  reached.store(false);
  released.store(false);
  held_page.store(page);
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
  ::mprotect(page, kPageBytes, PROT_NONE);
  CUcontext context = nullptr;
  cu_.cuCtxGetCurrent(&context);
  thread_ = std::thread([this, context, call] {
    cu_.cuCtxSetCurrent(context);
    result_ = call();
  });
  while (!reached.load()) ::sched_yield();
}

std::string HeldCalls::copy() {
  CUdeviceptr from = 0;
  const CUresult result = cu_.cuMemAlloc_v2(&from, kCopyBytes);
  if (result != CUDA_SUCCESS) return text(result);
  std::byte* const to = map(kCopyBytes);
  hold(to + kCopyBytes / 2, [this, to, from] { return cu_.cuMemcpyDtoH_v2(to, from, kCopyBytes); });
  return text(result);
}

std::string HeldCalls::load() {
  std::byte* const page = map(kPageBytes);
  hold(page, [this, page] { return load_module(page); });
  return text(CUDA_SUCCESS);
}

CUresult HeldCalls::load_module(std::byte* page) {
  std::array options{CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{page, pointer_at(kPageBytes)};
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr words = 0;
  CUresult result = cu_.cuModuleLoadDataEx(&module, kPtx, 2, options.data(), values.data());
  if (result == CUDA_SUCCESS) result = cu_.cuModuleGetFunction(&function, module, "add_one");
  if (result == CUDA_SUCCESS) result = cu_.cuMemAlloc_v2(&words, 32 * sizeof(std::uint32_t));
  void* parameters[] = {&words};
  if (result == CUDA_SUCCESS) {
    result = cu_.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr);
  }
  return result == CUDA_SUCCESS ? cu_.cuCtxSynchronize() : result;
}

std::string HeldCalls::end() {
  released.store(true);
  thread_.join();
  held_page.store(nullptr);
  return text(result_);
}

}  // namespace flyt::tests
