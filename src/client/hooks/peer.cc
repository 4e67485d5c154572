// Access between devices.
#include "client/hooks_peer.h"

#include "client/call.h"

namespace flyt::client::hooks {

// Devices cannot reach each other's memory as long as copies between them are not remoted.
CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  if (const CUresult no = check_device(peerDev); no != CUDA_SUCCESS) return no;
  *canAccessPeer = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  if (value == nullptr || attrib < CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ||
      attrib > CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (srcDevice == dstDevice || check_device(srcDevice) != CUDA_SUCCESS ||
      check_device(dstDevice) != CUDA_SUCCESS) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *value = 0;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
