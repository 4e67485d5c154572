// Executable graphs.
#include "client/call.h"
#include "client/graphs/graphs.h"
#include "client/hooks_graph.h"
#include "client/memory_state.h"
#include "commands/graph.h"

namespace flyt::client::hooks {
namespace {

CUgraphNode node_at(std::uint64_t value) { return static_cast<CUgraphNode>(pointer_at(value)); }

CUresult instantiate(CUgraphExec* out, CUgraph graph, std::uint64_t flags, CUstream stream,
                     commands::InstantiateGraph::Reply& reply) {
  reply.outcome = CUDA_GRAPH_INSTANTIATE_ERROR;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr std::uint64_t kNotBoth =
      CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  if ((flags & kNotBoth) == CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
    return refused("CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH",
                   "kernels know no executable graphs of the server's");
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  Graphs& graphs = session().graphs();
  const auto made = graphs.execs.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = ask(
      commands::InstantiateGraph{
          .exec = made.handle, .graph = address_of(graph), .flags = flags, .stream = stream},
      reply);
  if (result != CUDA_SUCCESS) {
    graphs.execs.discard(made.handle);
    return result;
  }
  made.state->has_memory = reply.has_memory;
  graphs.lend_to_exec(*made.state, graphs.lent_to(address_of(graph)));
  graphs.execs.publish(made.handle);
  *out = static_cast<CUgraphExec>(pointer_at(made.handle));
  return CUDA_SUCCESS;
}

ExecState* find(CUgraphExec exec) { return session().graphs().execs.find(address_of(exec)); }

}  // namespace

// Uploading needs a stream, which only cuGraphInstantiateWithParams names.
CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  commands::InstantiateGraph::Reply reply;
  return instantiate(phGraphExec, hGraph, flags, nullptr, reply);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUstream stream = instantiateParams->hUploadStream;
  if ((instantiateParams->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    if (const CUresult no = check(stream); no != CUDA_SUCCESS) return no;
  }
  commands::InstantiateGraph::Reply reply;
  const CUresult result = instantiate(phGraphExec, hGraph, instantiateParams->flags, stream, reply);
  instantiateParams->hErrNode_out = node_at(reply.node);
  instantiateParams->result_out = static_cast<CUgraphInstantiateResult>(reply.outcome);
  return result;
}

CUresult cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                               char* logBuffer, size_t bufferSize) {
  commands::InstantiateGraph::Reply reply;
  const CUresult result = instantiate(phGraphExec, hGraph, 0, nullptr, reply);
  if (phErrorNode != nullptr) *phErrorNode = node_at(reply.node);
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = '\0';
  return result;
}

CUresult cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                            char* logBuffer, size_t bufferSize) {
  return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  Graphs& graphs = session().graphs();
  ExecState* state = find(hGraphExec);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const LentMemories lent = graphs.take_back(*state);
  if (!graphs.execs.drop(address_of(hGraphExec))) return CUDA_ERROR_INVALID_VALUE;
  graphs.note_ended(address_of(hGraphExec));
  return post(commands::DestroyGraphExec{.exec = address_of(hGraphExec)});
}

// The first launch, and those that allocate, wait for the driver's verdict; every other is one
// posted command.
CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  if (const CUresult no = check(hStream); no != CUDA_SUCCESS) return no;
  ExecState* state = find(hGraph);
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  give_work(hStream);
  const StreamState* stream = session().memory().streams.find(address_of(hStream));
  const ContextState* home = stream != nullptr ? stream->context : &context();
  if (!state->has_memory && state->accepted.load(std::memory_order_relaxed) == home) {
    return post(commands::LaunchGraph{.exec = address_of(hGraph), .stream = hStream});
  }
  const CUresult verdict =
      ask(commands::TryLaunchGraph{.exec = address_of(hGraph), .stream = hStream});
  if (verdict == CUDA_SUCCESS) state->accepted.store(home, std::memory_order_relaxed);
  return verdict;
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
  if (const CUresult no = check(hStream); no != CUDA_SUCCESS) return no;
  if (find(hGraph) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return post(commands::UploadGraph{.exec = address_of(hGraph), .stream = hStream});
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::GraphExecFlags::Reply reply;
  const CUresult result = ask(commands::GraphExecFlags{.exec = address_of(hGraphExec)}, reply);
  if (result == CUDA_SUCCESS) *flags = reply.flags;
  return result;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  ExecState* state = find(hGraphExec);
  if (resultInfo != nullptr) *resultInfo = {};
  if (state == nullptr || hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graphs& graphs = session().graphs();
  commands::UpdateGraphExec::Reply reply;
  const CUresult result =
      ask(commands::UpdateGraphExec{.exec = address_of(hGraphExec), .graph = address_of(hGraph)},
          reply);
  if (resultInfo != nullptr) {
    resultInfo->result = static_cast<CUgraphExecUpdateResult>(reply.outcome);
    resultInfo->errorNode = node_at(reply.node);
    resultInfo->errorFromNode = node_at(reply.from);
  }
  if (result == CUDA_SUCCESS) graphs.lend_to_exec(*state, graphs.lent_to(address_of(hGraph)));
  return result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                           CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  const CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  return ask(commands::EnableExecNode{
      .exec = address_of(hGraphExec), .node = address_of(hNode), .enabled = isEnabled});
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  if (isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::ExecNodeEnabled::Reply reply;
  const CUresult result = ask(
      commands::ExecNodeEnabled{.exec = address_of(hGraphExec), .node = address_of(hNode)}, reply);
  if (result == CUDA_SUCCESS) *isEnabled = reply.enabled;
  return result;
}

}  // namespace flyt::client::hooks
