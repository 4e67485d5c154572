// Texts about a GPU that only NVIDIA's NVML knows.
#pragma once

#include <cstdint>

namespace flyt::nvml {

// On the wire, so numbers are never changed or reused.
enum class DeviceText : std::uint32_t {
  kSerial = 1,
  kBoardPartNumber = 2,
  kVbiosVersion = 3,
  kInforomImageVersion = 4,
  kGspFirmwareVersion = 5,
};

}  // namespace flyt::nvml
