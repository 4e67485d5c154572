// Peers: what GPUs of the server are to each other.
#include "nvml_client/hooks_nvml_link.h"

#include "client/nvml/call.h"
#include "client/nvml/pci_info.h"
#include "commands/nvml_link.h"

namespace flyt::client::hooks {
namespace {

nvmlReturn_t check(nvmlDevice_t one, nvmlDevice_t other) {
  const nvmlReturn_t no = nvml::check(one);
  return no == NVML_SUCCESS ? nvml::check(other) : no;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2pIndex, nvmlGpuP2PStatus_t* p2pStatus) {
  if (p2pStatus == nullptr || p2pIndex < 0 || p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (const nvmlReturn_t no = check(device1, device2); no != NVML_SUCCESS) return no;
  commands::NvmlPeerStatus::Reply reply;
  const nvmlReturn_t result = nvml::call(
      commands::NvmlPeerStatus{.device = device1, .peer = device2, .capability = p2pIndex}, reply);
  if (result == NVML_SUCCESS) *p2pStatus = reply.status;
  return result;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2,
                                                 nvmlGpuTopologyLevel_t* pathInfo) {
  if (pathInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = check(device1, device2); no != NVML_SUCCESS) return no;
  commands::NvmlCommonAncestor::Reply reply;
  const nvmlReturn_t result =
      nvml::call(commands::NvmlCommonAncestor{.device = device1, .peer = device2}, reply);
  if (result == NVML_SUCCESS) *pathInfo = reply.level;
  return result;
}

// With a count of zero only how many there are is told.
nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int* count, nvmlDevice_t* deviceArray) {
  if (count == nullptr || (deviceArray == nullptr && *count != 0)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  commands::NvmlNearestGpus::Reply reply;
  rpc::Reply answer;
  const nvmlReturn_t result =
      nvml::call(commands::NvmlNearestGpus{.device = device, .level = level}, reply, answer);
  if (result != NVML_SUCCESS) return result;
  const auto found = static_cast<unsigned int>(reply.gpus.size());
  for (unsigned int i = 0; i < found && i < *count; ++i) {
    deviceArray[i] = flyt::nvml::handle_of(reply.gpus[i]);
  }
  *count = *count == 0 || found < *count ? found : *count;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                              nvmlPciInfo_t* pci) {
  if (pci == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  commands::NvmlDeviceGetNvLinkRemotePciInfo::Reply reply;
  const nvmlReturn_t result =
      nvml::call(commands::NvmlDeviceGetNvLinkRemotePciInfo{.device = device, .link = link}, reply);
  if (result == NVML_SUCCESS) nvml::deliver_pci(reply.pci, nvml::kPciBytesV2, pci);
  return result;
}

}  // namespace flyt::client::hooks
