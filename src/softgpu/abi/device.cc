// Devices and what they can do.
#include <cctype>
#include <cstring>
#include <string>

#include "cuda/array_facts.h"
#include "cuda/host_link.h"
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

// Calls body(driver, device).
template <class Body>
CUresult with_device(CUdevice number, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    Device* device = driver.device(number);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return body(driver, *device);
  });
}

std::string pci_name(const Device& device) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  const int bus = device.pci_bus();
  return std::string("0000:") + kDigits[bus >> 4 & 15] + kDigits[bus & 15] + ":00.0";
}

// What a processor does to memory of its own, all devices do to each other's.
unsigned atomic_capabilities(CUatomicOperation operation) {
  constexpr unsigned kSizes = CU_ATOMIC_CAPABILITY_SCALAR_32 | CU_ATOMIC_CAPABILITY_SCALAR_64;
  constexpr unsigned kWhole =
      CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_REDUCTION;
  switch (operation) {
    case CU_ATOMIC_OPERATION_INTEGER_INCREMENT:
    case CU_ATOMIC_OPERATION_INTEGER_DECREMENT:
      return CU_ATOMIC_CAPABILITY_UNSIGNED | CU_ATOMIC_CAPABILITY_REDUCTION |
             CU_ATOMIC_CAPABILITY_SCALAR_32;
    case CU_ATOMIC_OPERATION_EXCHANGE:
    case CU_ATOMIC_OPERATION_CAS:
      return CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_UNSIGNED | kSizes;
    case CU_ATOMIC_OPERATION_FLOAT_ADD:
      return CU_ATOMIC_CAPABILITY_SIGNED | CU_ATOMIC_CAPABILITY_REDUCTION | kSizes;
    case CU_ATOMIC_OPERATION_FLOAT_MIN:
    case CU_ATOMIC_OPERATION_FLOAT_MAX:
      return 0;
    default:
      return kWhole | kSizes;
  }
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = driver.device_count();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
    const std::size_t size = std::min(device.name().size(), static_cast<std::size_t>(len) - 1);
    std::memcpy(name, device.name().data(), size);
    name[size] = '\0';
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *uuid = device.uuid();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = device.memory().limit();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const auto value = device->attribute(attrib);
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    *pi = *value;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t* maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    if (maxWidthInElements == nullptr || !cuda::texel_of(format, numChannels)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *maxWidthInElements = static_cast<std::size_t>(
        *device.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH));
    return CUDA_SUCCESS;
  });
}

// Windows has such names of devices.
CUresult cuDeviceGetLuid(char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (luid == nullptr || deviceNodeMask == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return driver.device(dev) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_SUPPORTED;
  });
}

CUresult cuDeviceGetExecAffinitySupport(int* pi, CUexecAffinityType, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device&) -> CUresult {
    if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pi = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetProperties(CUdevprop* prop, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto value = [&device](CUdevice_attribute attribute) {
      return device.attribute(attribute).value_or(0);
    };
    const DeviceLimits& limits = device.limits();
    prop->maxThreadsPerBlock = static_cast<int>(limits.threads_per_block);
    for (std::size_t i = 0; i < 3; ++i) {
      prop->maxThreadsDim[i] = static_cast<int>(limits.block[i]);
      prop->maxGridSize[i] = static_cast<int>(limits.grid[i]);
    }
    prop->sharedMemPerBlock = static_cast<int>(limits.shared_bytes);
    prop->totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
    prop->SIMDWidth = static_cast<int>(limits.warp);
    prop->memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    prop->regsPerBlock = static_cast<int>(limits.registers);
    prop->clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    prop->textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *major = static_cast<int>(device.settings().capability.major);
    *minor = static_cast<int>(device.settings().capability.minor);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* pciBusId, int len, CUdevice dev) {
  return with_device(dev, [&](Driver&, Device& device) -> CUresult {
    const std::string name = pci_name(device);
    if (pciBusId == nullptr || len <= static_cast<int>(name.size())) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(pciBusId, name.c_str(), name.size() + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* pciBusId) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::string wanted(pciBusId, ::strnlen(pciBusId, 32));
    for (char& c : wanted) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    // "domain:bus:device.function", or without the domain or the function.
    if (wanted.find(':') == std::string::npos) return CUDA_ERROR_INVALID_VALUE;
    if (wanted.find(':') == wanted.rfind(':')) wanted = "0000:" + wanted;
    if (wanted.find('.') == std::string::npos) wanted += ".0";
    if (wanted.starts_with("0000000")) wanted = wanted.substr(4);
    for (int i = 0; i < driver.device_count(); ++i) {
      if (pci_name(*driver.device(i)) != wanted) continue;
      *dev = i;
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}

CUresult cuDeviceCanAccessPeer(int* canAccessPeer, CUdevice dev, CUdevice peerDev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (canAccessPeer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(dev) == nullptr || driver.device(peerDev) == nullptr) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    *canAccessPeer = dev == peerDev ? 0 : 1;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int* capabilities,
                                          const CUatomicOperation* operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (capabilities == nullptr || operations == nullptr || count == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.device(srcDevice) == nullptr || driver.device(dstDevice) == nullptr ||
        srcDevice == dstDevice) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    for (unsigned i = 0; i < count; ++i) {
      if (operations[i] >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
    }
    for (unsigned i = 0; i < count; ++i) capabilities[i] = atomic_capabilities(operations[i]);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(srcDevice) == nullptr || driver.device(dstDevice) == nullptr ||
        srcDevice == dstDevice) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    switch (attrib) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int* capabilities,
                                           const CUatomicOperation* operations, unsigned int count,
                                           CUdevice dev) {
  return with_driver([&](Driver& driver) {
    if (driver.device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return cuda::no_atomics(capabilities, operations, count);
  });
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
                                    CUflushGPUDirectRDMAWritesScope scope) {
  return with_context([&](Driver&, Context&) { return cuda::flush_nothing(target, scope); });
}

CUresult cuDeviceRegisterAsyncNotification(CUdevice device, CUasyncCallback callbackFunc, void*,
                                           CUasyncCallbackHandle* callback) {
  return with_driver([&](Driver& driver) {
    if (driver.device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return driver.async_callbacks().add(device, callbackFunc, callback);
  });
}

CUresult cuDeviceUnregisterAsyncNotification(CUdevice device, CUasyncCallbackHandle callback) {
  return with_driver([&](Driver& driver) {
    if (driver.device(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return driver.async_callbacks().remove(device, callback);
  });
}

}  // extern "C"
