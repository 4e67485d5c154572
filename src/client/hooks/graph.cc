// Graphs as wholes: making, cloning, listing and drawing them, and the edges between nodes.
#include "client/hooks_graph.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fd.h"
#include "client/call.h"
#include "client/graphs/graphs.h"
#include "commands/graph.h"
#include "wire/graphs.h"

namespace flyt::client::hooks {
namespace {

using wire::GraphList;

template <class Handle>
Handle handle_at(std::uint64_t value) {
  return static_cast<Handle>(pointer_at(value));
}

// Where a program wants a list; null pointers for what it does not want.
struct ListOut {
  CUgraphNode* nodes = nullptr;
  CUgraphNode* others = nullptr;
  CUgraphEdgeData* edges = nullptr;
  std::size_t* count = nullptr;
};

struct Lists {
  std::vector<std::uint64_t> nodes;
  std::vector<std::uint64_t> others;
  std::vector<CUgraphEdgeData> edges;
};

template <class T>
void append(std::vector<T>& to, Bytes bytes) {
  const std::size_t before = to.size();
  to.resize(before + bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(to.data() + before, bytes.data(), bytes.size());
}

// Whether a part continues what has come of a list.
bool continues(const commands::ListGraph::Reply& reply, GraphList what, const Lists& lists) {
  const std::size_t part = reply.nodes.size();
  const std::size_t others = what == GraphList::kEdges ? part : 0;
  return reply.total <= wire::kGraphListLengthMax && lists.nodes.size() + part <= reply.total &&
         reply.others.size() == others &&
         (reply.edges.empty() || reply.edges.size() == part * sizeof(CUgraphEdgeData));
}

CUresult fetch(std::uint64_t object, GraphList what, Lists& lists) {
  for (;;) {
    commands::ListGraph::Reply reply;
    rpc::Reply answer;
    const CUresult result = ask(commands::ListGraph{.object = object,
                                                    .what = static_cast<std::uint32_t>(what),
                                                    .first = lists.nodes.size()},
                                reply, answer);
    if (result != CUDA_SUCCESS) return result;
    // Others may have made the graph smaller since the first part came.
    if (reply.nodes.empty()) return CUDA_SUCCESS;
    if (!continues(reply, what, lists)) return distrust("list_graph: it is no list of a graph");
    append(lists.nodes, reply.nodes.bytes());
    append(lists.others, reply.others.bytes());
    append(lists.edges, reply.edges);
    if (lists.nodes.size() >= reply.total) return CUDA_SUCCESS;
  }
}

// As many as there is room for, and null behind the last one.
void give(const std::vector<std::uint64_t>& values, CUgraphNode* out, std::size_t room) {
  if (out == nullptr) return;
  for (std::size_t i = 0; i < room; ++i) {
    out[i] = i < values.size() ? handle_at<CUgraphNode>(values[i]) : nullptr;
  }
}

CUresult list(std::uint64_t object, GraphList what, const ListOut& out) {
  if (out.count == nullptr ||
      (what == GraphList::kEdges && (out.nodes == nullptr) != (out.others == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (out.nodes == nullptr && out.edges != nullptr) return CUDA_ERROR_INVALID_VALUE;
  Lists lists;
  const CUresult result = fetch(object, what, lists);
  if (result != CUDA_SUCCESS) return result;
  if (out.nodes == nullptr) {
    *out.count = lists.nodes.size();
    return CUDA_SUCCESS;
  }
  const std::size_t room = *out.count;
  if (room == 0) return CUDA_ERROR_INVALID_VALUE;
  lists.edges.resize(lists.nodes.size());
  const bool lossy = out.edges == nullptr &&
                     std::any_of(lists.edges.begin(), lists.edges.end(), [](const auto& edge) {
                       return edge.type != 0 || edge.from_port != 0 || edge.to_port != 0;
                     });
  if (lossy) return CUDA_ERROR_LOSSY_QUERY;
  give(lists.nodes, out.nodes, room);
  give(lists.others, out.others, room);
  for (std::size_t i = 0; out.edges != nullptr && i < room; ++i) {
    out.edges[i] = i < lists.edges.size() ? lists.edges[i] : CUgraphEdgeData{};
  }
  *out.count = std::min(room, lists.nodes.size());
  return CUDA_SUCCESS;
}

// Some edges at a time.
CUresult change(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                const CUgraphEdgeData* edges, std::size_t count, bool add) {
  if (count != 0 && (from == nullptr || to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  constexpr std::size_t kPart = commands::ChangeEdges::kFromCountMax;
  std::size_t first = 0;
  do {
    const std::size_t part = std::min(kPart, count - first);
    std::vector<std::uint64_t> begins(part);
    std::vector<std::uint64_t> ends(part);
    for (std::size_t i = 0; i < part; ++i) {
      begins[i] = address_of(from[first + i]);
      ends[i] = address_of(to[first + i]);
    }
    const Bytes data =
        edges != nullptr ? bytes_at(edges + first, part * sizeof(CUgraphEdgeData)) : Bytes();
    const CUresult result = ask(commands::ChangeEdges{.graph = address_of(graph),
                                                      .add = add ? 1U : 0U,
                                                      .from = wire::List<std::uint64_t>(begins),
                                                      .to = wire::List<std::uint64_t>(ends),
                                                      .edges = data});
    if (result != CUDA_SUCCESS) return result;
    first += part;
  } while (first < count);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  if (phGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::CreateGraph::Reply reply;
  const CUresult result = ask(commands::CreateGraph{.flags = flags}, reply);
  if (result == CUDA_SUCCESS) *phGraph = handle_at<CUgraph>(reply.graph);
  return result;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  const CUresult result = ask(commands::DestroyGraph{.graph = address_of(hGraph)});
  if (result == CUDA_SUCCESS) session().graphs().forget_graph(address_of(hGraph));
  return result;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Graphs& graphs = session().graphs();
  commands::CloneGraph::Reply reply;
  const CUresult result = ask(commands::CloneGraph{.graph = address_of(originalGraph)}, reply);
  if (result != CUDA_SUCCESS) return result;
  graphs.lend(reply.clone, graphs.lent_to(address_of(originalGraph)));
  *phGraphClone = handle_at<CUgraph>(reply.clone);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  if (phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::FindInClone::Reply reply;
  const CUresult result = ask(
      commands::FindInClone{.node = address_of(hOriginalNode), .clone = address_of(hClonedGraph)},
      reply);
  if (result == CUDA_SUCCESS) *phNode = handle_at<CUgraphNode>(reply.twin);
  return result;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  return list(address_of(hGraph), GraphList::kNodes, {.nodes = nodes, .count = numNodes});
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  return list(address_of(hGraph), GraphList::kRoots, {.nodes = rootNodes, .count = numRootNodes});
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  return list(address_of(hGraph), GraphList::kEdges,
              {.nodes = from, .others = to, .edges = edgeData, .count = numEdges});
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return cuGraphGetEdges_v2(hGraph, from, to, nullptr, numEdges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return list(address_of(hNode), GraphList::kDependencies,
              {.nodes = dependencies, .edges = edgeData, .count = numDependencies});
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  return cuGraphNodeGetDependencies_v2(hNode, dependencies, nullptr, numDependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return list(address_of(hNode), GraphList::kDependents,
              {.nodes = dependentNodes, .edges = edgeData, .count = numDependentNodes});
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, nullptr, numDependentNodes);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return change(hGraph, from, to, edgeData, numDependencies, true);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t numDependencies) {
  return change(hGraph, from, to, nullptr, numDependencies, true);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  return change(hGraph, from, to, edgeData, numDependencies, false);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t numDependencies) {
  return change(hGraph, from, to, nullptr, numDependencies, false);
}

// The file is the program's: what the driver drew is written here.
CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::byte> text;
  for (;;) {
    commands::DrawGraph::Reply reply;
    rpc::Reply answer;
    const CUresult result =
        ask(commands::DrawGraph{.graph = address_of(hGraph), .flags = flags, .offset = text.size()},
            reply, answer);
    if (result != CUDA_SUCCESS) return result;
    if (reply.total > wire::kGraphDrawingBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
    // As with lists.
    if (reply.text.empty()) break;
    if (text.size() + reply.text.size() > reply.total) {
      return distrust("draw_graph: more than there is");
    }
    text.insert(text.end(), reply.text.begin(), reply.text.end());
    if (text.size() >= reply.total) break;
  }
  const Fd file(::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return CUDA_ERROR_OPERATING_SYSTEM;
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + at, text.size() - at);
    if (written <= 0) return CUDA_ERROR_OPERATING_SYSTEM;
    at += static_cast<std::size_t>(written);
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                        CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  if (pHandle_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  commands::CreateConditional::Reply reply;
  const CUresult result = ask(
      commands::CreateConditional{
          .graph = address_of(hGraph), .context = ctx, .value = defaultLaunchValue, .flags = flags},
      reply);
  if (result == CUDA_SUCCESS) *pHandle_out = reply.handle;
  return result;
}

}  // namespace flyt::client::hooks
