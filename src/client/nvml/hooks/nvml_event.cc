// Sets of events of GPUs. No event travels.
#include "nvml_client/hooks_nvml_event.h"

#include "base/clock.h"
#include "client/nvml/call.h"

namespace flyt::client::hooks {

using nvml::current_monitor;

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t* set) {
  if (set == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  *set = monitor->event_sets().make();
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  return monitor->event_sets().drop(set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t* data,
                                 unsigned int timeoutms) {
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (data == nullptr || !monitor->event_sets().has(set)) return NVML_ERROR_INVALID_ARGUMENT;
  system_clock().sleep_for(std::chrono::milliseconds(timeoutms));
  return monitor->lost() ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long* eventTypes) {
  if (eventTypes == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  *eventTypes = 0;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
                                      nvmlEventSet_t set) {
  if (const nvmlReturn_t no = nvml::check(device); no != NVML_SUCCESS) return no;
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  if (!monitor->event_sets().has(set)) return NVML_ERROR_INVALID_ARGUMENT;
  return eventTypes == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

}  // namespace flyt::client::hooks
