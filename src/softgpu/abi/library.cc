// Libraries and kernels: code that no context owns.
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

CUresult load(CUlibrary* out, const void* code, CUjit_option* names, void** values,
              unsigned options) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (out == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
    JitOptions jit;
    if (const CUresult bad = JitOptions::read(options, names, values, jit); bad != CUDA_SUCCESS) {
      return bad;
    }
    ptx::JitLog log;
    Program program;
    const CUresult result = load_program(code, driver.settings().capability, log, program);
    jit.write(log);
    if (!log.errors().empty()) {
      driver.driver_log().write(CU_LOG_LEVEL_ERROR, "cuLibraryLoadData: " + log.errors());
    }
    *out = to_handle<CUlibrary>(
        driver.libraries().add(std::make_shared<Library>(std::move(program), result)));
    return CUDA_SUCCESS;
  });
}

template <class Body>
CUresult with_library(CUlibrary handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto library = driver.libraries().find(from_handle(handle));
    if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (library->error() != CUDA_SUCCESS) return library->error();
    return body(driver, library);
  });
}

template <class Body>
CUresult with_kernel(CUkernel handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto kernel = driver.kernels().find(from_handle(handle));
    if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return body(driver, *kernel);
  });
}

CUkernel kernel_handle(Driver& driver, const std::shared_ptr<Library>& library,
                       CUlibrary library_handle, std::uint32_t kernel) {
  const Lock lock(library->mutex());
  std::uint64_t& handle = library->kernels()[kernel];
  if (handle == 0) {
    handle = driver.kernels().add(
        std::make_shared<Kernel>(library, from_handle(library_handle), kernel));
  }
  return to_handle<CUkernel>(handle);
}

FunctionSettings settings_of(const Kernel& kernel, const Device& device) {
  const auto settings = kernel.settings(device.number());
  return settings ? *settings : default_settings(kernel.code(), kernel.info(), device);
}

// What is set for a kernel holds for the functions it already has on that device.
void set_everywhere(Driver& driver, Kernel& kernel, const Device& device,
                    const FunctionSettings& settings) {
  kernel.set_settings(device.number(), settings);
  std::vector<std::uint64_t> modules;
  {
    const Lock lock(kernel.library()->mutex());
    for (const auto& [context, module] : kernel.library()->modules()) modules.push_back(module);
  }
  for (const std::uint64_t handle : modules) {
    const auto module = driver.modules().find(handle);
    if (module == nullptr || &module->device() != &device) continue;
    const auto function =
        driver.functions().find(driver.function_of(module, kernel.kernel(), &settings));
    if (function != nullptr) function->set_settings(settings);
  }
}

// The first device's primary context is alive and current while one exists.
class HeldPrimary {
 public:
  HeldPrimary() {
    if (cuDevicePrimaryCtxRetain(&context_, 0) != CUDA_SUCCESS) return;
    held_ = true;
    cuCtxPushCurrent_v2(context_);
  }
  ~HeldPrimary() {
    if (!held_) return;
    CUcontext popped = nullptr;
    cuCtxPopCurrent_v2(&popped);
    cuDevicePrimaryCtxRelease_v2(0);
  }
  HeldPrimary(const HeldPrimary&) = delete;
  HeldPrimary& operator=(const HeldPrimary&) = delete;

 private:
  CUcontext context_ = nullptr;
  bool held_ = false;
};

// A variable of the library's module in the current context.
CUresult find_variable(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name,
                       bool managed) {
  return with_library(library, [&](Driver& driver, const auto& found) -> CUresult {
    if (name == nullptr || *name == '\0' || (dptr == nullptr && bytes == nullptr)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::shared_ptr<Context> context;
    CUresult bad = current_context(driver, context);
    if (bad != CUDA_SUCCESS && managed) {
      // Any will do: managed variables are the same in all, and outlive it.
      const HeldPrimary primary;
      bad = current_context(driver, context);
      return bad == CUDA_SUCCESS ? find_variable(dptr, bytes, library, name, true) : bad;
    }
    if (bad != CUDA_SUCCESS) return bad;
    std::shared_ptr<Module> module;
    bad = driver.library_module(*context, *found, &module);
    if (bad != CUDA_SUCCESS) return bad;
    const auto variable = module->variable(name);
    if (!variable || (managed && !variable->managed)) return CUDA_ERROR_NOT_FOUND;
    if (dptr != nullptr) *dptr = variable->address;
    if (bytes != nullptr) *bytes = variable->size;
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions, CUlibraryOption*,
                           void**, unsigned int) {
  return load(library, code, jitOptions, jitOptionsValues, numJitOptions);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void**,
                               unsigned int numLibraryOptions) {
  std::vector<std::byte> bytes;
  const CUresult result = with_driver([&](Driver&) -> CUresult {
    if (library == nullptr || fileName == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult no = read_file(fileName, bytes); no != CUDA_SUCCESS) return no;
    // A program keeps no code that came from a file.
    for (unsigned int i = 0; libraryOptions != nullptr && i < numLibraryOptions; ++i) {
      if (libraryOptions[i] == CU_LIBRARY_BINARY_IS_PRESERVED) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  // The file may be cut off: its own sizes are not to be trusted.
  if (!cuda::image_of(Bytes(bytes).first(bytes.size() - 1))) return CUDA_ERROR_INVALID_IMAGE;
  return load(library, bytes.data(), jitOptions, jitOptionsValues, numJitOptions);
}

CUresult cuLibraryUnload(CUlibrary library) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto found = driver.libraries().take(from_handle(library));
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::map<std::uint64_t, std::uint64_t> modules;
    {
      const Lock lock(found->mutex());
      modules = found->modules();
      for (const auto& [number, kernel] : found->kernels()) driver.kernels().take(kernel);
    }
    for (const auto& [context_handle, module_handle] : modules) {
      const auto module = driver.modules().find(module_handle);
      if (module == nullptr) continue;
      if (const auto context = driver.contexts().find(context_handle)) context->synchronize();
      driver.unload(*module);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return with_library(library, [&](Driver& driver, const auto& found) -> CUresult {
    if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto kernel = found->program().kernel(name);
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    *pKernel = kernel_handle(driver, found, library, *kernel);
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetKernelCount(unsigned int* count, CUlibrary lib) {
  return with_library(lib, [&](Driver&, const auto& found) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(found->program().module().kernels().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int numKernels, CUlibrary lib) {
  return with_library(lib, [&](Driver& driver, const auto& found) -> CUresult {
    if (kernels == nullptr && numKernels != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto count = static_cast<unsigned>(found->program().module().kernels().size());
    for (unsigned i = 0; i < std::min(numKernels, count); ++i) {
      kernels[i] = kernel_handle(driver, found, lib, i);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  return with_library(library, [&](Driver& driver, const auto& found) -> CUresult {
    std::shared_ptr<Context> context;
    if (const CUresult bad = current_context(driver, context); bad != CUDA_SUCCESS) return bad;
    if (pMod == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Module> module;
    const CUresult result = driver.library_module(*context, *found, &module);
    if (result == CUDA_SUCCESS) *pMod = to_handle<CUmodule>(module->handle());
    return result;
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return find_variable(dptr, bytes, library, name, false);
}

CUresult cuLibraryGetManaged(CUdeviceptr* dptr, size_t* bytes, CUlibrary library,
                             const char* name) {
  return find_variable(dptr, bytes, library, name, true);
}

CUresult cuLibraryGetUnifiedFunction(void**, CUlibrary library, const char*) {
  return with_library(library, [](Driver&, const auto&) { return CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return with_kernel(kernel, [&](Driver& driver, Kernel& found) -> CUresult {
    std::shared_ptr<Context> context;
    if (const CUresult bad = current_context(driver, context); bad != CUDA_SUCCESS) return bad;
    if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::uint64_t function = 0;
    const CUresult result = driver.kernel_function(*context, found, &function);
    if (result == CUDA_SUCCESS) *pFunc = to_handle<CUfunction>(function);
    return result;
  });
}

CUresult cuKernelGetLibrary(CUlibrary* pLib, CUkernel kernel) {
  return with_kernel(kernel, [&](Driver&, const Kernel& found) -> CUresult {
    if (pLib == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pLib = to_handle<CUlibrary>(found.library_handle());
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  return with_kernel(kernel, [&](Driver& driver, const Kernel& found) -> CUresult {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return get_attribute(found.library()->program().module(), found.code(), found.info(),
                         settings_of(found, *device), *device, attrib, pi);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  return with_kernel(kernel, [&](Driver& driver, Kernel& found) -> CUresult {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    FunctionSettings settings = settings_of(found, *device);
    const CUresult result =
        set_attribute(found.code(), found.info(), *device, attrib, val, settings);
    if (result == CUDA_SUCCESS) set_everywhere(driver, found, *device, settings);
    return result;
  });
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev) {
  return with_kernel(kernel, [&](Driver& driver, Kernel& found) -> CUresult {
    const Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    FunctionSettings settings = settings_of(found, *device);
    settings.cache = config;
    set_everywhere(driver, found, *device, settings);
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  if (hfunc == nullptr) {
    return with_driver([](Driver&) -> CUresult { return CUDA_ERROR_INVALID_VALUE; });
  }
  return with_kernel(hfunc, [&](Driver&, const Kernel& found) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = found.code().name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  if (kernel == nullptr) return with_driver([](Driver&) { return CUDA_ERROR_INVALID_VALUE; });
  return with_kernel(kernel, [&](Driver& driver, const Kernel& found) -> CUresult {
    std::shared_ptr<Context> context;
    if (const CUresult bad = current_context(driver, context); bad != CUDA_SUCCESS) return bad;
    const auto& parameters = found.code().parameters;
    if (paramOffset == nullptr || paramIndex >= parameters.size()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *paramOffset = parameters[paramIndex].offset;
    if (paramSize != nullptr) *paramSize = parameters[paramIndex].size;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
