// What versions of NVML's PCI calls write: a program that was built for an older one has a smaller
// struct, and what it does not know lies behind that.
#pragma once

#include <cstddef>
#include <cstring>

#include "nvml/types.h"

namespace flyt::client::nvml {

// Found on an H100's NVML of 580: up to pciDeviceId, up to pciSubSystemId, and with busId.
constexpr std::size_t kPciBytesV1 = offsetof(nvmlPciInfo_t, pciSubSystemId);
constexpr std::size_t kPciBytesV2 = offsetof(nvmlPciInfo_t, busId);
static_assert(kPciBytesV1 == 32 && kPciBytesV2 == 36);

// Writes the first `bytes` of a struct, and nothing behind them.
inline void deliver_pci(const nvmlPciInfo_t& info, std::size_t bytes, nvmlPciInfo_t* out) {
  std::memcpy(out, &info, bytes);
}

}  // namespace flyt::client::nvml
