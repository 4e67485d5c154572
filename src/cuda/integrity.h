// Integrity: the answer that cudart expects from its driver before it works with it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace flyt::cuda {

// What the answer covers of one visible device, in the order of their numbers.
struct DeviceIdentity {
  std::array<std::uint8_t, 16> uuid{};  // Of cuDeviceGetUuid.
  std::int32_t pci_domain = 0;
  std::int32_t pci_bus = 0;
  std::int32_t pci_device = 0;
};
static_assert(sizeof(DeviceIdentity) == 28);

struct IntegrityQuestion {
  std::uint32_t driver_version = 0;
  std::uint32_t version = 0;
  std::uint32_t process = 0;
  std::uint32_t thread = 0;  // pthread_self(), truncated.
  // The very addresses that cuGetExportTable handed out.
  const void* cudart_interface = nullptr;
  const void* integrity_table = nullptr;
  const void* integrity_function = nullptr;
  std::uint64_t unix_seconds = 0;
};

std::array<std::uint64_t, 2> integrity_answer(const IntegrityQuestion& question,
                                              std::span<const DeviceIdentity> devices);

}  // namespace flyt::cuda
