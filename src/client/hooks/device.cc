// Devices: answered from what was fetched when the session opened.
#include "client/hooks_device.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "client/call.h"
#include "client/code/code_state.h"
#include "commands/device.h"
#include "cuda/host_link.h"

namespace flyt::client::hooks {
namespace {

// Copies a text into a program's buffer of `length` bytes, cut and terminated.
void copy_text(std::string_view text, char* out, int length) {
  const std::size_t copied = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(out, text.data(), copied);
  out[copied] = '\0';
}

CUresult find(CUdevice ordinal, const Device*& device) {
  device = session().devices().find(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

// Reads "domain:bus:device.function" in hex, where domain and function may be missing.
bool parse_pci_bus_id(std::string_view text, std::array<unsigned, 3>& id) {
  const std::size_t dot = text.find('.');
  if (dot != std::string_view::npos) text = text.substr(0, dot);
  std::array<unsigned, 3> parts{};
  std::size_t count = 0;
  bool digits = false;
  for (const char c : text) {
    if (c == ':') {
      if (!digits || ++count == parts.size()) return false;
      digits = false;
      continue;
    }
    const char lower = static_cast<char>(c | 0x20);
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && (lower < 'a' || lower > 'f')) return false;
    const int digit = decimal ? c - '0' : lower - 'a' + 10;
    parts[count] = parts[count] * 16 + static_cast<unsigned>(digit);
    digits = true;
  }
  if (!digits || count == 0) return false;
  id = count == 1 ? std::array<unsigned, 3>{0, parts[0], parts[1]} : parts;
  return true;
}

}  // namespace

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = check_device(ordinal); no != CUDA_SUCCESS) return no;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = session().devices().count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  copy_text(device->name, name, len);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  *bytes = device->total_memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  const auto index = static_cast<std::size_t>(attrib);
  if (index >= device->known.size() || device->known[index] == 0) return CUDA_ERROR_INVALID_VALUE;
  *pi = device->attributes[index];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned int numChannels, CUdevice dev) {
  if (maxWidthInElements == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  const commands::Texture1dLinearWidth command{
      .format = static_cast<std::int32_t>(format), .channels = numChannels, .device = dev};
  commands::Texture1dLinearWidth::Reply reply;
  const CUresult result = ask(command, reply);
  if (result == CUDA_SUCCESS) *maxWidthInElements = reply.width;
  return result;
}

// Windows has such names of devices.
CUresult cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUresult no = check_device(dev);
  return no == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : no;
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType type, CUdevice dev) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  // A type that there is not is not supported.
  *pi = type == CU_EXEC_AFFINITY_TYPE_SM_COUNT && device->sm_affinity ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  *prop = CUdevprop{
      .maxThreadsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
      .maxThreadsDim = {device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                        device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                        device->attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
      .maxGridSize = {device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                      device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                      device->attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
      .sharedMemPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      .totalConstantMemory = device->attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
      .SIMDWidth = device->attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE),
      .memPitch = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH),
      .regsPerBlock = device->attribute(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
      .clockRate = device->attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
      .textureAlign = device->attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)};
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Device* device = nullptr;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  *major = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  std::array<unsigned, 3> wanted{};
  if (dev == nullptr || pciBusId == nullptr || !parse_pci_bus_id(pciBusId, wanted)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (int ordinal = 0; ordinal < session().devices().count(); ++ordinal) {
    std::array<unsigned, 3> id{};
    const Device& device = *session().devices().find(ordinal);
    if (!parse_pci_bus_id(device.pci_bus_id, id) || id != wanted) continue;
    *dev = ordinal;
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  const Device* device = nullptr;
  if (pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = find(dev, device); no != CUDA_SUCCESS) return no;
  if (len <= static_cast<int>(device->pci_bus_id.size())) return CUDA_ERROR_INVALID_VALUE;
  copy_text(device->pci_bus_id, pciBusId, len);
  return CUDA_SUCCESS;
}

// The link to the host does no atomics: it is a network, and kernels do not reach host memory.
CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice dev) {
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  return cuda::no_atomics(capabilities, operations, count);
}

// What other devices wrote to this memory is visible already: none of them can.
CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  return cuda::flush_nothing(target, scope);
}

CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc, void*,
                                           CUasyncCallbackHandle* callback) {
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  return session().code().async_callbacks.add(device, callbackFunc, callback);
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback) {
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  return session().code().async_callbacks.remove(device, callback);
}

}  // namespace flyt::client::hooks
