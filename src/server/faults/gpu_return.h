// A GPU that processes share takes no new contexts for a moment after a fault, or while programs
// that have ended have all of its memory.
#pragma once

#include "base/clock.h"
#include "cuda/types.h"
#include "server/lease/usage_board.h"

namespace flyt::server {

// How long contexts are asked for again meanwhile.
inline constexpr Duration kGpuReturnMax = std::chrono::seconds(8);
inline constexpr Duration kGpuReturnPause = std::chrono::milliseconds(20);

// What MPS says while it has no server for new contexts.
inline bool is_gpu_away(CUresult result) {
  return result == CUDA_ERROR_MPS_SERVER_NOT_READY || result == CUDA_ERROR_MPS_RPC_FAILURE ||
         result == CUDA_ERROR_MPS_CONNECTION_FAILED;
}

// The last is what MPS says where clients have more connections than by default (seen on an H100).
inline bool is_gpu_full(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_MPS_MAX_CLIENTS_REACHED ||
         result == CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED;
}

// What `make` says in the end, which starts the driver or makes a context.
template <class Make>
CUresult once_gpu_is_back(Make make) {
  const Instant begun = system_clock().now();
  const Instant until = begun + kGpuReturnMax;
  // Asked before each attempt: what goes during one is there for the next.
  bool leaving = own_usage().others_leave(begun);
  CUresult result = make();
  while ((is_gpu_away(result) && system_clock().now() < until) ||
         (is_gpu_full(result) && leaving)) {
    system_clock().sleep_for(kGpuReturnPause);
    leaving = own_usage().others_leave(begun);
    result = make();
  }
  return result;
}

}  // namespace flyt::server
