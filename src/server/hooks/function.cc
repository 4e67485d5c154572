// Attributes and preferences of functions.
#include "server/hooks_function.h"

#include "server/code/function_facts.h"

namespace flyt::server::hooks {

CUresult set_function_attribute(Request& request, const commands::SetFunctionAttribute& command) {
  CUfunction function = command.function;
  if (!request.resolve(function)) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_function_attribute(command.attribute)) return CUDA_ERROR_INVALID_VALUE;
  return request.driver().cuFuncSetAttribute(
      function, static_cast<CUfunction_attribute>(command.attribute), command.value);
}

CUresult set_function_cache(Request& request, const commands::SetFunctionCache& command) {
  CUfunction function = command.function;
  if (!request.resolve(function)) return CUDA_ERROR_INVALID_HANDLE;
  return request.driver().cuFuncSetCacheConfig(function, static_cast<CUfunc_cache>(command.config));
}

}  // namespace flyt::server::hooks
