#include "tests/nvml/cuda_client.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>

#include "base/testing/forks.h"
#include "driver/table.h"
#include "nvml/gpu.h"
#include "tests/nvml/library.h"
#include "tests/support/cuda_table.h"

namespace flyt::tests {
namespace {

void wait_for_end_of_input() {
  std::puts("ready");
  std::fflush(stdout);
  char byte = 0;
  while (::read(0, &byte, 1) > 0) {
  }
}

using Take = bool (*)(const driver::Table& cuda, std::uint64_t bytes);

bool take_plain(const driver::Table& cuda, std::uint64_t bytes) {
  CUdeviceptr address = 0;
  return bytes == 0 || cuda.cuMemAlloc_v2(&address, bytes) == CUDA_SUCCESS;
}

bool take_arrays(const driver::Table& cuda, std::uint64_t bytes) {
  constexpr std::size_t kRowBytes = 4096;
  const CUDA_ARRAY_DESCRIPTOR flat{kRowBytes / 4, bytes / kRowBytes, CU_AD_FORMAT_FLOAT, 1};
  CUarray first = nullptr;
  CUarray second = nullptr;
  return cuda.cuArrayCreate_v2(&first, &flat) == CUDA_SUCCESS &&
         cuda.cuArrayCreate_v2(&second, &flat) == CUDA_SUCCESS &&
         cuda.cuArrayDestroy(first) == CUDA_SUCCESS;
}

bool run_graph(const driver::Table& cuda, std::uint64_t bytes, CUdeviceptr& address) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  params.bytesize = bytes;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  const bool ran = cuda.cuGraphCreate(&graph, 0) == CUDA_SUCCESS &&
                   cuda.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params) == CUDA_SUCCESS &&
                   cuda.cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS &&
                   cuda.cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS &&
                   cuda.cuCtxSynchronize() == CUDA_SUCCESS;
  address = params.dptr;
  return ran;
}

bool take_by_graph(const driver::Table& cuda, std::uint64_t bytes) {
  CUdeviceptr address = 0;
  return run_graph(cuda, bytes, address);
}

bool take_and_give_back(const driver::Table& cuda, std::uint64_t bytes) {
  CUdeviceptr address = 0;
  return run_graph(cuda, bytes, address) && cuda.cuMemFree_v2(address) == CUDA_SUCCESS &&
         cuda.cuDeviceGraphMemTrim(1) == CUDA_SUCCESS;
}

int hold(Take take, std::uint64_t mebibytes) {
  const driver::Table cuda = client_table();
  CUcontext context = nullptr;
  if (cuda.cuInit(0) != CUDA_SUCCESS) return 2;
  if (cuda.cuDevicePrimaryCtxRetain(&context, 1) != CUDA_SUCCESS) return 3;
  if (cuda.cuCtxSetCurrent(context) != CUDA_SUCCESS) return 4;
  if (!take(cuda, mebibytes << 20)) return 5;
  wait_for_end_of_input();
  return 0;
}

int describe() {
  const driver::Table cuda = client_table();
  int count = 0;
  if (cuda.cuInit(0) != CUDA_SUCCESS || cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS) return 2;
  for (int i = 0; i < count; ++i) {
    std::array<char, 256> name{};
    std::array<char, 64> pci{};
    flyt::nvml::Gpu gpu;
    CUuuid uuid{};
    std::size_t bytes = 0;
    int major = 0;
    int minor = 0;
    cuda.cuDeviceGetName(name.data(), 256, i);
    cuda.cuDeviceGetPCIBusId(pci.data(), 64, i);
    cuda.cuDeviceGetUuid_v2(&uuid, i);
    std::memcpy(gpu.uuid.data(), &uuid, sizeof uuid);
    cuda.cuDeviceTotalMem_v2(&bytes, i);
    cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, i);
    cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, i);
    const std::string line =
        describe_line(name.data(), flyt::nvml::uuid_text(gpu), pci.data(), bytes, major, minor);
    std::puts(line.c_str());
  }
  std::puts("end");
  return 0;
}

int monitor() {
  if (nvml().nvmlInit_v2() != NVML_SUCCESS) return 2;
  wait_for_end_of_input();
  return 0;
}

// The exit status of `work` in a forked child.
template <class Work>
int in_child(Work&& work) {
  wait_until_other_threads_sleep();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(work());
  }
  const std::optional<int> status = status_of(child);
  if (!status) return -1;
  return WIFEXITED(*status) ? WEXITSTATUS(*status) : -WTERMSIG(*status);
}

int ask_across_forks() {
  nvmlDevice_t gpu = nullptr;
  if (nvml().nvmlInit_v2() != NVML_SUCCESS) return 1;
  if (nvml().nvmlDeviceGetHandleByIndex_v2(0, &gpu) != NVML_SUCCESS) return 2;
  const auto ask = [&] {
    nvmlMemory_t memory{};
    unsigned int count = 0;
    if (nvml().nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || count != 2) return 3;
    if (nvml().nvmlDeviceGetMemoryInfo(gpu, &memory) != NVML_SUCCESS) return 4;
    if (memory.total == 0) return 5;
    return nvml().nvmlShutdown() == NVML_SUCCESS ? 0 : 6;
  };
  int result = in_child(ask);
  if (result == 0) result = in_child([&] { return in_child(ask); });
  return result == 0 ? ask() : result;
}

}  // namespace

std::string describe_line(const std::string& name, const std::string& uuid, const std::string& pci,
                          std::uint64_t bytes, int major, int minor) {
  return name + "|" + uuid + "|" + pci + "|" + std::to_string(bytes) + "|" + std::to_string(major) +
         "." + std::to_string(minor);
}

int run_client(const std::string& job, std::uint64_t number) {
  if (job == "allocate") return hold(take_plain, number);
  if (job == "array") return hold(take_arrays, number);
  if (job == "graph") return hold(take_by_graph, number);
  if (job == "trimmed") return hold(take_and_give_back, number);
  if (job == "describe") return describe();
  if (job == "fork") return ask_across_forks();
  return job == "monitor" ? monitor() : 1;
}

}  // namespace flyt::tests
