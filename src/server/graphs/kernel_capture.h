// KernelCapture: kernels added to graphs by capturing a launch, which puts a function on the
// multiprocessors of the present context; to add it as a node leaves it to those of its module's.
#pragma once

#include "cuda/types.h"
#include "driver/table.h"

namespace flyt::server {

// One thread's, with the same context current throughout.
class KernelCapture {
 public:
  explicit KernelCapture(const driver::Table& driver) : driver_(driver) {}
  ~KernelCapture() {
    if (stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  }
  KernelCapture(const KernelCapture&) = delete;
  KernelCapture& operator=(const KernelCapture&) = delete;

  // A node that depends on none. CUDA_ERROR_NOT_SUPPORTED from drivers that cannot capture so.
  CUresult add(CUgraph to, const CUDA_KERNEL_NODE_PARAMS_v2& kernel, CUgraphNode& made);

 private:
  const driver::Table& driver_;
  CUstream stream_ = nullptr;
};

}  // namespace flyt::server
