// Functions: attributes, parameters, preferences.
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

template <class Body>
CUresult with_function(CUfunction handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const std::shared_ptr<Function> function = driver.functions().find(from_handle(handle));
    if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, function->module()->context());
    return bad != CUDA_SUCCESS ? bad : body(*function);
  });
}

// The shape of the next launch is set by who has a context current.
template <class Body>
CUresult with_shape_of(CUfunction handle, Body body) {
  const CUresult bad = with_context([](auto&&...) { return CUDA_SUCCESS; });
  return bad != CUDA_SUCCESS ? bad : with_function(handle, body);
}

std::int64_t attribute_of(const Function& function, CUfunction_attribute attribute) {
  const Module& module = *function.module();
  int value = 0;
  const CUresult known = get_attribute(module.program().module(), function.code(), function.info(),
                                       function.settings(), module.device(), attribute, &value);
  return known == CUDA_SUCCESS ? value : 0;
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return with_function(hfunc, [&](const Function& function) -> CUresult {
    if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Module& module = *function.module();
    return get_attribute(module.program().module(), function.code(), function.info(),
                         function.settings(), module.device(), attrib, pi);
  });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return with_function(hfunc, [&](Function& function) {
    FunctionSettings settings = function.settings();
    const CUresult result = set_attribute(function.code(), function.info(),
                                          function.module()->device(), attrib, value, settings);
    if (result == CUDA_SUCCESS) function.set_settings(settings);
    return result;
  });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  return with_function(hfunc, [&](Function& function) -> CUresult {
    if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    FunctionSettings settings = function.settings();
    settings.cache = config;
    function.set_settings(settings);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  return with_function(hfunc, [&](Function&) {
    return config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE
                                                              : CUDA_SUCCESS;
  });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  if (hfunc == nullptr) {
    return with_driver([](Driver&) -> CUresult { return CUDA_ERROR_INVALID_VALUE; });
  }
  return with_function(hfunc, [&](const Function& function) -> CUresult {
    if (hmod == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *hmod = to_handle<CUmodule>(function.module()->handle());
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (hfunc == nullptr) {
    return with_driver([](Driver&) -> CUresult { return CUDA_ERROR_INVALID_VALUE; });
  }
  return with_function(hfunc, [&](const Function& function) -> CUresult {
    if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *name = function.code().name.c_str();
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  if (func == nullptr) return with_driver([](Driver&) { return CUDA_ERROR_INVALID_VALUE; });
  return with_function(func, [&](const Function& function) -> CUresult {
    const auto& parameters = function.code().parameters;
    if (paramOffset == nullptr || paramIndex >= parameters.size()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *paramOffset = parameters[paramIndex].offset;
    if (paramSize != nullptr) *paramSize = parameters[paramIndex].size;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return with_function(function, [&](const Function&) -> CUresult {
    if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return with_function(function, [](const Function&) { return CUDA_SUCCESS; });
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  return with_shape_of(hfunc, [&](Function& function) -> CUresult {
    if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
    OldLaunch old_launch = function.old_launch();
    old_launch.block = {static_cast<unsigned>(x), static_cast<unsigned>(y),
                        static_cast<unsigned>(z)};
    const auto& most = function.module()->device().limits().block;
    const auto threads = std::int64_t{x} * y * z;
    if (old_launch.block[0] > most[0] || old_launch.block[1] > most[1] ||
        old_launch.block[2] > most[2] ||
        threads > attribute_of(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    function.set_old_launch(std::move(old_launch));
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  return with_shape_of(hfunc, [&](Function& function) -> CUresult {
    if (bytes > attribute_of(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    OldLaunch old_launch = function.old_launch();
    old_launch.shared_bytes = bytes;
    function.set_old_launch(std::move(old_launch));
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
