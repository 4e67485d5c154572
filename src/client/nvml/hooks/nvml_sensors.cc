// Sensors that take a struct or give a list.
#include "nvml_client/hooks_nvml_sensors.h"

#include <algorithm>
#include <span>

#include "client/nvml/call.h"
#include "commands/nvml_sensors.h"

namespace flyt::client::hooks {
namespace {

// The list of clocks, in NVML's protocol of two calls.
nvmlReturn_t clocks(nvmlDevice_t device, std::uint32_t memory_mhz, unsigned int* count,
                    unsigned int* out) {
  if (count == nullptr || (out == nullptr && *count != 0)) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  commands::NvmlClockList::Reply reply;
  rpc::Reply answer;
  const commands::NvmlClockList command{.device = device, .memory_mhz = memory_mhz};
  const nvmlReturn_t result = nvml::call(command, reply, answer);
  if (result != NVML_SUCCESS) return result;
  const unsigned int room = *count;
  *count = static_cast<unsigned int>(reply.clocks.size());
  if (room < reply.clocks.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  if (out != nullptr) reply.clocks.copy_to({out, room});
  return NVML_SUCCESS;
}

// At most as many as one command carries.
nvmlReturn_t field_values(nvmlDevice_t device, std::span<nvmlFieldValue_t> values) {
  commands::NvmlFieldValues::Reply reply;
  rpc::Reply answer;
  commands::NvmlFieldValues command{.device = device};
  command.wanted = wire::List<nvmlFieldValue_t>(std::span<const nvmlFieldValue_t>(values));
  const nvmlReturn_t result = nvml::call(command, reply, answer);
  if (result != NVML_SUCCESS) return result;
  if (reply.values.size() != values.size()) {
    if (const auto monitor = nvml::current_monitor()) {
      monitor->give_up("as many field values as were not asked for");
    }
    return NVML_ERROR_GPU_IS_LOST;
  }
  reply.values.copy_to(values);
  return NVML_SUCCESS;
}

}  // namespace

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t* temperature) {
  if (temperature == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (temperature->version != nvml::version_of<nvmlTemperature_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  commands::NvmlTemperature::Reply reply;
  const commands::NvmlTemperature command{
      .device = device, .sensor = static_cast<std::uint32_t>(temperature->sensorType)};
  const nvmlReturn_t result = nvml::call(command, reply);
  if (result == NVML_SUCCESS) temperature->temperature = reply.degrees;
  return result;
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device,
                                            nvmlMarginTemperature_t* marginTempInfo) {
  if (marginTempInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (marginTempInfo->version != nvml::version_of<nvmlMarginTemperature_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  commands::NvmlMarginTemperature::Reply reply;
  const nvmlReturn_t result = nvml::call(commands::NvmlMarginTemperature{.device = device}, reply);
  if (result == NVML_SUCCESS) marginTempInfo->marginTemperature = reply.degrees;
  return result;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int* count,
                                                unsigned int* clocksMHz) {
  return clocks(device, 0, count, clocksMHz);
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz,
                                                  unsigned int* count, unsigned int* clocksMHz) {
  if (memoryClockMHz == 0) return NVML_ERROR_NOT_FOUND;
  return clocks(device, memoryClockMHz, count, clocksMHz);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                      nvmlFieldValue_t* values) {
  if (values == nullptr || valuesCount <= 0) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  std::span<nvmlFieldValue_t> rest(values, static_cast<std::size_t>(valuesCount));
  while (!rest.empty()) {
    constexpr std::size_t kMost = commands::NvmlFieldValues::kWantedCountMax;
    const auto part = rest.first(std::min(rest.size(), kMost));
    const nvmlReturn_t result = field_values(device, part);
    if (result != NVML_SUCCESS) return result;
    rest = rest.subspan(part.size());
  }
  return NVML_SUCCESS;
}

}  // namespace flyt::client::hooks
