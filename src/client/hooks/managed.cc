// Managed memory: there is none yet, so nothing can be attached to a stream.
#include "client/hooks_managed.h"

#include "client/call.h"

namespace flyt::client::hooks {

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr, size_t, unsigned int) {
  const CUresult result = check(hStream);
  return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}

}  // namespace flyt::client::hooks
