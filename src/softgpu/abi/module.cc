// Modules: code loaded into one context.
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

// `image` must outlive the call only.
CUresult load(CUmodule* out, const void* image, unsigned options, CUjit_option* names,
              void** values) {
  const Driver* const ours = current_driver();
  if (ours == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const LoadTurn turn(ours->settings());
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (turn.waits()) context.synchronize();
    if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
    JitOptions jit;
    if (const CUresult bad = JitOptions::read(options, names, values, jit); bad != CUDA_SUCCESS) {
      return bad;
    }
    ptx::JitLog log;
    Program program;
    const CUresult result =
        load_program(image, context.device().settings().capability, log, program);
    jit.write(log);
    if (!log.errors().empty()) {
      driver.driver_log().write(CU_LOG_LEVEL_ERROR, "cuModuleLoadData: " + log.errors());
    }
    if (result != CUDA_SUCCESS) return result;
    const auto module = Module::load(std::move(program), context, driver.regions(), nullptr);
    if (module == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    module->set_handle(driver.modules().add(module));
    *out = to_handle<CUmodule>(module->handle());
    return CUDA_SUCCESS;
  });
}

// Calls body(driver, module).
template <class Body>
CUresult with_module(CUmodule handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto module = driver.modules().find(from_handle(handle));
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, module->context());
    return bad != CUDA_SUCCESS ? bad : body(driver, module);
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  std::vector<std::byte> bytes;
  const CUresult result = with_context([&](Driver&, Context&) -> CUresult {
    if (module == nullptr || fname == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return read_file(fname, bytes);
  });
  if (result != CUDA_SUCCESS) return result;
  // The file may be cut off: its own sizes are not to be trusted.
  if (!cuda::image_of(Bytes(bytes).first(bytes.size() - 1))) return CUDA_ERROR_INVALID_IMAGE;
  return load(module, bytes.data(), 0, nullptr, nullptr);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return load(module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  return load(module, image, numOptions, options, optionValues);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return load(module, fatCubin, 0, nullptr, nullptr);
}

CUresult cuModuleUnload(CUmodule hmod) {
  return with_module(hmod, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (module->of_library()) return CUDA_ERROR_NOT_PERMITTED;
    if (const CUresult bad = check_unsafe(driver); bad != CUDA_SUCCESS) return bad;
    const auto context = driver.contexts().find(module->context());
    const CUresult result = context == nullptr ? CUDA_SUCCESS : context->synchronize();
    driver.unload(*module);
    driver.synchronised();
    return result;
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return with_driver([&](Driver&) -> CUresult {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return with_module(hmod, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (hfunc == nullptr || name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    const auto kernel = module->program().kernel(name);
    if (!kernel) return CUDA_ERROR_NOT_FOUND;
    *hfunc = to_handle<CUfunction>(driver.function_of(module, *kernel, nullptr));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunctionCount(unsigned int* count, CUmodule mod) {
  return with_module(mod, [&](Driver&, const std::shared_ptr<Module>& module) -> CUresult {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = static_cast<unsigned>(module->program().module().kernels().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned int numFunctions,
                                    CUmodule mod) {
  return with_module(mod, [&](Driver& driver, const std::shared_ptr<Module>& module) -> CUresult {
    if (functions == nullptr && numFunctions != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto count = static_cast<unsigned>(module->program().module().kernels().size());
    for (unsigned i = 0; i < std::min(numFunctions, count); ++i) {
      functions[i] = to_handle<CUfunction>(driver.function_of(module, i, nullptr));
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return with_module(hmod, [&](Driver&, const std::shared_ptr<Module>& module) -> CUresult {
    if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    const auto variable = module->variable(name);
    if (!variable) return CUDA_ERROR_NOT_FOUND;
    if (dptr != nullptr) *dptr = variable->address;
    if (bytes != nullptr) *bytes = variable->size;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
