#include "control/node/inventory.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <bit>

#include "control/node/process.h"
#include "control/node/server_files.h"
#include "nvml/functions.h"

namespace flyt::node {
namespace {

constexpr Duration kProbeTime = std::chrono::seconds(60);
constexpr std::uint32_t kUsualGroup = 8;
constexpr Duration kEndTime = std::chrono::seconds(2);
constexpr std::array kNvmlPaths = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1"};

struct Nvml {
  decltype(&::nvmlInit_v2) init = nullptr;
  decltype(&::nvmlShutdown) shut_down = nullptr;
  decltype(&::nvmlDeviceGetCount_v2) count = nullptr;
  decltype(&::nvmlDeviceGetHandleByIndex_v2) device = nullptr;
  decltype(&::nvmlDeviceGetUUID) uuid = nullptr;
};

Error no_gpu(std::string why) {
  return {ErrorCode::kNotFound,
          std::move(why) + "; without a GPU, --soft N serves N software GPUs"};
}

Result<Nvml> load_nvml(const std::string& wished) {
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
  Nvml nvml;
  bool whole = true;
  const auto bind = [&](auto& slot, const char* name) {
    void* const found = ::dlsym(library, name);
    slot = std::bit_cast<std::remove_reference_t<decltype(slot)>>(found);
    whole = whole && found != nullptr;
  };
  bind(nvml.init, "nvmlInit_v2");
  bind(nvml.shut_down, "nvmlShutdown");
  bind(nvml.count, "nvmlDeviceGetCount_v2");
  bind(nvml.device, "nvmlDeviceGetHandleByIndex_v2");
  bind(nvml.uuid, "nvmlDeviceGetUUID");
  if (!whole) return no_gpu("libnvidia-ml.so.1 lacks functions");
  return nvml;
}

Result<std::vector<std::string>> uuids_of(const Nvml& nvml) {
  if (nvml.init() != NVML_SUCCESS) return no_gpu("NVML finds no driver");
  unsigned int count = 0;
  std::vector<std::string> uuids;
  if (nvml.count(&count) == NVML_SUCCESS) {
    for (unsigned int i = 0; i < count; ++i) {
      std::array<char, 128> uuid{};
      nvmlDevice_t device = nullptr;
      if (nvml.device(i, &device) != NVML_SUCCESS ||
          nvml.uuid(device, uuid.data(), uuid.size()) != NVML_SUCCESS) {
        nvml.shut_down();
        return no_gpu("NVML cannot reach GPU " + std::to_string(i) + ", it may be lost");
      }
      uuids.emplace_back(uuid.data());
    }
  }
  nvml.shut_down();
  if (uuids.empty()) return no_gpu("NVML finds no GPU");
  return uuids;
}

// The most groups that the server grants: it alone knows how the chip can be cut.
std::vector<std::uint32_t> ask_groups(ControlLink& link, const control::LeaseState& state) {
  // What cannot be confined is still counted.
  if (state.group_sms == 0) return groups_of(state.gpu_sms, kUsualGroup, UINT32_MAX);
  for (std::uint32_t count = state.gpu_sms / state.group_sms; count > 0; --count) {
    const auto granted = link.set_sms(count * state.group_sms);
    if (granted && granted->groups.size() == count) {
      return groups_of(state.gpu_sms, state.group_sms, count);
    }
    if (link.lost()) break;
  }
  return {state.gpu_sms};
}

Result<Gpu> ask(const std::string& url, ControlWatchdog& watchdog) {
  auto link = ControlLink::connect(watchdog, url);
  if (!link) return std::move(link).error();
  const auto state = (*link)->describe();
  if (!state) return state.error();
  if (state->gpu_sms == 0 || state->gpu_memory == 0) {
    return Error{ErrorCode::kSystem, "the driver tells neither multiprocessors nor memory"};
  }
  Gpu gpu{.name = state->gpu_name};
  gpu.groups = ask_groups(**link, *state);
  gpu.divisible = state->group_sms != 0;
  gpu.memory_bytes = state->gpu_memory;
  return gpu;
}

}  // namespace

std::vector<std::uint32_t> groups_of(std::uint32_t sms, std::uint32_t usual, std::uint32_t count) {
  if (usual == 0 || usual >= sms) return {sms};
  count = std::min(count, sms / usual);
  std::vector<std::uint32_t> groups(count, usual);
  if (const std::uint32_t rest = sms - count * usual; rest != 0) groups.push_back(rest);
  return groups;
}

Result<std::vector<std::string>> find_gpus(const Config& config) {
  if (config.soft == 0) {
    const auto nvml = load_nvml(config.nvml);
    if (!nvml) return nvml.error();
    return uuids_of(*nvml);
  }
  std::vector<std::string> uuids;
  for (std::uint32_t i = 0; i < config.soft; ++i) uuids.push_back("SOFT-" + std::to_string(i));
  return uuids;
}

Result<Gpu> probe_gpu(const Config& config, std::uint32_t index, const std::string& uuid,
                      ControlWatchdog& watchdog) {
  const ServerFiles files(config, "probe-" + std::to_string(index));
  if (Status status = files.prepare(); !status) return status.error();
  auto process = Process::start(probe_command(config, index, uuid, config.mode),
                                system_clock().now() + kProbeTime);
  Result<Gpu> gpu = process ? ask(files.control_url(), watchdog) : process.error();
  if (process) process->end(SIGINT, kEndTime);
  if (!gpu) {
    Error error = std::move(gpu).error();
    error.message = "GPU " + std::to_string(index) + ": " + error.message;
    if (const std::string said = tail_of(files.log(), 500); !said.empty()) {
      error.message += "; its server said: " + said;
    }
    files.remove();
    return error;
  }
  files.remove();
  gpu->index = index;
  gpu->uuid = uuid;
  gpu->mode = config.mode;
  gpu->reserve_bytes = config.reserve_bytes;
  return gpu;
}

}  // namespace flyt::node
