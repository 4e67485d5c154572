#include "client/nvml/call.h"

#include <cstring>

namespace flyt::client::nvml {

nvmlReturn_t enter(Needs needs) {
  if (needs == Needs::kNothing) return NVML_SUCCESS;
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  const std::shared_ptr<Monitor> monitor = current_monitor();
  return monitor == nullptr || monitor->lost() ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t check(nvmlDevice_t device) {
  const std::shared_ptr<Monitor> monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  return monitor->find(device) == nullptr ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t refused(const char* name, const char* reason) {
  if (!initialised()) return NVML_ERROR_UNINITIALIZED;
  if (const std::shared_ptr<Monitor> monitor = current_monitor()) {
    monitor->refusals().note(monitor->log(), name, reason);
  }
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t deliver(std::string_view text, char* out, unsigned int length) {
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (length < text.size() + 1) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return NVML_SUCCESS;
}

}  // namespace flyt::client::nvml
