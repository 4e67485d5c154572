// Executable graphs: instantiating, launching and destroying them.
#include "softgpu/abi/graph_enter.h"
#include "softgpu/capture.h"

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// What instantiation says beside its result.
struct Verdict {
  std::uint64_t node = 0;
  CUgraphInstantiateResult result = CUDA_GRAPH_INSTANTIATE_ERROR;
};

CUresult instantiate(CUgraphExec* out, CUgraph hGraph, std::uint64_t flags, Verdict& verdict) {
  const CUresult no = with_unsafe([](auto&&...) { return CUDA_SUCCESS; });
  if (no != CUDA_SUCCESS) return no;
  return with_graph(hGraph, [&](Driver& driver, const std::shared_ptr<Graph>& graph) -> CUresult {
    if (out == nullptr || (flags & ~kInstantiateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    // The two exclude each other, as CUDA says.
    constexpr std::uint64_t kNotBoth =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    if ((flags & kNotBoth) == kNotBoth) return CUDA_ERROR_INVALID_VALUE;
    // Kernels cannot launch graphs.
    if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (graph->captures != 0 || graph->body()) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Context> current;
    static_cast<void>(living_context(driver, current));
    const std::uint64_t home = current == nullptr ? 0 : current->handle();
    std::shared_ptr<GraphExec> exec;
    const CUresult bad =
        GraphExec::make(*graph, flags, home, &exec, &verdict.node, &verdict.result);
    if (bad != CUDA_SUCCESS) return bad;
    *out = to_handle<CUgraphExec>(driver.graphs().execs().add(std::move(exec)));
    return CUDA_SUCCESS;
  });
}

CUresult prepare(CUgraphExec hGraphExec) {
  return with_exec(hGraphExec,
                   [](Driver&, const std::shared_ptr<GraphExec>& exec) { return exec->prepare(); });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  Verdict verdict;
  // Uploading needs a stream, which only cuGraphInstantiateWithParams names.
  constexpr std::uint64_t kUpload = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  if ((flags & kUpload) != 0) {
    return with_context([](Driver&, Context&) { return CUDA_ERROR_INVALID_VALUE; });
  }
  return instantiate(phGraphExec, hGraph, flags, verdict);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Verdict verdict;
  CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags, verdict);
  instantiateParams->hErrNode_out = to_handle<CUgraphNode>(verdict.node);
  instantiateParams->result_out = verdict.result;
  if (result != CUDA_SUCCESS) return result;
  if ((instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) return result;
  result = cuGraphUpload(*phGraphExec, instantiateParams->hUploadStream);
  if (result != CUDA_SUCCESS) {
    instantiateParams->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
    cuGraphExecDestroy(*phGraphExec);
  }
  return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  Verdict verdict;
  const CUresult result = instantiate(phGraphExec, hGraph, 0, verdict);
  if (phErrorNode != nullptr) *phErrorNode = to_handle<CUgraphNode>(verdict.node);
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return result;
}

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  return with_exec(hGraphExec, [&](Driver&, const std::shared_ptr<GraphExec>& exec) -> CUresult {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  return with_graphs([&](Driver& driver) -> CUresult {
    // What was launched goes on.
    const auto exec = driver.graphs().execs().take(from_handle(hGraphExec));
    return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  return with_work(hStream, [&](Driver&, Context&, const StreamOfCall& stream) -> CUresult {
    if (stream.stream->capturing()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return prepare(hGraph);
  });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return with_work(
      hStream, [&](Driver& driver, const Context& context, const StreamOfCall& stream) -> CUresult {
        if (stream.stream->capturing()) {
          const CUresult bad = check_wait(driver, context, *stream.stream);
          if (bad != CUDA_SUCCESS) return bad;
        }
        stream.stream->await_room();
        return with_exec(hGraph, [&](Driver&, const std::shared_ptr<GraphExec>& exec) {
          return exec->launch(driver, stream.context, *stream.stream);
        });
      });
}

}  // extern "C"
