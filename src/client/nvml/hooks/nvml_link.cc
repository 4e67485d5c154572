// Peers, as the client library of CUDA tells it too: copies work, access does not.
#include "nvml_client/hooks_nvml_link.h"

#include "client/nvml/call.h"

namespace flyt::client::hooks {

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device1, nvmlDevice_t device2,
                                    nvmlGpuP2PCapsIndex_t p2pIndex, nvmlGpuP2PStatus_t* p2pStatus) {
  if (p2pStatus == nullptr || p2pIndex >= NVML_P2P_CAPS_INDEX_UNKNOWN) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  for (const nvmlDevice_t device : {device1, device2}) {
    if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  }
  *p2pStatus = NVML_P2P_STATUS_NOT_SUPPORTED;
  return NVML_SUCCESS;
}

}  // namespace flyt::client::hooks
