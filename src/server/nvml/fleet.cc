#include "server/nvml/fleet.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace flyt::server::nvml {
namespace {

std::uint32_t attribute(const driver::Table& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  const bool known = driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS;
  return known && value >= 0 ? static_cast<std::uint32_t>(value) : 0;
}

flyt::nvml::Gpu describe(const driver::Table& driver, int ordinal) {
  flyt::nvml::Gpu gpu;
  CUdevice device = 0;
  if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) return gpu;
  std::array<char, flyt::nvml::kNameBytesMax + 1> name{};
  driver.cuDeviceGetName(name.data(), static_cast<int>(name.size()), device);
  name.back() = '\0';
  gpu.name = name.data();
  CUuuid uuid{};
  driver.cuDeviceGetUuid_v2(&uuid, device);
  static_assert(sizeof uuid == sizeof gpu.uuid);
  std::memcpy(gpu.uuid.data(), &uuid, sizeof uuid);
  std::size_t bytes = 0;
  driver.cuDeviceTotalMem_v2(&bytes, device);
  gpu.memory_bytes = bytes;
  gpu.pci_domain = attribute(driver, device, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  gpu.pci_bus = attribute(driver, device, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  gpu.pci_device = attribute(driver, device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  gpu.capability_major = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  gpu.capability_minor = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  gpu.compute_mode = attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  return gpu;
}

Fleet::Reach reach(const driver::Table& driver, CUdevice from, CUdevice to) {
  const auto has = [&](CUdevice_P2PAttribute what) {
    int value = 0;
    return driver.cuDeviceGetP2PAttribute != nullptr &&
           driver.cuDeviceGetP2PAttribute(&value, what, from, to) == CUDA_SUCCESS && value != 0;
  };
  if (from == to || !has(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)) return Fleet::Reach::kNot;
  return has(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED) ? Fleet::Reach::kAtomic
                                                              : Fleet::Reach::kPlain;
}

// False unless it is as long as that many GPUs want, and each is one that there is.
bool decode_reach(std::string_view text, std::size_t gpus, std::vector<Fleet::Reach>& out) {
  if (text.size() != gpus * gpus) return false;
  for (const char letter : text) {
    if (letter < '0' || letter > '2') return false;
    out.push_back(static_cast<Fleet::Reach>(letter));
  }
  return true;
}

}  // namespace

Fleet describe(const driver::Table& driver, std::string_view kind, int devices) {
  Fleet fleet{.driver_kind = std::string(kind)};
  driver.cuDriverGetVersion(&fleet.cuda_version);
  const int count = std::min(devices, static_cast<int>(flyt::nvml::kGpusMax));
  for (int i = 0; i < count; ++i) fleet.gpus.push_back(describe(driver, i));
  for (int i = 0; i < count * count; ++i) {
    fleet.reach.push_back(reach(driver, i / count, i % count));
  }
  return fleet;
}

std::string encode(const Fleet& fleet) {
  const auto gpus = flyt::nvml::encode(fleet.gpus);
  std::string text = fleet.driver_kind + "\n";
  for (const std::uint64_t number :
       {static_cast<std::uint64_t>(fleet.cuda_version), std::uint64_t{fleet.only},
        std::uint64_t{fleet.sms.all}, std::uint64_t{fleet.sms.group},
        std::uint64_t{fleet.sms.groups}, std::uint64_t{fleet.sms.last}, fleet.context_bytes}) {
    text += std::to_string(number) + "\n";
  }
  for (const Fleet::Reach one : fleet.reach) text.push_back(static_cast<char>(one));
  return text + "\n" + std::string(text_of(gpus));
}

Result<Fleet> decode_fleet(std::string_view text) {
  const auto line = [&](std::string_view& out) {
    const std::size_t end = text.find('\n');
    if (end == text.npos) return false;
    out = text.substr(0, end);
    text.remove_prefix(end + 1);
    return true;
  };
  const auto number = [&](auto& out) {
    std::string_view digits;
    return line(digits) &&
           std::from_chars(digits.data(), digits.data() + digits.size(), out).ec == std::errc();
  };
  std::string_view kind;
  Fleet fleet;
  std::string_view reach;
  std::uint32_t only = 0;
  if (!line(kind) || !number(fleet.cuda_version) || !number(only) || !number(fleet.sms.all) ||
      !number(fleet.sms.group) || !number(fleet.sms.groups) || !number(fleet.sms.last) ||
      !number(fleet.context_bytes) || !line(reach)) {
    return Error{ErrorCode::kInvalid, "malformed description of a server"};
  }
  fleet.driver_kind = kind;
  fleet.only = only != 0;
  auto gpus = flyt::nvml::decode_gpus(bytes_of(text));
  if (!gpus) return std::move(gpus).error();
  fleet.gpus = std::move(gpus).value();
  if (!decode_reach(reach, fleet.gpus.size(), fleet.reach)) {
    return Error{ErrorCode::kInvalid, "malformed description of a server"};
  }
  return fleet;
}

}  // namespace flyt::server::nvml
