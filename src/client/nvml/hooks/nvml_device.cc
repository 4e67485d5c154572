// Which GPUs there are, and what they are called.
#include "nvml_client/hooks_nvml_device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "client/nvml/call.h"
#include "client/nvml/pci_info.h"
#include "commands/nvml_device.h"
#include "nvml/text.h"

namespace flyt::client::hooks {
namespace {

using flyt::nvml::DeviceText;
using flyt::nvml::Gpu;
using nvml::current_monitor;

// NVML_UUID_TYPE of nvmlUUID_t.
constexpr unsigned int kUuidText = 1;
constexpr unsigned int kUuidBytes = 2;

constexpr std::size_t kGspVersionBytes = 64;

// Hands a GPU that `fits` to the program.
template <class Fits>
nvmlReturn_t find(nvmlDevice_t* device, Fits&& fits) {
  if (device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  const auto& gpus = monitor->gpus();
  const auto found = std::find_if(gpus.begin(), gpus.end(), fits);
  if (found == gpus.end()) return NVML_ERROR_NOT_FOUND;
  *device = flyt::nvml::handle_of(static_cast<std::uint32_t>(found - gpus.begin()));
  return NVML_SUCCESS;
}

// Calls `tell` with a handle's GPU.
template <class Tell>
nvmlReturn_t with(nvmlDevice_t device, const void* out, Tell&& tell) {
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  const Gpu* gpu = monitor->find(device);
  return gpu == nullptr || out == nullptr ? NVML_ERROR_INVALID_ARGUMENT : tell(*gpu);
}

template <std::size_t size>
void put(std::string_view text, char (&out)[size]) {
  static_cast<void>(nvml::deliver(text, out, size));
}

nvmlReturn_t tell_pci(nvmlDevice_t device, std::size_t bytes, nvmlPciInfo_t* pci) {
  return with(device, pci, [&](const Gpu& gpu) {
    nvmlPciInfo_t info{};
    put(flyt::nvml::pci_text(gpu, 4), info.busIdLegacy);
    put(flyt::nvml::pci_text(gpu, 8), info.busId);
    info.domain = gpu.pci_domain;
    info.bus = gpu.pci_bus;
    info.device = gpu.pci_device;
    info.pciDeviceId = gpu.pci_id;
    info.pciSubSystemId = gpu.pci_subsystem;
    nvml::deliver_pci(info, bytes, pci);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t fetch(nvmlDevice_t device, DeviceText what, std::string& text) {
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  commands::NvmlDeviceText::Reply reply;
  rpc::Reply answer;
  const commands::NvmlDeviceText command{.device = device,
                                         .what = static_cast<std::uint32_t>(what)};
  const nvmlReturn_t result = nvml::call(command, reply, answer);
  if (result == NVML_SUCCESS) text = reply.text;
  return result;
}

nvmlReturn_t deliver(nvmlDevice_t device, DeviceText what, char* out, unsigned int length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  std::string text;
  const nvmlReturn_t result = fetch(device, what, text);
  return result == NVML_SUCCESS ? nvml::deliver(text, out, length) : result;
}

unsigned int architecture_of(const Gpu& gpu) {
  switch (gpu.capability_major) {
    case 3:
      return NVML_DEVICE_ARCH_KEPLER;
    case 5:
      return NVML_DEVICE_ARCH_MAXWELL;
    case 6:
      return NVML_DEVICE_ARCH_PASCAL;
    case 7:
      return gpu.capability_minor < 5 ? NVML_DEVICE_ARCH_VOLTA : NVML_DEVICE_ARCH_TURING;
    case 8:
      return gpu.capability_minor == 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE;
    case 9:
      return NVML_DEVICE_ARCH_HOPPER;
    case 10:
    case 11:
    case 12:
      return NVML_DEVICE_ARCH_BLACKWELL;
    default:
      return NVML_DEVICE_ARCH_UNKNOWN;
  }
}

}  // namespace

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* deviceCount) {
  if (deviceCount == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  *deviceCount = static_cast<unsigned int>(monitor->gpus().size());
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (device == nullptr || index >= monitor->gpus().size()) return NVML_ERROR_INVALID_ARGUMENT;
  *device = flyt::nvml::handle_of(index);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* pciBusId, nvmlDevice_t* device) {
  std::uint32_t domain = 0;
  std::uint32_t bus = 0;
  std::uint32_t number = 0;
  if (pciBusId == nullptr || !flyt::nvml::parse_pci(pciBusId, domain, bus, number)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  return find(device, [&](const Gpu& gpu) {
    return gpu.pci_domain == domain && gpu.pci_bus == bus && gpu.pci_device == number;
  });
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const std::string_view wanted = uuid;
  return find(device, [&](const Gpu& gpu) { return flyt::nvml::uuid_text(gpu) == wanted; });
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t* uuid, nvmlDevice_t* device) {
  if (uuid == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (uuid->version != nvml::version_of<nvmlUUID_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  if (uuid->type == kUuidText) {
    std::array<char, sizeof uuid->value.str + 1> text{};
    std::memcpy(text.data(), uuid->value.str, sizeof uuid->value.str);
    return nvmlDeviceGetHandleByUUID(text.data(), device);
  }
  if (uuid->type != kUuidBytes) return NVML_ERROR_INVALID_ARGUMENT;
  return find(device, [&](const Gpu& gpu) {
    return std::memcmp(gpu.uuid.data(), uuid->value.bytes, gpu.uuid.size()) == 0;
  });
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char* serial, nvmlDevice_t* device) {
  if (serial == nullptr || device == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  for (std::uint32_t i = 0; i < monitor->gpus().size(); ++i) {
    std::string text;
    const nvmlDevice_t candidate = flyt::nvml::handle_of(i);
    const nvmlReturn_t result = fetch(candidate, DeviceText::kSerial, text);
    if (result == NVML_ERROR_GPU_IS_LOST) return result;
    if (result != NVML_SUCCESS || text != serial) continue;
    *device = candidate;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length) {
  return with(device, name, [&](const Gpu& gpu) { return nvml::deliver(gpu.name, name, length); });
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  return with(device, uuid, [&](const Gpu& gpu) {
    return nvml::deliver(flyt::nvml::uuid_text(gpu), uuid, length);
  });
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int* index) {
  return with(device, index, [&](const Gpu&) {
    *index = flyt::nvml::index_of(device, flyt::nvml::kGpusMax);
    return NVML_SUCCESS;
  });
}

// There is no /dev/nvidia0 here, but programs number GPUs by it.
nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int* minorNumber) {
  return nvmlDeviceGetIndex(device, minorNumber);
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return tell_pci(device, nvml::kPciBytesV1, pci);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return tell_pci(device, nvml::kPciBytesV2, pci);
}
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  return tell_pci(device, sizeof *pci, pci);
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t* pci) {
  // A display controller, and one without a screen of its own (PCI class codes).
  constexpr unsigned int kDisplay = 3;
  constexpr unsigned int k3d = 2;
  return with(device, pci, [&](const Gpu& gpu) {
    const unsigned int version = pci->version;
    if (version != nvml::version_of<nvmlPciInfoExt_v1_t>(1)) {
      return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    }
    *pci = {.version = version,
            .domain = gpu.pci_domain,
            .bus = gpu.pci_bus,
            .device = gpu.pci_device,
            .pciDeviceId = gpu.pci_id,
            .pciSubSystemId = gpu.pci_subsystem,
            .baseClass = kDisplay,
            .subClass = k3d,
            .busId = {}};
    put(flyt::nvml::pci_text(gpu, 8), pci->busId);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with(device, major, [&](const Gpu& gpu) {
    *major = static_cast<int>(gpu.capability_major);
    *minor = static_cast<int>(gpu.capability_minor);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t* arch) {
  return with(device, arch, [&](const Gpu& gpu) {
    *arch = architecture_of(gpu);
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t* mode) {
  return with(device, mode, [&](const Gpu& gpu) {
    *mode = static_cast<nvmlComputeMode_t>(gpu.compute_mode);
    return NVML_SUCCESS;
  });
}

// To programs it is a GPU like any other.
nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t* pVirtualMode) {
  return with(device, pVirtualMode, [&](const Gpu&) {
    *pVirtualMode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int* onSameBoard) {
  if (const nvmlReturn_t no = nvml::check(device2); no != NVML_SUCCESS) return no;
  return with(device1, onSameBoard, [&](const Gpu&) {
    *onSameBoard = device1 == device2 ? 1 : 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char* serial, unsigned int length) {
  return deliver(device, DeviceText::kSerial, serial, length);
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char* partNumber,
                                          unsigned int length) {
  return deliver(device, DeviceText::kBoardPartNumber, partNumber, length);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char* version, unsigned int length) {
  return deliver(device, DeviceText::kVbiosVersion, version, length);
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char* version,
                                              unsigned int length) {
  return deliver(device, DeviceText::kInforomImageVersion, version, length);
}

// The program's buffer has the documented size.
nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char* version) {
  return deliver(device, DeviceText::kGspFirmwareVersion, version, kGspVersionBytes);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int* isMigDevice) {
  return with(device, isMigDevice, [&](const Gpu&) {
    *isMigDevice = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int* currentMode,
                                  unsigned int* pendingMode) {
  if (pendingMode == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return with(device, currentMode, [&](const Gpu&) {
    *currentMode = *pendingMode = 0;
    return NVML_SUCCESS;
  });
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int* count) {
  return with(device, count, [&](const Gpu&) {
    *count = 0;
    return NVML_SUCCESS;
  });
}

}  // namespace flyt::client::hooks
