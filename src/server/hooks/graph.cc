// Graphs as wholes: making, cloning, listing and drawing them.
#include "server/hooks_graph.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/fd.h"
#include "server/graphs/graph_edges.h"
#include "server/graphs/graph_memory.h"
#include "server/graphs/graphs.h"
#include "server/graphs/user_object.h"
#include "server/session.h"
#include "wire/graphs.h"

namespace flyt::server::hooks {
namespace {

using wire::GraphList;

// What the driver tells of a graph; all of these may be longer than what travels at once.
struct Listed {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphNode> others;
  std::vector<CUgraphEdgeData> edges;

  void resize(std::size_t count, GraphList what) {
    nodes.resize(count);
    if (what == GraphList::kEdges) others.resize(count);
    if (what != GraphList::kNodes && what != GraphList::kRoots) edges.resize(count);
  }
};

// One call of the driver; null pointers for the number alone. Drivers before 12.3 know no data.
CUresult ask_driver(const driver::Table& driver, CUgraph graph, CUgraphNode node, GraphList what,
                    Listed* out, std::size_t* count) {
  CUgraphNode* nodes = out != nullptr ? out->nodes.data() : nullptr;
  CUgraphEdgeData* edges = out != nullptr ? out->edges.data() : nullptr;
  switch (what) {
    case GraphList::kNodes:
      return driver.cuGraphGetNodes(graph, nodes, count);
    case GraphList::kRoots:
      return driver.cuGraphGetRootNodes(graph, nodes, count);
    case GraphList::kEdges: {
      CUgraphNode* others = out != nullptr ? out->others.data() : nullptr;
      return driver.cuGraphGetEdges_v2 != nullptr
                 ? driver.cuGraphGetEdges_v2(graph, nodes, others, edges, count)
                 : driver.cuGraphGetEdges(graph, nodes, others, count);
    }
    case GraphList::kDependencies:
      return driver.cuGraphNodeGetDependencies_v2 != nullptr
                 ? driver.cuGraphNodeGetDependencies_v2(node, nodes, edges, count)
                 : driver.cuGraphNodeGetDependencies(node, nodes, count);
    case GraphList::kDependents:
      return driver.cuGraphNodeGetDependentNodes_v2 != nullptr
                 ? driver.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count)
                 : driver.cuGraphNodeGetDependentNodes(node, nodes, count);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// False when there are no numbers left.
bool name_all(Graphs& graphs, std::uint64_t graph, std::span<const CUgraphNode> natives,
              std::vector<std::uint64_t>& names) {
  for (const CUgraphNode native : natives) {
    names.push_back(graphs.name_node(native, graph));
    if (names.back() == 0) return false;
  }
  return true;
}

}  // namespace

CUresult create_graph(Request& request, const commands::CreateGraph& command,
                      commands::CreateGraph::Reply& reply) {
  CUgraph native = nullptr;
  const CUresult result = request.driver().cuGraphCreate(&native, command.flags);
  if (result != CUDA_SUCCESS) return result;
  Graphs& graphs = request.session().graphs();
  reply.graph = graphs.name_graph(native, 0);
  if (reply.graph != 0) {
    graphs.records().changed(reply.graph, request.context());
    return CUDA_SUCCESS;
  }
  request.driver().cuGraphDestroy(native);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult destroy_graph(Request& request, const commands::DestroyGraph& command) {
  Graphs& graphs = request.session().graphs();
  const CUgraph native = graphs.graph(command.graph);
  if (native == nullptr) return request.session().ended_before(CUDA_ERROR_INVALID_VALUE);
  // Drivers do not expect that: it is the node's or the capture's.
  if (graphs.around(command.graph) != 0 || graphs.captured_into(command.graph)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto cost = graphs.working() ? graphs.cost_of(command.graph) : GraphCosts::Cost{};
  const CUresult result = graphs.end(
      cost, [&driver = request.driver(), native] { return driver.cuGraphDestroy(native); });
  if (result != CUDA_SUCCESS) return result;
  graphs.forget_graph(command.graph);
  request.session().graph_memory().sweep();
  return result;
}

CUresult clone_graph(Request& request, const commands::CloneGraph& command,
                     commands::CloneGraph::Reply& reply) {
  Graphs& graphs = request.session().graphs();
  const CUgraph original = graphs.graph(command.graph);
  if (original == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto cost = graphs.costs().of_copy(original);
  if (!cost) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraph native = nullptr;
  const CUresult result = request.driver().cuGraphClone(&native, original);
  if (result != CUDA_SUCCESS) return result;
  reply.clone = graphs.name_graph(native, 0);
  if (reply.clone != 0) graphs.costs().note_graph(reply.clone, *cost);
  graphs.note_parts_of(reply.clone, command.graph);
  if (reply.clone != 0) {
    for (const Handles::Entry& object :
         request.session().handles().all(wire::HandleKind::kUserObject)) {
      static_cast<UserObject&>(*object.attachment).copy(reply.clone, command.graph);
    }
    graphs.records().cloned(reply.clone, command.graph);
    return CUDA_SUCCESS;
  }
  request.driver().cuGraphDestroy(native);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult find_in_clone(Request& request, const commands::FindInClone& command,
                       commands::FindInClone::Reply& reply) {
  Graphs& graphs = request.session().graphs();
  const CUgraph clone = graphs.graph(command.clone);
  const CUgraphNode node = graphs.node(command.node);
  if (clone == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNode twin = nullptr;
  const CUresult result = request.driver().cuGraphNodeFindInClone(&twin, node, clone);
  if (result != CUDA_SUCCESS) return result;
  reply.twin = graphs.name_node(twin, command.clone);
  return reply.twin != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void list_graph(Request request, const commands::ListGraph& command) {
  Graphs& graphs = request.session().graphs();
  commands::ListGraph::Reply reply;
  if (command.what > wire::kGraphListMax) return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  const auto what = static_cast<GraphList>(command.what);
  const bool of_node = what == GraphList::kDependencies || what == GraphList::kDependents;
  const CUgraphNode node = of_node ? graphs.node(command.object) : nullptr;
  const std::uint64_t around = of_node ? graphs.graph_of(command.object) : command.object;
  const CUgraph graph = graphs.graph(around);
  if (graph == nullptr || (of_node && node == nullptr)) {
    return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  }
  std::size_t count = 0;
  CUresult result = ask_driver(request.driver(), graph, node, what, nullptr, &count);
  Listed listed;
  if (result == CUDA_SUCCESS && count != 0) {
    listed.resize(count, what);
    result = ask_driver(request.driver(), graph, node, what, &listed, &count);
  }
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  reply.total = count;
  const std::size_t first = std::min<std::uint64_t>(command.first, count);
  const std::size_t part = std::min<std::uint64_t>(wire::kGraphListPart, count - first);
  std::vector<std::uint64_t> nodes;
  std::vector<std::uint64_t> others;
  const bool named =
      name_all(graphs, around, std::span(listed.nodes).subspan(first, part), nodes) &&
      (listed.others.empty() ||
       name_all(graphs, around, std::span(listed.others).subspan(first, part), others));
  if (!named) return request.reply(CUDA_ERROR_OUT_OF_MEMORY, reply);
  reply.nodes = wire::List<std::uint64_t>(nodes);
  reply.others = wire::List<std::uint64_t>(others);
  if (!listed.edges.empty()) {
    reply.edges = bytes_at(listed.edges.data() + first, part * sizeof(CUgraphEdgeData));
  }
  request.reply(CUDA_SUCCESS, reply);
}

CUresult change_edges(Request& request, const commands::ChangeEdges& command) {
  Graphs& graphs = request.session().graphs();
  const driver::Table& driver = request.driver();
  const CUgraph graph = graphs.graph(command.graph);
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;
  GraphEdges edges;
  if (graph == nullptr || command.from.size() != command.to.size() ||
      !graphs.nodes(command.from, from) || !graphs.nodes(command.to, to) ||
      !edges.take(command.edges, from.size())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (graphs.in_update(command.graph)) return CUDA_ERROR_ILLEGAL_STATE;
  if (command.add != 0 && !graphs.costs().admit_edges(command.graph, from.size())) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (driver.cuGraphAddDependencies_v2 != nullptr) {
    const auto change =
        command.add != 0 ? driver.cuGraphAddDependencies_v2 : driver.cuGraphRemoveDependencies_v2;
    const CUresult result = change(graph, from.data(), to.data(), edges.data(), from.size());
    graphs.records().changed(command.graph);
    return result;
  }
  if (edges.data() != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto change =
      command.add != 0 ? driver.cuGraphAddDependencies : driver.cuGraphRemoveDependencies;
  const CUresult result = change(graph, from.data(), to.data(), from.size());
  graphs.records().changed(command.graph);
  return result;
}

// The driver writes files: it is given one that is nowhere but here.
void draw_graph(Request request, const commands::DrawGraph& command) {
  commands::DrawGraph::Reply reply;
  const CUgraph graph = request.session().graphs().graph(command.graph);
  if (graph == nullptr) return request.reply(CUDA_ERROR_INVALID_VALUE, reply);
  const Fd file(::memfd_create("flyt-graph", MFD_CLOEXEC));
  if (file.get() < 0) return request.reply(CUDA_ERROR_OUT_OF_MEMORY, reply);
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const CUresult result = request.driver().cuGraphDebugDotPrint(graph, path.c_str(), command.flags);
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  reply.total = end > 0 ? static_cast<std::uint64_t>(end) : 0;
  std::vector<std::byte> text(commands::DrawGraph::Reply::kTextBytesMax);
  const std::uint64_t offset = std::min(command.offset, reply.total);
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(offset));
  reply.text = Bytes(text).first(got > 0 ? static_cast<std::size_t>(got) : 0);
  request.reply(CUDA_SUCCESS, reply);
}

CUresult create_conditional(Request& request, const commands::CreateConditional& command,
                            commands::CreateConditional::Reply& reply) {
  Graphs& graphs = request.session().graphs();
  const CUgraph graph = graphs.graph(command.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUcontext context = command.context;
  if (context != nullptr && !request.resolve(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (request.driver().cuGraphConditionalHandleCreate == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (graphs.in_update(command.graph)) return CUDA_ERROR_ILLEGAL_STATE;
  if (!graphs.may_add_conditional()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUgraphConditionalHandle handle = 0;
  const CUresult result = request.driver().cuGraphConditionalHandleCreate(
      &handle, graph, context, command.value, command.flags);
  if (result != CUDA_SUCCESS) return result;
  graphs.add_conditional(handle, command.graph);
  graphs.records().note_conditional(command.graph);
  reply.handle = handle;
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
