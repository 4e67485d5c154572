// Names and texts of results.
#include "client/hooks_error.h"

#include "cuda/error_text.h"

namespace flyt::client::hooks {
namespace {

CUresult give(const char* text, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = text;
  return text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  return give(cuda::error_text(error), pStr);
}

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  return give(cuda::error_name(error), pStr);
}

}  // namespace flyt::client::hooks
