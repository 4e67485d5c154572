// Stream capture.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "client/call.h"
#include "client/graphs/captures.h"
#include "client/graphs/graphs.h"
#include "client/hooks_graph.h"
#include "commands/graph.h"

namespace flyt::client::hooks {
namespace {

bool good_mode(CUstreamCaptureMode mode) {
  return static_cast<unsigned>(mode) <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
               const CUgraphEdgeData* edges, std::size_t count, CUstreamCaptureMode mode) {
  if (const CUresult no = check(stream); no != CUDA_SUCCESS) return no;
  if (!good_mode(mode) || (count != 0 && nodes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (count > commands::BeginCapture::kNodesCountMax) {
    return refused("cuStreamBeginCaptureToGraph", "a capture begins after at most 8192 nodes");
  }
  std::vector<std::uint64_t> names(count);
  for (std::size_t i = 0; i < count; ++i) names[i] = address_of(nodes[i]);
  const Bytes data = edges != nullptr ? bytes_at(edges, count * sizeof *edges) : Bytes();
  const CUresult result = ask(commands::BeginCapture{.stream = stream,
                                                     .graph = address_of(graph),
                                                     .nodes = wire::List<std::uint64_t>(names),
                                                     .edges = data});
  if (result == CUDA_SUCCESS) session().captures().begun(stream, mode, address_of(graph));
  return result;
}

struct InfoOut {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  std::size_t* count = nullptr;
};

// The frontier, kept until the stream is asked again.
CUresult give_frontier(CUstream stream, const commands::CaptureInfo::Reply& reply,
                       const InfoOut& out) {
  auto told = std::make_unique<ToldFrontier>();
  for (std::size_t i = 0; i < reply.nodes.size(); ++i) {
    told->nodes.push_back(static_cast<CUgraphNode>(pointer_at(reply.nodes[i])));
  }
  told->edges.resize(told->nodes.size());
  if (reply.edges.size() == told->edges.size() * sizeof(CUgraphEdgeData) && !reply.edges.empty()) {
    std::memcpy(told->edges.data(), reply.edges.data(), reply.edges.size());
  }
  const bool lossy =
      out.nodes != nullptr && out.edges == nullptr &&
      std::any_of(told->edges.begin(), told->edges.end(), [](const CUgraphEdgeData& edge) {
        return edge.type != 0 || edge.from_port != 0 || edge.to_port != 0;
      });
  if (lossy) return CUDA_ERROR_LOSSY_QUERY;
  const ToldFrontier& kept = session().graphs().keep(stream, std::move(told));
  if (out.id != nullptr) *out.id = reply.id;
  if (out.graph != nullptr) *out.graph = static_cast<CUgraph>(pointer_at(reply.graph));
  if (out.nodes != nullptr) *out.nodes = kept.nodes.data();
  if (out.edges != nullptr) *out.edges = kept.edges.data();
  if (out.count != nullptr) *out.count = kept.nodes.size();
  return CUDA_SUCCESS;
}

// While nothing is captured the answer is known; what else is asked then means nothing, and is left
// as it is.
CUresult give_info(CUstream stream, const InfoOut& out) {
  if (const CUresult no = check(stream); no != CUDA_SUCCESS) return no;
  if (out.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out.status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!session().captures().any()) return CUDA_SUCCESS;
  session().captures().settle(stream);
  commands::CaptureInfo::Reply reply;
  rpc::Reply answer;
  const CUresult result = ask(commands::CaptureInfo{.stream = stream}, reply, answer);
  *out.status = static_cast<CUstreamCaptureStatus>(reply.status);
  if (result != CUDA_SUCCESS || *out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return result;
  return give_frontier(stream, reply, out);
}

CUresult update(CUstream stream, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                std::size_t count, unsigned int flags) {
  if (const CUresult no = check(stream); no != CUDA_SUCCESS) return no;
  if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (count > commands::CaptureDependencies::kNodesCountMax) {
    return refused("cuStreamUpdateCaptureDependencies", "at most 8192 nodes are told at once");
  }
  std::vector<std::uint64_t> names(count);
  for (std::size_t i = 0; i < count; ++i) names[i] = address_of(nodes[i]);
  const Bytes data = edges != nullptr ? bytes_at(edges, count * sizeof *edges) : Bytes();
  return ask(commands::CaptureDependencies{
      .stream = stream, .nodes = wire::List<std::uint64_t>(names), .edges = data, .flags = flags});
}

// These leave a capture as it is.
bool goes_on(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
         result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || result == CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (mode == nullptr || !good_mode(*mode)) return CUDA_ERROR_INVALID_VALUE;
  *mode = std::exchange(thread_state().capture_mode, *mode);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return begin(hStream, nullptr, nullptr, nullptr, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return begin(hStream, hGraph, dependencies, dependencyData, numDependencies, mode);
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  if (const CUresult no = check(hStream); no != CUDA_SUCCESS) return no;
  Captures& captures = session().captures();
  const CUresult wrong = captures.before_end(hStream);
  commands::EndCapture::Reply reply;
  const CUresult result = ask(commands::EndCapture{.stream = hStream}, reply);
  if (goes_on(result)) return result;
  const std::uint64_t given = captures.ended(hStream);
  const bool told = result == CUDA_SUCCESS && wrong == CUDA_SUCCESS && phGraph != nullptr;
  const auto graph = static_cast<CUgraph>(pointer_at(reply.graph));
  if (phGraph != nullptr) *phGraph = told ? graph : nullptr;
  if (result == CUDA_SUCCESS && !told && given == 0) {
    // Nobody can name it.
    if (const CUresult lost = cuGraphDestroy(graph); lost != CUDA_SUCCESS) return lost;
  }
  return wrong != CUDA_SUCCESS ? wrong : result;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return give_info(hStream, {.status = captureStatus});
}

CUresult cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                cuuint64_t* id_out) {
  return give_info(hStream, {.status = captureStatus_out, .id = id_out});
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

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData,
                                              size_t numDependencies, unsigned int flags) {
  return update(hStream, dependencies, dependencyData, numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  return update(hStream, dependencies, nullptr, numDependencies, flags);
}

}  // namespace flyt::client::hooks
