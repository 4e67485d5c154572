// Sensors that NVML gives in structs and lists.
#include "server/hooks_nvml_sensors.h"

#include <algorithm>
#include <vector>

namespace flyt::server::nvml::hooks {
namespace {

// NVML_FI_DEV_...: what a client may know of its GPU. Counters of links, vGPU and MIG are not among
// them.
constexpr bool is_open(unsigned int field) {
  return (field >= 1 && field <= 6) ||      // ECC mode; corrected and uncorrected errors.
         field == 82 || field == 83 ||      // Memory temperature, energy.
         field == 90 || field == 91 ||      // Speed of the links, how many.
         (field >= 142 && field <= 145)     // Remapped rows.
         || (field >= 164 && field <= 166)  // Speed, state and version of one link.
         || (field >= 185 && field <= 190) || field == 192  // Power, its limits.
         || (field >= 193 && field <= 196);                 // Temperature limits.
}

}  // namespace

nvmlReturn_t nvml_temperature(Request& request, const commands::NvmlTemperature& command,
                              commands::NvmlTemperature::Reply& reply) {
  nvmlDevice_t device = command.device;
  if (!request.resolve(device)) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned int degrees = 0;
  const nvmlReturn_t result = request.driver().nvmlDeviceGetTemperature(
      device, static_cast<nvmlTemperatureSensors_t>(command.sensor), &degrees);
  reply.degrees = static_cast<std::int32_t>(degrees);
  return result;
}

nvmlReturn_t nvml_margin_temperature(Request& request,
                                     const commands::NvmlMarginTemperature& command,
                                     commands::NvmlMarginTemperature::Reply& reply) {
  nvmlDevice_t device = command.device;
  if (!request.resolve(device)) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlMarginTemperature_t margin{.version = sizeof margin | 1U << 24};
  const nvmlReturn_t result = request.driver().nvmlDeviceGetMarginTemperature(device, &margin);
  reply.degrees = margin.marginTemperature;
  return result;
}

void nvml_clock_list(Request request, const commands::NvmlClockList& command) {
  using Reply = commands::NvmlClockList::Reply;
  Reply reply;
  nvmlDevice_t device = command.device;
  if (!request.resolve(device)) return request.reply(NVML_ERROR_INVALID_ARGUMENT, reply);
  std::vector<std::uint32_t> clocks(Reply::kClocksCountMax);
  unsigned int count = Reply::kClocksCountMax;
  const auto& nvml = request.driver();
  const nvmlReturn_t result =
      command.memory_mhz == 0
          ? nvml.nvmlDeviceGetSupportedMemoryClocks(device, &count, clocks.data())
          : nvml.nvmlDeviceGetSupportedGraphicsClocks(device, command.memory_mhz, &count,
                                                      clocks.data());
  clocks.resize(std::min<std::size_t>(count, clocks.size()));
  reply.clocks = wire::List<std::uint32_t>(clocks);
  request.reply(result, reply);
}

void nvml_field_values(Request request, const commands::NvmlFieldValues& command) {
  commands::NvmlFieldValues::Reply reply;
  nvmlDevice_t device = command.device;
  if (!request.resolve(device)) return request.reply(NVML_ERROR_INVALID_ARGUMENT, reply);
  std::vector<nvmlFieldValue_t> values = command.wanted.to_vector();
  for (nvmlFieldValue_t& value : values) {
    nvmlFieldValue_t asked{.fieldId = value.fieldId, .scopeId = value.scopeId};
    nvmlReturn_t result = NVML_ERROR_NOT_SUPPORTED;
    if (is_open(value.fieldId)) {
      result = request.driver().nvmlDeviceGetFieldValues(device, 1, &asked);
    }
    if (result != NVML_SUCCESS) asked.nvmlReturn = result;
    value = asked;
  }
  reply.values = wire::List<nvmlFieldValue_t>(values);
  request.reply(NVML_SUCCESS, reply);
}

}  // namespace flyt::server::nvml::hooks
