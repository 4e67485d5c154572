// Queries about capture: nothing is ever captured yet.
#include "client/hooks_graph.h"

#include <utility>

#include "client/call.h"

namespace flyt::client::hooks {

// The mode matters only to capture, so each thread just keeps what it set.
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = std::exchange(thread_state().capture_mode, *mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

// The other results mean something only while capturing, and are left as they are.
CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t*) {
  return cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*) {
  return cuStreamIsCapturing(hStream, captureStatus_out);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t*, CUgraph*, const CUgraphNode**,
                                   const CUgraphEdgeData**, size_t*) {
  return cuStreamIsCapturing(hStream, captureStatus_out);
}

}  // namespace flyt::client::hooks
