// Memory of the virtual GPU, and who uses it.
#include "nvml_client/hooks_nvml_memory.h"

#include <vector>

#include "client/nvml/call.h"
#include "client/nvml/processes.h"
#include "commands/nvml_memory.h"

namespace flyt::client::hooks {
namespace {

nvmlReturn_t fetch(nvmlDevice_t device, commands::NvmlMemory::Reply& reply) {
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  return nvml::call(commands::NvmlMemory{.device = device}, reply);
}

void copy(const nvmlProcessInfo_t& from, nvmlProcessInfo_v1_t& to) {
  to = {.pid = from.pid, .usedGpuMemory = from.usedGpuMemory};
}
void copy(const nvmlProcessInfo_t& from, nvmlProcessInfo_v2_t& to) {
  to = {.pid = from.pid,
        .usedGpuMemory = from.usedGpuMemory,
        .gpuInstanceId = from.gpuInstanceId,
        .computeInstanceId = from.computeInstanceId};
}
void copy(const nvmlProcessInfo_t& from, nvmlProcessInfo_t& to) { to = from; }

// `count` says how many `infos` has room for, and afterwards how many there are.
template <class Info>
nvmlReturn_t deliver(const std::vector<nvmlProcessInfo_t>& found, unsigned int* count,
                     Info* infos) {
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(found.size());
  if (room < found.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < found.size(); ++i) copy(found[i], infos[i]);
  return NVML_SUCCESS;
}

template <class Info>
nvmlReturn_t processes(nvmlDevice_t device, unsigned int* count, Info* infos) {
  if (count == nullptr || (infos == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  std::vector<nvmlProcessInfo_t> found;
  const nvmlReturn_t result = nvml::fetch_processes(device, found);
  return result == NVML_SUCCESS ? deliver(found, count, infos) : result;
}

// There are none that draw, and those that compute are no clients of MPS as far as they can tell.
template <class Info>
nvmlReturn_t no_processes(nvmlDevice_t device, unsigned int* count, Info* infos) {
  if (count == nullptr || (infos == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  return deliver({}, count, infos);
}

}  // namespace

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  commands::NvmlMemory::Reply reply;
  const nvmlReturn_t result = fetch(device, reply);
  // What is reserved counts as used here, and apart in the second version.
  if (result == NVML_SUCCESS) {
    *memory = {.total = reply.total, .free = reply.free, .used = reply.total - reply.free};
  }
  return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (memory == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const unsigned int version = memory->version;
  if (version != nvml::version_of<nvmlMemory_v2_t>(2)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  commands::NvmlMemory::Reply reply;
  const nvmlReturn_t result = fetch(device, reply);
  if (result == NVML_SUCCESS) {
    *memory = {.version = version,
               .total = reply.total,
               .reserved = reply.reserved,
               .free = reply.free,
               .used = reply.used};
  }
  return result;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                  nvmlProcessInfo_v1_t* infos) {
  return processes(device, infoCount, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v2_t* infos) {
  return processes(device, infoCount, infos);
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_t* infos) {
  return processes(device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                   nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, infoCount, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, infoCount, infos);
}
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int* infoCount,
                                                      nvmlProcessInfo_t* infos) {
  return no_processes(device, infoCount, infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int* infoCount,
                                                     nvmlProcessInfo_v1_t* infos) {
  return no_processes(device, infoCount, infos);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device,
                                                        unsigned int* infoCount,
                                                        nvmlProcessInfo_v2_t* infos) {
  return no_processes(device, infoCount, infos);
}
nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device,
                                                        unsigned int* infoCount,
                                                        nvmlProcessInfo_t* infos) {
  return no_processes(device, infoCount, infos);
}

}  // namespace flyt::client::hooks
