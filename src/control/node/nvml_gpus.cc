#include "control/node/nvml_gpus.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <type_traits>
#include <utility>

#include "nvml/functions.h"

namespace flyt::node {
namespace {

constexpr std::array kNvmlPaths = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1"};

Error no_gpu(std::string why) {
  return {ErrorCode::kNotFound,
          std::move(why) + "; without a GPU, --soft N serves N software GPUs"};
}

bool is_failure(nvmlReturn_t said) {
  return said == NVML_ERROR_GPU_IS_LOST || said == NVML_ERROR_RESET_REQUIRED;
}

}  // namespace

struct NvmlGpus::Functions {
  decltype(&::nvmlInit_v2) init = nullptr;
  decltype(&::nvmlShutdown) shut_down = nullptr;
  decltype(&::nvmlDeviceGetCount_v2) count = nullptr;
  decltype(&::nvmlDeviceGetHandleByIndex_v2) device = nullptr;
  decltype(&::nvmlDeviceGetUUID) uuid = nullptr;
  decltype(&::nvmlDeviceGetMemoryInfo) memory = nullptr;
};

NvmlGpus::NvmlGpus(std::unique_ptr<Functions> functions) : nvml_(std::move(functions)) {}
NvmlGpus::~NvmlGpus() { nvml_->shut_down(); }

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
  bool whole = true;
  const auto bind = [&](auto& slot, const char* name) {
    void* const found = ::dlsym(library, name);
    slot = std::bit_cast<std::remove_reference_t<decltype(slot)>>(found);
    whole = whole && found != nullptr;
  };
  bind(nvml->init, "nvmlInit_v2");
  bind(nvml->shut_down, "nvmlShutdown");
  bind(nvml->count, "nvmlDeviceGetCount_v2");
  bind(nvml->device, "nvmlDeviceGetHandleByIndex_v2");
  bind(nvml->uuid, "nvmlDeviceGetUUID");
  bind(nvml->memory, "nvmlDeviceGetMemoryInfo");
  if (!whole) return no_gpu("libnvidia-ml.so.1 lacks functions");
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

GpuFailures NvmlGpus::failures() const {
  GpuFailures failures;
  unsigned int count = 0;
  if (nvml_->count(&count) != NVML_SUCCESS) return failures;
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    nvmlMemory_t memory{};
    nvmlReturn_t said = nvml_->device(i, &device);
    if (said == NVML_SUCCESS) said = nvml_->memory(device, &memory);
    if (said == NVML_ERROR_GPU_IS_LOST) failures[i] = "NVML says that it is lost";
    if (said == NVML_ERROR_RESET_REQUIRED) failures[i] = "NVML says that it has to be reset";
  }
  return failures;
}

}  // namespace flyt::node
