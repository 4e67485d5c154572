// The calls of before CUDA 3.2: their successors do the work.
#include "cuda/narrow.h"

#include "cuda/functions.h"

using flyt::cuda::narrowed;
using flyt::cuda::tell_narrow;
using flyt::cuda::with_wide;

extern "C" {

#include "cuda/narrow_calls.h"

CUresult cuTexRefGetAddress(CUdeviceptr_v1* pdptr, CUtexref hTexRef) {
  if (pdptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUdeviceptr wide = 0;
  const CUresult result = cuTexRefGetAddress_v2(&wide, hTexRef);
  return result == CUDA_SUCCESS ? tell_narrow(wide, pdptr) : result;
}

}  // extern "C"
