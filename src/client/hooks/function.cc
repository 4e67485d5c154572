// Functions: attributes, parameters, preferences.
#include "client/hooks_function.h"

#include "client/call.h"
#include "client/code/code_state.h"
#include "commands/function.h"

namespace flyt::client::hooks {
namespace {

FunctionState* find(CUfunction handle) {
  return session().code().functions.find(address_of(handle));
}

}  // namespace

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  const FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  const auto index = static_cast<std::uint32_t>(attrib);
  if (pi == nullptr || index >= CU_FUNC_ATTRIBUTE_MAX ||
      (function->facts.known.load(std::memory_order_relaxed) >> index & 1) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pi = function->facts.attributes[index].load(std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  const auto index = static_cast<std::uint32_t>(attrib);
  if (index >= CU_FUNC_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  if (function->facts.has(index, value)) return CUDA_SUCCESS;
  const commands::SetFunctionAttribute command{
      .function = hfunc, .attribute = static_cast<std::int32_t>(attrib), .value = value};
  return ask_and_note(command, [&](const auto&) {
    function->facts.set(index, value);
    KernelState* kernel = session().code().kernels.find(function->kernel);
    if (kernel != nullptr) kernel->apart.store(true, std::memory_order_release);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  const FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return post(
      commands::SetFunctionCache{.function = hfunc, .config = static_cast<std::int32_t>(config)});
}

CUresult cuFuncSetSharedMemConfig(CUfunction hfunc, CUsharedconfig config) {
  const FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  return config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
                 config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  if (name == nullptr || hfunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  *name = function->code->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  if (func == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const FunctionState* function = find(func);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ContextOf home(function->context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  const auto& parameters = function->code->parameters;
  if (paramOffset == nullptr || paramIndex >= parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *paramOffset = parameters[paramIndex].offset;
  if (paramSize != nullptr) *paramSize = parameters[paramIndex].size;
  return CUDA_SUCCESS;
}

// The server loads a function when it is first asked for, so that its first launch is quick.
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (const CUresult no = cuFuncLoad(function); no != CUDA_SUCCESS) return no;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  const FunctionState* state = find(function);
  return state == nullptr ? CUDA_ERROR_INVALID_HANDLE : ContextOf(state->context).bad();
}

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  const Device& device = *session().devices().find(context().device);
  int threads = 0;
  const CUresult result =
      cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, hfunc);
  if (result != CUDA_SUCCESS) return result;
  if (x > device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) ||
      y > device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y) ||
      z > device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z) ||
      std::int64_t{x} * y * z > threads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!function->legacy) function->legacy = std::make_unique<LegacyLaunch>();
  function->legacy->block = {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y),
                             static_cast<std::uint32_t>(z)};
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction hfunc, unsigned int bytes) {
  FunctionState* function = find(hfunc);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  int most = 0;
  const CUresult result =
      cuFuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, hfunc);
  if (result != CUDA_SUCCESS) return result;
  if (std::int64_t{bytes} > most) return CUDA_ERROR_INVALID_VALUE;
  if (!function->legacy) function->legacy = std::make_unique<LegacyLaunch>();
  function->legacy->shared_bytes = bytes;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
