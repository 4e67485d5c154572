// What is true of every GPU here: nothing but the driver gets at its memory from outside.
#pragma once

#include "cuda/types.h"

namespace flyt::cuda {

// As cuDeviceGetHostAtomicCapabilities over a link that does no atomics.
inline CUresult no_atomics(unsigned int* capabilities, const CUatomicOperation* operations,
                           unsigned int count) {
  if (capabilities == nullptr || operations == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < count; ++i) {
    const auto operation = static_cast<unsigned int>(operations[i]);
    if (operation >= CU_ATOMIC_OPERATION_MAX) return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned int i = 0; i < count; ++i) capabilities[i] = 0;
  return CUDA_SUCCESS;
}

// As cuFlushGPUDirectRDMAWrites where no such write is ever under way.
inline CUresult flush_nothing(CUflushGPUDirectRDMAWritesTarget target,
                              CUflushGPUDirectRDMAWritesScope scope) {
  const bool known = target == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX &&
                     (scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER ||
                      scope == CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::cuda
