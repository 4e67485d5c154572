// Error text: what cuGetErrorName and cuGetErrorString answer.
#pragma once

#include "cuda/types.h"

namespace flyt::cuda {

// "CUDA_ERROR_INVALID_VALUE"; null for a number that is no result. Lives for ever.
const char* error_name(CUresult result);
// "invalid argument"; null for a number that is no result. Lives for ever.
const char* error_text(CUresult result);

}  // namespace flyt::cuda
