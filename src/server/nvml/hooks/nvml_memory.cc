// Memory of the virtual GPU, and who uses it.
#include "server/hooks_nvml_memory.h"

#include <algorithm>
#include <map>
#include <vector>

#include "wire/hello.h"

namespace flyt::server::nvml::hooks {
namespace {

constexpr unsigned int kMemoryVersion = sizeof(nvmlMemory_v2_t) | 2U << 24;
constexpr unsigned int kNoInstance = ~0U;  // Of a divided GPU.
constexpr unsigned long long kNotTold = ~0ULL;
constexpr unsigned int kNativeProcessesMax = 1024;

std::vector<UsageBoard::Use> uses(const MonitorParts& monitor, std::uint32_t index) {
  if (monitor.board == nullptr) return {};
  return monitor.board->uses(static_cast<CUdevice>(index));
}

// Of a lease; 0: there is none.
std::uint64_t limit_of(const MonitorParts& monitor, std::uint32_t index) {
  return monitor.board == nullptr || index != 0 ? 0 : monitor.board->quota().limit;
}

// As the server's own books have it, where no NVML counts, and always of a lease. Every session of
// the software GPU has a memory of its own, so that others take nothing away there.
void count(const MonitorParts& monitor, std::uint32_t index, commands::NvmlMemory::Reply& reply) {
  std::uint64_t ours = 0;
  std::uint64_t others = 0;
  for (const UsageBoard::Use& use : uses(monitor, index)) {
    (use.machine == monitor.machine ? ours : others) += use.bytes;
  }
  reply.total = monitor.fleet.gpus[index].memory_bytes;
  if (const std::uint64_t limit = limit_of(monitor, index); limit != 0) {
    reply.total = std::min(reply.total, std::max(limit, ours + others));
  } else if (monitor.fleet.driver_kind == wire::kSoftDriver) {
    others = 0;
  }
  reply.used = std::min(ours, reply.total);
  reply.reserved = std::min(others, reply.total - reply.used);
  reply.free = reply.total - reply.used - reply.reserved;
}

// What NVML says of the server's own processes; a context takes memory that nobody allocates.
std::map<std::uint32_t, unsigned long long> native_uses(const Request& request,
                                                        nvmlDevice_t device) {
  std::map<std::uint32_t, unsigned long long> found;
  if (!request.monitor().native.present()) return found;
  // With contexts, which no lease is charged for, they would have more than it has in all.
  if (request.monitor().board != nullptr && request.monitor().board->quota().limit != 0) {
    return found;
  }
  const auto& nvml = request.driver();
  for (const auto list : {nvml.nvmlDeviceGetComputeRunningProcesses_v3,
                          nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3}) {
    std::vector<nvmlProcessInfo_t> processes(kNativeProcessesMax);
    unsigned int number = kNativeProcessesMax;
    if (list(device, &number, processes.data()) != NVML_SUCCESS) continue;
    for (unsigned int i = 0; i < std::min(number, kNativeProcessesMax); ++i) {
      if (processes[i].usedGpuMemory == kNotTold) continue;
      found[processes[i].pid] = processes[i].usedGpuMemory;
    }
  }
  return found;
}

}  // namespace

nvmlReturn_t nvml_memory(Request& request, const commands::NvmlMemory& command,
                         commands::NvmlMemory::Reply& reply) {
  std::uint32_t index = 0;
  if (!request.index(command.device, index)) return NVML_ERROR_INVALID_ARGUMENT;
  if (limit_of(request.monitor(), index) != 0) {
    count(request.monitor(), index, reply);
    return NVML_SUCCESS;
  }
  nvmlMemory_v2_t memory{.version = kMemoryVersion};
  const nvmlDevice_t device = request.monitor().native.device(index);
  const nvmlReturn_t result = request.driver().nvmlDeviceGetMemoryInfo_v2(device, &memory);
  if (result == NVML_ERROR_NOT_SUPPORTED) {
    count(request.monitor(), index, reply);
    return NVML_SUCCESS;
  }
  reply.total = memory.total;
  reply.reserved = memory.reserved;
  reply.free = memory.free;
  reply.used = memory.used;
  return result;
}

void nvml_processes(Request request, const commands::NvmlProcesses& command) {
  using Reply = commands::NvmlProcesses::Reply;
  std::uint32_t index = 0;
  Reply reply;
  if (!request.index(command.device, index)) {
    return request.reply(NVML_ERROR_INVALID_ARGUMENT, reply);
  }
  const auto native = native_uses(request, request.monitor().native.device(index));
  std::vector<nvmlProcessInfo_t> processes;
  for (const UsageBoard::Use& use : uses(request.monitor(), index)) {
    if (use.machine != request.monitor().machine) continue;
    const auto told = native.find(use.server_process);
    processes.push_back({.pid = use.client_process,
                         .usedGpuMemory = told == native.end() ? use.bytes : told->second,
                         .gpuInstanceId = kNoInstance,
                         .computeInstanceId = kNoInstance});
    if (processes.size() == Reply::kProcessesCountMax) break;
  }
  reply.processes = wire::List<nvmlProcessInfo_t>(processes);
  request.reply(NVML_SUCCESS, reply);
}

// A GPU that says nothing of its use is shown as idle.
nvmlReturn_t nvml_device_get_utilization_rates(
    Request& request, const commands::NvmlDeviceGetUtilizationRates& command,
    commands::NvmlDeviceGetUtilizationRates::Reply& reply) {
  std::uint32_t index = 0;
  if (!request.index(command.device, index)) return NVML_ERROR_INVALID_ARGUMENT;
  if (!request.monitor().native.present()) return NVML_SUCCESS;
  const nvmlDevice_t device = request.monitor().native.device(index);
  return request.driver().nvmlDeviceGetUtilizationRates(device, &reply.utilization);
}

}  // namespace flyt::server::nvml::hooks
