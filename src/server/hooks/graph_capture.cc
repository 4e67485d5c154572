// Stream capture. Captures are begun in relaxed mode: which calls of which threads a mode forbids
// is for the client to say, whose threads they are.
#include <algorithm>
#include <cstring>
#include <vector>

#include "server/graphs/graph_edges.h"
#include "server/graphs/graph_memory.h"
#include "server/graphs/graph_node_params.h"
#include "server/graphs/graphs.h"
#include "server/hooks_graph.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

struct Frontier {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
};

CUresult ask_driver(const driver::Table& driver, CUstream stream, Frontier& out) {
  if (driver.cuStreamGetCaptureInfo_v3 != nullptr) {
    return driver.cuStreamGetCaptureInfo_v3(stream, &out.status, &out.id, &out.graph, &out.nodes,
                                            &out.edges, &out.count);
  }
  return driver.cuStreamGetCaptureInfo_v2(stream, &out.status, &out.id, &out.graph, &out.nodes,
                                          &out.count);
}

}  // namespace

CUresult begin_capture(Request& request, const commands::BeginCapture& command) {
  Session& session = request.session();
  Graphs& graphs = session.graphs();
  const driver::Table& driver = request.driver();
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<CUgraphNode> nodes;
  GraphEdges edges;
  const CUgraph graph = graphs.graph(command.graph);
  if ((command.graph != 0 && graph == nullptr) || !graphs.nodes(command.nodes, nodes) ||
      !edges.take(command.edges, nodes.size())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (session.memory().deliveries.issues_into(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  if (graph != nullptr && graphs.in_update(command.graph)) return CUDA_ERROR_ILLEGAL_STATE;
  if (graph != nullptr && !graphs.costs().admit_edges(command.graph, nodes.size())) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  // No events of our own may come to stand in the graph.
  session.memory().holds.seal();
  const Lock lock(graphs.joining());
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (graph == nullptr) {
    result = driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  } else if (driver.cuStreamBeginCaptureToGraph != nullptr) {
    result = driver.cuStreamBeginCaptureToGraph(stream, graph, nodes.data(), edges.data(),
                                                nodes.size(), CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  if (result == CUDA_SUCCESS) graphs.capture_begun(stream, command.graph);
  if (result == CUDA_SUCCESS && graph != nullptr) graphs.note_part(command.graph);
  if (result == CUDA_SUCCESS && graph != nullptr) graphs.records().changed(command.graph);
  return result;
}

CUresult end_capture(Request& request, const commands::EndCapture& command,
                     commands::EndCapture::Reply& reply) {
  Graphs& graphs = request.session().graphs();
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUgraph native = nullptr;
  const CUresult result = request.driver().cuStreamEndCapture(stream, &native);
  graphs.look_after_capture(stream, result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) reply.graph = graphs.name_graph(native, 0);
  graphs.costs().capture_ended(reply.graph, !graphs.capturing());
  if (result != CUDA_SUCCESS) return result;
  if (reply.graph == 0) {
    // Nobody could name it, and nobody would count it.
    request.driver().cuGraphDestroy(native);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto owner = std::dynamic_pointer_cast<StreamOwner>(request.owner_of(command.stream));
  graphs.records().changed(reply.graph, owner != nullptr ? owner->context() : request.context());
  return CUDA_SUCCESS;
}

void capture_info(Request request, const commands::CaptureInfo& command) {
  Graphs& graphs = request.session().graphs();
  commands::CaptureInfo::Reply reply;
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return request.reply(CUDA_ERROR_INVALID_HANDLE, reply);
  Frontier frontier;
  CUresult result = ask_driver(request.driver(), stream, frontier);
  reply.status = static_cast<std::uint32_t>(frontier.status);
  std::vector<std::uint64_t> names;
  if (result == CUDA_SUCCESS && frontier.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
    reply.id = frontier.id;
    reply.graph = graphs.name_graph(frontier.graph, 0);
    if (frontier.count > commands::CaptureInfo::Reply::kNodesCountMax)
      result = CUDA_ERROR_NOT_SUPPORTED;
    for (std::size_t i = 0; i < frontier.count && result == CUDA_SUCCESS; ++i) {
      names.push_back(graphs.name_node(frontier.nodes[i], reply.graph));
      if (names.back() == 0) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS && frontier.edges != nullptr) {
      reply.edges = bytes_at(frontier.edges, frontier.count * sizeof(CUgraphEdgeData));
    }
  }
  reply.nodes = wire::List<std::uint64_t>(names);
  request.reply(result, reply);
}

CUresult capture_dependencies(Request& request, const commands::CaptureDependencies& command) {
  const driver::Table& driver = request.driver();
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<CUgraphNode> nodes;
  GraphEdges edges;
  if (!request.session().graphs().nodes(command.nodes, nodes) ||
      !edges.take(command.edges, nodes.size())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The next node has an edge from each.
  Graphs& graphs = request.session().graphs();
  const std::uint64_t into = graphs.capturing(stream) ? graphs.captured_graph(stream) : 0;
  if (into != 0 && !graphs.costs().admit_edges(into, nodes.size())) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (driver.cuStreamUpdateCaptureDependencies_v2 != nullptr) {
    return driver.cuStreamUpdateCaptureDependencies_v2(stream, nodes.data(), edges.data(),
                                                       nodes.size(), command.flags);
  }
  if (edges.data() != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return driver.cuStreamUpdateCaptureDependencies(stream, nodes.data(), nodes.size(),
                                                  command.flags);
}

CUresult capture_copy(Request& request, const commands::CaptureCopy& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_MEMCPY3D copy{};
  if (command.parameters.size() != sizeof copy) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(static_cast<void*>(&copy), command.parameters.data(), sizeof copy);
  const CUresult bad = admit_copy(request, copy);
  if (request.session().graphs().capturing(stream)) request.session().graphs().note_captured();
  return bad == CUDA_SUCCESS ? request.driver().cuMemcpy3DAsync_v2(&copy, stream) : bad;
}

CUresult capture_host_call(Request& request, const commands::CaptureHostCall& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (command.kind > static_cast<std::uint32_t>(HostCalls::Kind::kCallback)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A stream that runs it instead runs it once.
  if (!request.session().graphs().capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  request.session().graphs().note_captured();
  void* entry = request.session().memory().host_calls.graph_function(command.function);
  if (entry == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (command.kind == static_cast<std::uint32_t>(HostCalls::Kind::kFunction)) {
    return request.driver().cuLaunchHostFunc(stream, &HostCalls::run_graph_function, entry);
  }
  return request.driver().cuStreamAddCallback(stream, &HostCalls::run_graph_callback, entry, 0);
}

CUresult capture_allocation(Request& request, const commands::CaptureAllocation& command,
                            commands::CaptureAllocation::Reply& reply) {
  const driver::Table& driver = request.driver();
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  // Outside of captures pools are ours.
  if (!request.session().graphs().capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  request.session().graphs().note_captured();
  CUdevice device = 0;
  static_cast<void>(driver.cuCtxGetDevice(&device));
  UsedMemory charge;
  CUresult result = request.session().graph_memory().reserve(device, command.bytes, charge);
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr address = 0;
  result = driver.cuMemAllocAsync(&address, command.bytes, stream);
  if (result != CUDA_SUCCESS) return result;
  Frontier frontier;
  static_cast<void>(ask_driver(driver, stream, frontier));
  const std::uint64_t graph = request.session().graphs().name_graph(frontier.graph, 0);
  request.session().graph_memory().add(address, command.bytes, graph, std::move(charge));
  reply.address = address;
  reply.device = device;
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
