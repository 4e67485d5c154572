// DeviceCache: what never changes about the server's devices, fetched once.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/types.h"
#include "rpc/channel.h"

namespace flyt::client {

struct Device {
  std::string name;
  CUuuid uuid{};
  std::uint64_t total_memory = 0;
  std::string pci_bus_id;
  bool sm_affinity = false;  // cuDeviceGetExecAffinitySupport of SM counts.
  // By CUdevice_attribute; where `known` is 0 the driver refuses the attribute.
  std::array<std::int32_t, 256> attributes{};
  std::array<std::uint8_t, 256> known{};

  std::int32_t attribute(CUdevice_attribute attribute) const {
    return attributes[static_cast<std::size_t>(attribute)];
  }
  // Changes one that the driver knows.
  void set(CUdevice_attribute attribute, std::int32_t value) {
    attributes[static_cast<std::size_t>(attribute)] = value;
  }
  // 90 for 9.0.
  std::uint32_t capability() const {
    return static_cast<std::uint32_t>(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                                      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  }
};

// Immutable once the session is open.
class DeviceCache {
 public:
  // Asks the server; one call for the count and one for each device.
  static Result<DeviceCache> fetch(rpc::Channel& channel);

  // Programs cannot map memory themselves: no range of addresses is free on both sides.
  void deny_virtual_memory();

  int count() const { return static_cast<int>(devices_.size()); }
  int driver_version() const { return driver_version_; }
  // Null unless 0 <= ordinal < count().
  const Device* find(CUdevice ordinal) const {
    return ordinal < 0 || ordinal >= count() ? nullptr
                                             : &devices_[static_cast<std::size_t>(ordinal)];
  }
  const std::vector<Device>& all() const { return devices_; }

 private:
  std::vector<Device> devices_;
  int driver_version_ = 0;
};

}  // namespace flyt::client
