#include "control/node/nvml_gpus.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "control/node/xid.h"
#include "nvml/functions.h"

namespace flyt::node {
namespace {

constexpr std::array kNvmlPaths = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1"};

constexpr unsigned long long kXidEvents = 8;   // nvmlEventTypeXidCriticalError
constexpr unsigned int kRecoveryAction = 230;  // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
constexpr unsigned int kActionReset = 1;       // NVML_GPU_RECOVERY_ACTION_GPU_RESET
constexpr unsigned int kActionReboot = 2;      // NVML_GPU_RECOVERY_ACTION_NODE_REBOOT

Error no_gpu(std::string why) {
  return {ErrorCode::kNotFound,
          std::move(why) + "; without a GPU, --soft N serves N software GPUs"};
}

bool is_failure(nvmlReturn_t said) {
  return said == NVML_ERROR_GPU_IS_LOST || said == NVML_ERROR_RESET_REQUIRED;
}

// Why nothing is heard.
std::string reason_of(nvmlReturn_t said) {
  if (said == NVML_ERROR_NOT_SUPPORTED) return "NVML has no events here";
  if (said == NVML_ERROR_NO_PERMISSION) return "NVML does not allow it";
  if (said == NVML_ERROR_GPU_IS_LOST) return "NVML says that a GPU is lost";
  return "NVML's error " + std::to_string(static_cast<int>(said));
}

}  // namespace

struct NvmlGpus::Functions {
  decltype(&::nvmlInit_v2) init = nullptr;
  decltype(&::nvmlShutdown) shut_down = nullptr;
  decltype(&::nvmlDeviceGetCount_v2) count = nullptr;
  decltype(&::nvmlDeviceGetHandleByIndex_v2) device = nullptr;
  decltype(&::nvmlDeviceGetUUID) uuid = nullptr;
  decltype(&::nvmlDeviceGetMemoryInfo) memory = nullptr;
  // Older libraries have none of these.
  decltype(&::nvmlDeviceGetFieldValues) fields = nullptr;
  decltype(&::nvmlEventSetCreate) make_set = nullptr;
  decltype(&::nvmlEventSetFree) free_set = nullptr;
  decltype(&::nvmlEventSetWait_v2) wait = nullptr;
  decltype(&::nvmlDeviceGetSupportedEventTypes) event_types = nullptr;
  decltype(&::nvmlDeviceRegisterEvents) add_events = nullptr;

  bool has_events() const {
    return make_set != nullptr && free_set != nullptr && wait != nullptr &&
           event_types != nullptr && add_events != nullptr;
  }
  // Empty: nobody says.
  std::string uuid_of(nvmlDevice_t device) const;
  // What a GPU needs after an error, as newer drivers say; empty: nothing that stops programs.
  std::string need_of(nvmlDevice_t device) const;
  nvmlReturn_t listen_to(unsigned int gpu, nvmlEventSet_t set, nvmlDevice_t& device) const;
};

struct NvmlGpus::Events {
  struct One {
    nvmlDevice_t device = nullptr;
    std::uint32_t gpu = 0;
    std::string uuid;
  };
  nvmlEventSet_t set = nullptr;
  std::vector<One> heard;

  std::optional<std::uint32_t> find(nvmlDevice_t device) const;
  std::optional<std::uint32_t> find(const std::string& uuid) const;
};

NvmlGpus::NvmlGpus(std::unique_ptr<Functions> functions)
    : nvml_(std::move(functions)), events_(std::make_unique<Events>()) {}

NvmlGpus::~NvmlGpus() {
  if (events_->set != nullptr) nvml_->free_set(events_->set);
  nvml_->shut_down();
}

Result<std::unique_ptr<NvmlGpus::Functions>> NvmlGpus::load(const std::string& wished) {
  void* library = nullptr;
  if (!wished.empty()) {
    library = ::dlopen(wished.c_str(), RTLD_NOW | RTLD_LOCAL);
  } else {
    for (const char* path : kNvmlPaths) {
      if (library == nullptr) library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
  }
  if (library == nullptr) {
    return no_gpu(wished.empty() ? "there is no libnvidia-ml.so.1" : "cannot load " + wished);
  }
  auto nvml = std::make_unique<Functions>();
  const auto find = [&](auto& slot, const char* name) {
    void* const found = ::dlsym(library, name);
    slot = std::bit_cast<std::remove_reference_t<decltype(slot)>>(found);
    return found != nullptr;
  };
  bool whole = true;
  const auto bind = [&](auto& slot, const char* name) { whole = find(slot, name) && whole; };
  bind(nvml->init, "nvmlInit_v2");
  bind(nvml->shut_down, "nvmlShutdown");
  bind(nvml->count, "nvmlDeviceGetCount_v2");
  bind(nvml->device, "nvmlDeviceGetHandleByIndex_v2");
  bind(nvml->uuid, "nvmlDeviceGetUUID");
  bind(nvml->memory, "nvmlDeviceGetMemoryInfo");
  if (!whole) return no_gpu("libnvidia-ml.so.1 lacks functions");
  find(nvml->fields, "nvmlDeviceGetFieldValues");
  find(nvml->make_set, "nvmlEventSetCreate");
  find(nvml->free_set, "nvmlEventSetFree");
  find(nvml->wait, "nvmlEventSetWait_v2");
  find(nvml->event_types, "nvmlDeviceGetSupportedEventTypes");
  find(nvml->add_events, "nvmlDeviceRegisterEvents");
  return nvml;
}

Result<std::unique_ptr<NvmlGpus>> NvmlGpus::open(const std::string& library) {
  auto nvml = load(library);
  if (!nvml) return std::move(nvml).error();
  if ((*nvml)->init() != NVML_SUCCESS) return no_gpu("NVML finds no driver");
  return std::unique_ptr<NvmlGpus>(new NvmlGpus(std::move(*nvml)));
}

Result<std::vector<std::string>> NvmlGpus::uuids() const {
  unsigned int count = 0;
  std::vector<std::string> uuids;
  if (nvml_->count(&count) == NVML_SUCCESS) {
    for (unsigned int i = 0; i < count; ++i) {
      std::array<char, 128> uuid{};
      nvmlDevice_t device = nullptr;
      nvmlReturn_t said = nvml_->device(i, &device);
      if (said == NVML_SUCCESS) said = nvml_->uuid(device, uuid.data(), uuid.size());
      if (said != NVML_SUCCESS && !is_failure(said)) {
        return no_gpu("NVML cannot reach GPU " + std::to_string(i));
      }
      uuids.emplace_back(said == NVML_SUCCESS ? uuid.data() : "");
    }
  }
  if (uuids.empty()) return no_gpu("NVML finds no GPU");
  return uuids;
}

std::string NvmlGpus::Functions::uuid_of(nvmlDevice_t device) const {
  std::array<char, 128> text{};
  return uuid(device, text.data(), text.size()) == NVML_SUCCESS ? text.data() : "";
}

// "Drain and reset", and what concerns access between GPUs, leaves programs what they have.
std::string NvmlGpus::Functions::need_of(nvmlDevice_t device) const {
  if (fields == nullptr) return {};
  nvmlFieldValue_t field{};
  field.fieldId = kRecoveryAction;
  const nvmlReturn_t said = fields(device, 1, &field);
  if (said != NVML_SUCCESS || field.nvmlReturn != NVML_SUCCESS) return {};
  if (field.value.uiVal == kActionReset) return "NVML says that it has to be reset";
  if (field.value.uiVal == kActionReboot) return "NVML says that its machine has to be restarted";
  return {};
}

GpuFailures NvmlGpus::failures() const {
  GpuFailures failures;
  unsigned int count = 0;
  if (nvml_->count(&count) != NVML_SUCCESS) return failures;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    nvmlMemory_t memory{};
    nvmlReturn_t said = nvml_->device(i, &device);
    if (said == NVML_SUCCESS) said = nvml_->memory(device, &memory);
    std::string why = said == NVML_SUCCESS ? nvml_->need_of(device) : "";
    if (said == NVML_ERROR_GPU_IS_LOST) why = "NVML says that it is lost";
    if (said == NVML_ERROR_RESET_REQUIRED) why = "NVML says that it has to be reset";
    if (!why.empty()) failures[i] = std::move(why);
  }
  return failures;
}

nvmlReturn_t NvmlGpus::Functions::listen_to(unsigned int gpu, nvmlEventSet_t set,
                                            nvmlDevice_t& found) const {
  unsigned long long types = 0;
  nvmlReturn_t said = device(gpu, &found);
  if (said == NVML_SUCCESS) said = event_types(found, &types);
  if (said == NVML_SUCCESS && (types & kXidEvents) == 0) said = NVML_ERROR_NOT_SUPPORTED;
  return said == NVML_SUCCESS ? add_events(found, kXidEvents, set) : said;
}

// A set that has had an error may have it for ever, so there is always another one.
NvmlGpus::Listening NvmlGpus::listen() {
  if (events_->set != nullptr) nvml_->free_set(std::exchange(events_->set, nullptr));
  events_->heard.clear();
  Listening listening;
  unsigned int count = 0;
  if (nvml_->count(&count) != NVML_SUCCESS) return listening;
  const nvmlReturn_t made =
      nvml_->has_events() ? nvml_->make_set(&events_->set) : NVML_ERROR_NOT_SUPPORTED;
  if (made != NVML_SUCCESS) events_->set = nullptr;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    const nvmlReturn_t said =
        made == NVML_SUCCESS ? nvml_->listen_to(i, events_->set, device) : made;
    if (said == NVML_SUCCESS) {
      events_->heard.push_back({device, i, nvml_->uuid_of(device)});
    } else {
      listening.deaf[i] = reason_of(said);
    }
  }
  listening.gpus = events_->heard.size();
  return listening;
}

std::optional<std::uint32_t> NvmlGpus::Events::find(nvmlDevice_t device) const {
  for (const One& one : heard) {
    if (one.device == device) return one.gpu;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> NvmlGpus::Events::find(const std::string& uuid) const {
  for (const One& one : heard) {
    if (!uuid.empty() && one.uuid == uuid) return one.gpu;
  }
  return std::nullopt;
}

Result<std::optional<GpuXid>> NvmlGpus::hear(Duration patience) {
  if (events_->set == nullptr) return Error{ErrorCode::kInvalid, "nobody listens"};
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  nvmlEventData_t data{};
  const nvmlReturn_t said =
      nvml_->wait(events_->set, &data, static_cast<unsigned int>(milliseconds.count()));
  if (said == NVML_ERROR_TIMEOUT) return std::optional<GpuXid>();
  if (said != NVML_SUCCESS) return Error{ErrorCode::kSystem, reason_of(said)};
  if ((data.eventType & kXidEvents) == 0) return std::optional<GpuXid>();
  auto gpu = events_->find(data.device);
  // Its handle may be another one of the same GPU. Not asked before: who asks a GPU that has
  // trouble may wait.
  if (!gpu) gpu = events_->find(nvml_->uuid_of(data.device));
  return std::optional(GpuXid{gpu, xid_number(data.eventData)});
}

}  // namespace flyt::node
