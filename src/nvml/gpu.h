// Gpu: what never changes about one GPU, as a monitor's client learns it when it connects.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "nvml/handle.h"

namespace flyt::nvml {

inline constexpr std::size_t kNameBytesMax = 95;

struct Gpu {
  std::string name;
  std::array<std::uint8_t, 16> uuid{};
  std::uint32_t pci_domain = 0;
  std::uint32_t pci_bus = 0;
  std::uint32_t pci_device = 0;
  std::uint32_t pci_id = 0;         // Device and vendor; 0: not known.
  std::uint32_t pci_subsystem = 0;  // 0: not known.
  std::uint64_t memory_bytes = 0;   // As CUDA tells it.
  std::uint32_t capability_major = 0;
  std::uint32_t capability_minor = 0;
  std::uint32_t compute_mode = 0;
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// "GPU-" and the UUID in hexadecimal groups.
std::string uuid_text(const Gpu& gpu);
// "00000000:17:00.0"; with fewer digits "0000:17:00.0", as before NVML's third version.
std::string pci_text(const Gpu& gpu, int domain_digits);

// Reads "domain:bus:device.function" or "bus:device.function", in hexadecimal; the function must be
// 0 if it is there. False if it is something else.
bool parse_pci(std::string_view text, std::uint32_t& domain, std::uint32_t& bus,
               std::uint32_t& device);

// GPUs in a row; at most kGpusMax, names are cut to kNameBytesMax bytes.
std::vector<std::byte> encode(const std::vector<Gpu>& gpus);
// Refuses what is truncated, too long or over a limit.
Result<std::vector<Gpu>> decode_gpus(Bytes bytes);

}  // namespace flyt::nvml
