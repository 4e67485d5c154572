// Windows: the device addresses that a session reserves before its first command.
#include "server/memory/windows.h"

#include "cuda/types.h"

namespace flyt::server {
namespace {

// More addresses than this are no use to any device, and a peer could ask for all there are.
constexpr std::uint64_t kWindowBytesMax = 4096 * kGiB;
// A driver that cannot reserve all of a window is asked for half as much, down to this.
constexpr std::uint64_t kWindowBytesMin = 64 * kGiB;

bool has_virtual_memory(const driver::Table& driver) {
  if (driver.cuMemAddressReserve == nullptr || driver.cuMemAddressFree == nullptr ||
      driver.cuMemCreate == nullptr || driver.cuMemRelease == nullptr ||
      driver.cuMemMap == nullptr || driver.cuMemUnmap == nullptr ||
      driver.cuMemSetAccess == nullptr) {
    return false;
  }
  int devices = 0;
  if (driver.cuDeviceGetCount(&devices) != CUDA_SUCCESS) return false;
  for (int device = 0; device < devices; ++device) {
    int supported = 0;
    const CUresult result = driver.cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (result != CUDA_SUCCESS || supported == 0) return false;
  }
  return devices > 0;
}

bool acceptable(const wire::Window& window) {
  return window.bytes >= Arena::kBlockBytes && window.bytes <= kWindowBytesMax &&
         window.base != 0 && window.base % Arena::kBlockBytes == 0 &&
         window.bytes % Arena::kBlockBytes == 0 && window.base + window.bytes > window.base;
}

bool reserve(const driver::Table& driver, const wire::Window& window) {
  CUdeviceptr base = 0;
  if (driver.cuMemAddressReserve(&base, window.bytes, Arena::kBlockBytes, window.base, 0) !=
      CUDA_SUCCESS) {
    return false;
  }
  if (base == window.base) return true;
  driver.cuMemAddressFree(base, window.bytes);
  return false;
}

}  // namespace

std::vector<wire::Window> take_windows(const std::vector<wire::Window>& offered,
                                       const driver::Table& driver) {
  std::vector<wire::Window> taken;
  if (!has_virtual_memory(driver)) return taken;
  for (const wire::Window& window : offered) {
    const bool wanted = window.purpose == wire::WindowPurpose::kArena ||
                        window.purpose == wire::WindowPurpose::kVmm;
    if (!wanted || window_for(taken, window.purpose).bytes != 0 || !acceptable(window)) continue;
    wire::Window part = window;
    bool reserved = reserve(driver, part);
    while (!reserved && part.bytes / 2 >= kWindowBytesMin) {
      part.bytes /= 2;
      reserved = reserve(driver, part);
    }
    if (reserved) taken.push_back(part);
  }
  return taken;
}

AddressWindow window_for(const std::vector<wire::Window>& windows, wire::WindowPurpose purpose) {
  for (const wire::Window& window : windows) {
    if (window.purpose == purpose) return {window.base, window.bytes};
  }
  return {};
}

}  // namespace flyt::server
