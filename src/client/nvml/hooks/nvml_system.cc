// The library as such, and the machine that the GPUs are in.
#include "nvml_client/hooks_nvml_system.h"

#include <algorithm>

#include "client/nvml/call.h"
#include "client/nvml/processes.h"

namespace flyt::client::hooks {
namespace {

using nvml::current_monitor;

nvmlReturn_t none(unsigned int* count) {
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

// "580" of "580.95.05".
std::string_view branch_of(std::string_view driver_version) {
  return driver_version.substr(0, driver_version.find('.'));
}

}  // namespace

nvmlReturn_t nvmlInit_v2() { return nvml::initialise(); }

nvmlReturn_t nvmlInitWithFlags(unsigned int) { return nvml::initialise(); }

nvmlReturn_t nvmlShutdown() { return nvml::shut_down(); }

nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length) {
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  return nvml::deliver(monitor->driver_version(), version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char* version, unsigned int length) {
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  return nvml::deliver(monitor->nvml_version(), version, length);
}

// Natively these work before nvmlInit too.
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* cudaDriverVersion) {
  if (cudaDriverVersion == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t no = nvml::initialise(); no != NVML_SUCCESS) return no;
  if (const auto monitor = current_monitor()) *cudaDriverVersion = monitor->cuda_version();
  return nvml::shut_down();
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int* cudaDriverVersion) {
  return nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t* branchInfo,
                                       unsigned int length) {
  if (branchInfo == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (branchInfo->version != nvml::version_of<nvmlSystemDriverBranchInfo_v1_t>(1)) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  }
  const auto monitor = current_monitor();
  if (monitor == nullptr) return NVML_ERROR_UNINITIALIZED;
  const auto space = static_cast<unsigned int>(sizeof branchInfo->branch);
  const std::string branch = "r" + std::string(branch_of(monitor->driver_version())) + "_00";
  return nvml::deliver(branch, branchInfo->branch, std::min(length, space));
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char* name, unsigned int length) {
  if (name == nullptr || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
  const std::string found = nvml::process_name(pid);
  if (found.empty()) return NVML_ERROR_NOT_FOUND;
  return nvml::deliver(std::string_view(found).substr(0, length - 1), name, length);
}

nvmlReturn_t nvmlUnitGetCount(unsigned int* unitCount) { return none(unitCount); }

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int* deviceCount) { return none(deviceCount); }

}  // namespace flyt::client::hooks
