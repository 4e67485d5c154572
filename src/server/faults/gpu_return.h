// A GPU that processes share takes no new contexts for a moment after a fault.
#pragma once

#include "base/clock.h"
#include "cuda/types.h"

namespace flyt::server {

// How long contexts are asked for again meanwhile.
inline constexpr Duration kGpuReturnMax = std::chrono::seconds(8);
inline constexpr Duration kGpuReturnPause = std::chrono::milliseconds(20);

// What MPS says while it has no server for new contexts.
inline bool is_gpu_away(CUresult result) {
  return result == CUDA_ERROR_MPS_SERVER_NOT_READY || result == CUDA_ERROR_MPS_RPC_FAILURE ||
         result == CUDA_ERROR_MPS_CONNECTION_FAILED;
}

// What `make` says in the end, which starts the driver or makes a context.
template <class Make>
CUresult once_gpu_is_back(Make make) {
  const Instant until = system_clock().now() + kGpuReturnMax;
  CUresult result = make();
  while (is_gpu_away(result) && system_clock().now() < until) {
    system_clock().sleep_for(kGpuReturnPause);
    result = make();
  }
  return result;
}

}  // namespace flyt::server
