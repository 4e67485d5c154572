#include "server/nvml/native.h"

#include <array>

#include "wire/hello.h"

namespace flyt::server::nvml {
namespace {

using TextCall = nvmlReturn_t (*)(char*, unsigned int);

std::string text_of_call(TextCall call) {
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
  if (call(text.data(), static_cast<unsigned int>(text.size())) != NVML_SUCCESS) return {};
  text.back() = '\0';
  return text.data();
}

driver::NvmlTable table_of_machine(const Fleet& fleet) {
  // The software GPU is no GPU of NVML, whatever else the machine has.
  if (fleet.driver_kind == wire::kSoftDriver) return driver::no_nvml();
  auto table = driver::load_nvml();
  return table ? *table : driver::no_nvml();
}

}  // namespace

Native::Native(const Fleet& fleet, const Log& log) : Native(fleet, log, table_of_machine(fleet)) {}

Native::Native(const Fleet& fleet, const Log& log, const driver::NvmlTable& table) : table_(table) {
  start(fleet, log);
  if (!present_) table_ = driver::no_nvml();
}

void Native::start(const Fleet& fleet, const Log& log) {
  if (const nvmlReturn_t result = table_.nvmlInit_v2(); result != NVML_SUCCESS) {
    log.debug("no NVML", {{"result", static_cast<int>(result)}});
    return;
  }
  for (const flyt::nvml::Gpu& gpu : fleet.gpus) {
    const std::string uuid = flyt::nvml::uuid_text(gpu);
    nvmlDevice_t device = nullptr;
    nvmlReturn_t result = table_.nvmlDeviceGetHandleByUUID(uuid.c_str(), &device);
    // An instance of a divided GPU has the same digits behind another word.
    if (result != NVML_SUCCESS) {
      result = table_.nvmlDeviceGetHandleByUUID(("MIG" + uuid.substr(3)).c_str(), &device);
    }
    if (result != NVML_SUCCESS) {
      log.debug("NVML does not know a GPU", {{"uuid", uuid}, {"result", static_cast<int>(result)}});
      devices_.clear();
      return;
    }
    devices_.push_back(device);
  }
  present_ = true;
}

std::string Native::driver_version() const {
  return present_ ? text_of_call(table_.nvmlSystemGetDriverVersion) : std::string();
}

std::string Native::nvml_version() const {
  return present_ ? text_of_call(table_.nvmlSystemGetNVMLVersion) : std::string();
}

}  // namespace flyt::server::nvml
