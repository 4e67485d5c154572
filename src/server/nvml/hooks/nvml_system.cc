// What a monitor's client learns first.
#include "server/hooks_nvml_system.h"

#include <cstdint>
#include <vector>

namespace flyt::server::nvml::hooks {
namespace {

// What is told where no NVML says better: programs read a number from its front. It is the first
// driver of the CUDA version that the types here are of.
constexpr std::string_view kDriverVersion = "580.00";
constexpr std::string_view kNvmlVersion = "13.580.00";

// Device and vendor numbers, which CUDA does not tell.
std::vector<flyt::nvml::Gpu> complete(const MonitorParts& monitor) {
  std::vector<flyt::nvml::Gpu> gpus = monitor.fleet.gpus;
  for (std::uint32_t i = 0; i < gpus.size(); ++i) {
    nvmlPciInfo_t pci{};
    if (monitor.native.table().nvmlDeviceGetPciInfo_v3(monitor.native.device(i), &pci) !=
        NVML_SUCCESS) {
      continue;
    }
    gpus[i].pci_id = pci.pciDeviceId;
    gpus[i].pci_subsystem = pci.pciSubSystemId;
  }
  return gpus;
}

}  // namespace

void nvml_describe(Request request, const commands::NvmlDescribe&) {
  const MonitorParts& monitor = request.monitor();
  const std::string driver_version = monitor.native.driver_version();
  const std::string nvml_version = monitor.native.nvml_version();
  const std::vector<std::byte> gpus = flyt::nvml::encode(complete(monitor));
  commands::NvmlDescribe::Reply reply;
  reply.driver_version = driver_version.empty() ? kDriverVersion : driver_version;
  reply.nvml_version = nvml_version.empty() ? kNvmlVersion : nvml_version;
  reply.cuda_version = monitor.fleet.cuda_version;
  reply.gpu_count = static_cast<std::uint32_t>(monitor.fleet.gpus.size());
  reply.gpus = gpus;
  request.reply(NVML_SUCCESS, reply);
}

}  // namespace flyt::server::nvml::hooks
