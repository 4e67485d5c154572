// An NVML of three GPUs, as far as a node manager asks it. FLYT_FAKE_NVML has a letter for each: o,
// it works; l, it is lost; r, it needs a reset; u, nobody knows what it has.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/bytes.h"
#include "nvml/functions.h"

namespace {

constexpr unsigned kGpus = 3;

nvmlReturn_t state_of(std::uint64_t gpu) {
  const char* const states = std::getenv("FLYT_FAKE_NVML");
  if (states == nullptr || gpu >= kGpus) return NVML_ERROR_UNINITIALIZED;
  if (states[gpu] == 'l') return NVML_ERROR_GPU_IS_LOST;
  if (states[gpu] == 'r') return NVML_ERROR_RESET_REQUIRED;
  return states[gpu] == 'u' ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

std::uint64_t index_of(nvmlDevice_t device) { return flyt::address_of(device) - 1; }

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() { return NVML_SUCCESS; }
nvmlReturn_t nvmlShutdown() { return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = kGpus;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  *device = static_cast<nvmlDevice_t>(flyt::pointer_at(std::uint64_t{index} + 1));
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length) {
  std::snprintf(uuid, length, "GPU-%u", static_cast<unsigned>(index_of(device)));
  return state_of(index_of(device));
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  *memory = {};
  return state_of(index_of(device));
}

}  // extern "C"
