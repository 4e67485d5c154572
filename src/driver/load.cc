#include "driver/load.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>

namespace flyt::driver {

namespace {

// Without these no session can start, so a library that lacks one is no driver.
constexpr std::array kEssential = {
    "cuInit",          "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet",
    "cuCtxSetCurrent", "cuCtxCreate_v2",     "cuMemAlloc_v2",    "cuModuleLoadData",
    "cuLaunchKernel",  "cuGetProcAddress",
};

// The driver must call its own functions, never same-named ones of the program. Only where there
// are any: a library bound like that does not see what a program has in place of libc's functions,
// and sanitizers do not work with it.
int load_flags() {
  const bool namesakes = std::any_of(kEssential.begin(), kEssential.end(), [](const char* name) {
    return dlsym(RTLD_DEFAULT, name) != nullptr;
  });
  return RTLD_NOW | RTLD_LOCAL | (namesakes ? RTLD_DEEPBIND : 0);
}

std::string loader_error() {
  const char* text = dlerror();
  return text != nullptr ? text : "the loader gave no reason";
}

std::string path_of(void* library, std::string_view asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return std::string(asked);
  return map->l_name;
}

Result<Driver> open(const std::string& path) {
  void* library = dlopen(path.c_str(), load_flags());
  if (library == nullptr) return Error{ErrorCode::kNotFound, loader_error()};
  Driver driver{.path = path_of(library, path), .table = {}, .missing = {}};
  if (dlsym(library, kClientMarker) != nullptr) {
    dlclose(library);
    return Error{ErrorCode::kDenied, driver.path + " is Flyt's client library, not a driver"};
  }
  for (const char* name : kEssential) {
    if (dlsym(library, name) != nullptr) continue;
    dlclose(library);
    return Error{ErrorCode::kUnsupported,
                 driver.path + " is no CUDA driver: it has no function " + name};
  }
  driver.soft = dlsym(library, kSoftMarker) != nullptr;
  fill(
      driver.table, [](void* from, const char* name) { return dlsym(from, name); }, library,
      [](void* missing, std::string_view name) {
        static_cast<std::vector<std::string>*>(missing)->emplace_back(name);
      },
      &driver.missing);
  return driver;
}

}  // namespace

std::vector<std::string> default_driver_paths() {
  // The loader's own search comes last: on a client machine it finds Flyt's library first.
  return {"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
          "/usr/lib64/libcuda.so.1",
          "/usr/lib/libcuda.so.1",
          "/usr/lib/wsl/lib/libcuda.so.1",
          "/usr/local/nvidia/lib64/libcuda.so.1",
          "/run/opengl-driver/lib/libcuda.so.1",
          "libcuda.so.1"};
}

Result<Driver> load(std::string_view path) {
  if (path != "auto") return open(std::string(path));
  std::string reasons;
  for (const std::string& candidate : default_driver_paths()) {
    Result<Driver> driver = open(candidate);
    if (driver) return driver;
    reasons += (reasons.empty() ? "" : "; ") + driver.error().message;
  }
  return Error{ErrorCode::kNotFound, "no NVIDIA driver found: " + reasons};
}

}  // namespace flyt::driver
