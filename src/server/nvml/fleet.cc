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

}  // namespace

Fleet describe(const driver::Table& driver, std::string_view kind, int devices) {
  Fleet fleet{.driver_kind = std::string(kind)};
  driver.cuDriverGetVersion(&fleet.cuda_version);
  const int count = std::min(devices, static_cast<int>(flyt::nvml::kGpusMax));
  for (int i = 0; i < count; ++i) fleet.gpus.push_back(describe(driver, i));
  return fleet;
}

std::string encode(const Fleet& fleet) {
  const auto gpus = flyt::nvml::encode(fleet.gpus);
  return fleet.driver_kind + "\n" + std::to_string(fleet.cuda_version) + "\n" +
         std::string(text_of(gpus));
}

Result<Fleet> decode_fleet(std::string_view text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = first == text.npos ? first : text.find('\n', first + 1);
  if (second == text.npos) return Error{ErrorCode::kInvalid, "malformed description of a server"};
  Fleet fleet{.driver_kind = std::string(text.substr(0, first))};
  const std::string_view version = text.substr(first + 1, second - first - 1);
  std::from_chars(version.data(), version.data() + version.size(), fleet.cuda_version);
  auto gpus = flyt::nvml::decode_gpus(bytes_of(text.substr(second + 1)));
  if (!gpus) return std::move(gpus).error();
  fleet.gpus = std::move(gpus).value();
  return fleet;
}

}  // namespace flyt::server::nvml
