#include "control/cli/smi.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/text.h"
#include "control/cli/launcher.h"
#include "nvml/functions.h"

namespace flyt::cli {
namespace {

using Number = std::optional<std::uint64_t>;

struct Process {
  unsigned int pid = 0;
  std::string name;
  std::uint64_t bytes = 0;
};

struct Gpu {
  std::string name;
  std::string uuid;
  std::string pci;
  std::string capability;
  std::uint64_t used_bytes = 0;
  std::uint64_t total_bytes = 0;
  Number use_percent;
  Number degrees;
  Number milliwatts;
  Number milliwatts_most;
  std::vector<Process> processes;
};

struct Report {
  std::string driver_version;
  int cuda_version = 0;
  std::vector<Gpu> gpus;
};

// The functions of NVML that are asked here.
struct Nvml {
#define FLYT_CALLS(X)                   \
  X(nvmlInit_v2)                        \
  X(nvmlShutdown)                       \
  X(nvmlSystemGetDriverVersion)         \
  X(nvmlSystemGetCudaDriverVersion_v2)  \
  X(nvmlSystemGetProcessName)           \
  X(nvmlDeviceGetCount_v2)              \
  X(nvmlDeviceGetHandleByIndex_v2)      \
  X(nvmlDeviceGetName)                  \
  X(nvmlDeviceGetUUID)                  \
  X(nvmlDeviceGetPciInfo_v3)            \
  X(nvmlDeviceGetCudaComputeCapability) \
  X(nvmlDeviceGetMemoryInfo)            \
  X(nvmlDeviceGetUtilizationRates)      \
  X(nvmlDeviceGetTemperature)           \
  X(nvmlDeviceGetPowerUsage)            \
  X(nvmlDeviceGetEnforcedPowerLimit)    \
  X(nvmlDeviceGetComputeRunningProcesses_v3)
#define FLYT_MEMBER(name) decltype(&::name) name = nullptr;
  FLYT_CALLS(FLYT_MEMBER)
#undef FLYT_MEMBER
};

Result<Nvml> load() {
  auto folder = client_library_folder();
  if (!folder) return std::move(folder).error();
  const std::string path = *folder + "/libnvidia-ml.so.1";
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{ErrorCode::kNotFound, ::dlerror()};
  Nvml nvml;
  const auto bind = [&](auto& slot, const char* name) {
    void* const found = ::dlsym(library, name);
    slot = std::bit_cast<std::remove_reference_t<decltype(slot)>>(found);
    return found != nullptr;
  };
#define FLYT_BIND(name)                                            \
  if (!bind(nvml.name, #name)) {                                   \
    return Error{ErrorCode::kUnsupported, path + " lacks " #name}; \
  }
  FLYT_CALLS(FLYT_BIND)
#undef FLYT_BIND
#undef FLYT_CALLS
  return nvml;
}

template <class Call>
std::string text(Call&& call) {
  std::array<char, 256> out{};
  const bool told = call(out.data(), static_cast<unsigned int>(out.size())) == NVML_SUCCESS;
  return told ? plain_text(out.data(), out.size()) : std::string();
}

Number number(nvmlReturn_t result, std::uint64_t value) {
  return result == NVML_SUCCESS ? Number(value) : std::nullopt;
}

std::vector<Process> processes_of(const Nvml& nvml, nvmlDevice_t device) {
  constexpr unsigned int kProcessesMax = 1024;
  std::vector<nvmlProcessInfo_t> found(kProcessesMax);
  unsigned int count = kProcessesMax;
  std::vector<Process> processes;
  if (nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, &count, found.data()) != NVML_SUCCESS) {
    return processes;
  }
  found.resize(count);
  for (const nvmlProcessInfo_t& one : found) {
    const std::string name = text([&](char* out, unsigned int size) {
      return nvml.nvmlSystemGetProcessName(one.pid, out, size);
    });
    processes.push_back({one.pid, name, one.usedGpuMemory});
  }
  return processes;
}

Gpu describe(const Nvml& nvml, nvmlDevice_t device) {
  Gpu gpu;
  gpu.name =
      text([&](char* out, unsigned int size) { return nvml.nvmlDeviceGetName(device, out, size); });
  gpu.uuid =
      text([&](char* out, unsigned int size) { return nvml.nvmlDeviceGetUUID(device, out, size); });
  nvmlPciInfo_t pci{};
  if (nvml.nvmlDeviceGetPciInfo_v3(device, &pci) == NVML_SUCCESS) gpu.pci = pci.busId;
  int major = 0;
  int minor = 0;
  if (nvml.nvmlDeviceGetCudaComputeCapability(device, &major, &minor) == NVML_SUCCESS) {
    gpu.capability = std::to_string(major) + "." + std::to_string(minor);
  }
  nvmlMemory_t memory{};
  if (nvml.nvmlDeviceGetMemoryInfo(device, &memory) == NVML_SUCCESS) {
    gpu.used_bytes = memory.used;
    gpu.total_bytes = memory.total;
  }
  nvmlUtilization_t use{};
  gpu.use_percent = number(nvml.nvmlDeviceGetUtilizationRates(device, &use), use.gpu);
  unsigned int value = 0;
  nvmlReturn_t result = nvml.nvmlDeviceGetTemperature(device, NVML_TEMPERATURE_GPU, &value);
  gpu.degrees = number(result, value);
  result = nvml.nvmlDeviceGetPowerUsage(device, &value);
  gpu.milliwatts = number(result, value);
  result = nvml.nvmlDeviceGetEnforcedPowerLimit(device, &value);
  gpu.milliwatts_most = number(result, value);
  gpu.processes = processes_of(nvml, device);
  return gpu;
}

Report describe(const Nvml& nvml) {
  Report report;
  report.driver_version = text(nvml.nvmlSystemGetDriverVersion);
  nvml.nvmlSystemGetCudaDriverVersion_v2(&report.cuda_version);
  unsigned int count = 0;
  nvml.nvmlDeviceGetCount_v2(&count);
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    if (nvml.nvmlDeviceGetHandleByIndex_v2(i, &device) != NVML_SUCCESS) break;
    report.gpus.push_back(describe(nvml, device));
  }
  return report;
}

std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out.push_back('\\');
    if (byte >= 0x20) {
      out.push_back(c);
    } else {
      out += "\\u00";
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out + "\"";
}

std::string json_of(const Number& number) { return number ? std::to_string(*number) : "null"; }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string json_of(const Gpu& gpu, std::size_t index) {
  std::string out = "{\"index\": " + std::to_string(index) + ", \"name\": " + quoted(gpu.name) +
                    ", \"uuid\": " + quoted(gpu.uuid) + ", \"pci\": " + quoted(gpu.pci) +
                    ", \"compute_capability\": " + quoted(gpu.capability) +
                    ", \"memory_used_bytes\": " + std::to_string(gpu.used_bytes) +
                    ", \"memory_total_bytes\": " + std::to_string(gpu.total_bytes) +
                    ", \"utilization_percent\": " + json_of(gpu.use_percent) +
                    ", \"temperature_celsius\": " + json_of(gpu.degrees) +
                    ", \"power_milliwatts\": " + json_of(gpu.milliwatts) +
                    ", \"power_limit_milliwatts\": " + json_of(gpu.milliwatts_most) +
                    ", \"processes\": [";
  for (std::size_t i = 0; i < gpu.processes.size(); ++i) {
    const Process& process = gpu.processes[i];
    out += (i == 0 ? "" : ", ") + std::string("{\"pid\": ") + std::to_string(process.pid) +
           ", \"name\": " + quoted(process.name) +
           ", \"memory_bytes\": " + std::to_string(process.bytes) + "}";
  }
  return out + "]}";
}

std::string json_of(const Report& report, const std::string& server) {
  std::string out = "{\"server\": " + quoted(server) +
                    ", \"driver\": " + quoted(report.driver_version) +
                    ", \"cuda\": " + quoted(version_text(report.cuda_version)) + ", \"gpus\": [";
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    out += (i == 0 ? "" : ", ") + json_of(report.gpus[i], i);
  }
  return out + "]}\n";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text + "  ";
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string cell(const Number& number, std::uint64_t unit, std::string_view name) {
  return number ? std::to_string(*number / unit) + std::string(name) : "-";
}

std::string table_of(const Report& report, const std::string& server) {
  std::string out = server + "   driver " + report.driver_version + "   CUDA " +
                    version_text(report.cuda_version) + "\n\n";
  out += padded("GPU", 3) + padded("name", 28) + padded("PCI address", 16) + padded("memory", 24) +
         padded("busy", 5) + padded("temp", 5) + "power\n";
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    const Gpu& gpu = report.gpus[i];
    out += padded(std::to_string(i), 3) + padded(gpu.name, 28) + padded(gpu.pci, 16) +
           padded(mebibytes(gpu.used_bytes) + " / " + mebibytes(gpu.total_bytes), 24) +
           padded(cell(gpu.use_percent, 1, " %"), 5) + padded(cell(gpu.degrees, 1, " C"), 5) +
           cell(gpu.milliwatts, 1000, " W") + " / " + cell(gpu.milliwatts_most, 1000, " W") + "\n";
  }
  out += "\n" + padded("GPU", 3) + padded("process", 10) + padded("memory", 12) + "name\n";
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    for (const Process& process : report.gpus[i].processes) {
      out += padded(std::to_string(i), 3) + padded(std::to_string(process.pid), 10) +
             padded(mebibytes(process.bytes), 12) + process.name + "\n";
    }
  }
  return out;
}

}  // namespace

Result<std::string> smi(const std::string& server, bool json) {
  auto nvml = load();
  if (!nvml) return std::move(nvml).error();
  ::setenv("FLYT_SERVER", server.c_str(), 1);
  if (nvml->nvmlInit_v2() != NVML_SUCCESS) {
    return Error{ErrorCode::kLost, "no GPU server answers at " + server};
  }
  const Report report = describe(*nvml);
  nvml->nvmlShutdown();
  return json ? json_of(report, server) : table_of(report, server);
}

}  // namespace flyt::cli
