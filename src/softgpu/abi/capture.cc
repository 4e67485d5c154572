// Stream capture.
#include "softgpu/capture.h"
#include "softgpu/abi/graph_enter.h"

namespace flyt::softgpu {
namespace {

// The same without an own context's error in the way: ending and asking always works.
template <class Body>
CUresult with_capture_stream(CUstream handle, Body body) {
  return with_stream(handle,
                     [&](Driver& driver, Context& context, const StreamOfCall& stream) -> CUresult {
                       const Lock lock(driver.graphs().mutex());
                       return body(driver, context, stream.stream);
                     });
}

bool good_mode(CUstreamCaptureMode mode) {
  return static_cast<unsigned>(mode) <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Legacy streams have no status while a blocking stream captures.
CUresult status_of(Driver& driver, const Context& context, const Stream& stream,
                   CUstreamCaptureStatus* status) {
  if (stream.capture() != nullptr) {
    *status = stream.capture()->capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                               : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.legacy() && legacy_is_captured(driver, stream) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                               : CUDA_SUCCESS;
}

struct CaptureInfo {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

CUresult give_info(CUstream handle, const CaptureInfo& out) {
  return with_capture_stream(
      handle,
      [&](Driver& driver, const Context& context,
          const std::shared_ptr<Stream>& stream) -> CUresult {
        if (out.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const CUresult bad = status_of(driver, context, *stream, out.status);
        if (bad != CUDA_SUCCESS || *out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return bad;
        StreamCapture& part = *stream->capture();
        part.told_nodes.clear();
        part.told_edges.clear();
        for (const CapturePoint& point : part.frontier) {
          if (driver.graphs().nodes().find(point.node) == nullptr) continue;
          if (out.nodes != nullptr && out.edges == nullptr && !plain(point.data)) {
            return CUDA_ERROR_LOSSY_QUERY;
          }
          part.told_nodes.push_back(to_handle<CUgraphNode>(point.node));
          part.told_edges.push_back(point.data);
        }
        if (out.id != nullptr) *out.id = part.capture->id;
        if (out.graph != nullptr) *out.graph = to_handle<CUgraph>(part.capture->graph->handle());
        if (out.nodes != nullptr) *out.nodes = part.told_nodes.data();
        if (out.edges != nullptr) *out.edges = part.told_edges.data();
        if (out.count != nullptr) *out.count = part.told_nodes.size();
        return CUDA_SUCCESS;
      });
}

Frontier points_of(const std::vector<Edge>& edges) {
  Frontier points;
  for (const Edge& edge : edges) points.push_back({edge.node->handle, edge.data});
  return points;
}

CUresult update(CUstream handle, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                size_t count, unsigned flags) {
  return with_capture_stream(
      handle,
      [&](Driver& driver, const Context&, const std::shared_ptr<Stream>& stream) -> CUresult {
        if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
        StreamCapture* part = stream->capture();
        if (part == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
        if (!part->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        std::vector<Edge> edges;
        const CUresult bad = read_edges(driver, *part->capture->graph, nodes, data, count, edges);
        if (bad != CUDA_SUCCESS) return bad;
        if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) part->frontier.clear();
        merge(part->frontier, points_of(edges));
        return CUDA_SUCCESS;
      });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return with_capture_stream(hStream,
                             [&](Driver& driver, const Context& context,
                                 const std::shared_ptr<Stream>& stream) -> CUresult {
                               if (!good_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
                               return begin_capture(driver, context, stream, mode, nullptr, {});
                             });
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  return with_capture_stream(
      hStream,
      [&](Driver& driver, const Context& context,
          const std::shared_ptr<Stream>& stream) -> CUresult {
        const auto graph = driver.graphs().graphs().find(from_handle(hGraph));
        if (graph == nullptr || !good_mode(mode)) return CUDA_ERROR_INVALID_VALUE;
        std::vector<Edge> edges;
        const CUresult bad =
            read_edges(driver, *graph, dependencies, dependencyData, numDependencies, edges);
        if (bad != CUDA_SUCCESS) return bad;
        return begin_capture(driver, context, stream, mode, graph, points_of(edges));
      });
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  return with_stream(hStream, [&](Driver& driver, Context&, const StreamOfCall& stream) {
    return end_capture(driver, *stream.stream, phGraph);
  });
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return with_capture_stream(hStream,
                             [&](Driver& driver, const Context& context,
                                 const std::shared_ptr<Stream>& stream) -> CUresult {
                               if (captureStatus == nullptr) return CUDA_ERROR_INVALID_VALUE;
                               return status_of(driver, context, *stream, captureStatus);
                             });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  return give_info(hStream, {captureStatus_out, id_out, graph_out, dependencies_out, nullptr,
                             numDependencies_out});
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  return give_info(hStream, {captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
                             numDependencies_out});
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return give_info(hStream, {captureStatus_out, id_out, nullptr, nullptr, nullptr, nullptr});
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData,
                                              size_t numDependencies, unsigned int flags) {
  return update(hStream, dependencies, dependencyData, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return update(hStream, dependencies, nullptr, numDependencies, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return with_driver([&](Driver&) -> CUresult {
    if (mode == nullptr || !good_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode& own = thread_capture_mode();
    std::swap(own, *mode);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
