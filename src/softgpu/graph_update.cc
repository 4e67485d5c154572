// GraphExec::update: taking over the parameters of another graph of the same shape.
#include "softgpu/graph_exec.h"

namespace flyt::softgpu {

CUresult GraphExec::update(const Graph&, CUgraphExecUpdateResultInfo*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace flyt::softgpu
