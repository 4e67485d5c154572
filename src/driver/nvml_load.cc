#include "driver/nvml_load.h"

#include <dlfcn.h>

#include <array>

#include "driver/load.h"

namespace flyt::driver {
namespace {

constexpr std::array kPaths = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/opengl-driver/lib/libnvidia-ml.so.1",
    // The loader's own search comes last: on a client machine it finds Flyt's library first.
    "libnvidia-ml.so.1",
};

void ignore(void*, std::string_view) {}

}  // namespace

Result<NvmlTable> load_nvml(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Error{ErrorCode::kNotFound, ::dlerror()};
  const bool ours = ::dlsym(library, kClientMarker) != nullptr;
  if (ours || ::dlsym(library, "nvmlInit_v2") == nullptr) {
    ::dlclose(library);
    return Error{ErrorCode::kDenied, path + (ours ? " is Flyt's client library" : " is no NVML")};
  }
  NvmlTable table;
  fill(
      table, [](void* from, const char* name) { return ::dlsym(from, name); }, library, &ignore,
      nullptr);
  return table;
}

Result<NvmlTable> load_nvml() {
  for (const char* path : kPaths) {
    if (auto table = load_nvml(std::string(path))) return table;
  }
  return Error{ErrorCode::kNotFound, "there is no libnvidia-ml.so.1"};
}

NvmlTable no_nvml() {
  NvmlTable table;
  fill(
      table, [](void*, const char*) -> void* { return nullptr; }, nullptr, &ignore, nullptr);
  return table;
}

}  // namespace flyt::driver
