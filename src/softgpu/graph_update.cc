#include "softgpu/graph_update.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <unordered_map>

#include "softgpu/graph_exec.h"
#include "softgpu/user_object.h"

namespace flyt::softgpu {
namespace {

bool one_row(const Extent& extent) { return extent.height == 1 && extent.depth == 1; }

bool same_bytes(const auto& a, const auto& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

CUgraphExecUpdateResult check(const KernelWork& own, const KernelWork& with) {
  return own.context == with.context ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                     : CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
}

CUgraphExecUpdateResult check(const CopyWork& own, const CopyWork& with) {
  if (same_bytes(own.params, with.params)) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const bool good = own.context == with.context &&
                    own.params.srcMemoryType == with.params.srcMemoryType &&
                    own.params.dstMemoryType == with.params.dstMemoryType &&
                    one_row(own.request.extent) && one_row(with.request.extent);
  return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult check(const FillWork& own, const FillWork& with) {
  if (same_bytes(own.params, with.params)) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const bool same_shape =
      own.params.width == with.params.width && own.params.height == with.params.height &&
      own.params.pitch == with.params.pitch && own.params.elementSize == with.params.elementSize;
  const bool rows = one_row(own.request.extent) && one_row(with.request.extent);
  const bool good = own.context == with.context && (rows || same_shape);
  return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult check(const WordsWork& own, const WordsWork& with) {
  bool good = own.context == with.context && own.batch.size() == with.batch.size();
  for (std::size_t i = 0; good && i < own.batch.size(); ++i) {
    good = own.batch[i].operation == with.batch[i].operation;
  }
  return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult check(const AllocWork& own, const AllocWork& with) {
  return own.allocation == with.allocation ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                           : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
}

CUgraphExecUpdateResult check(const FreeWork& own, const FreeWork& with) {
  return own.address == with.address ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                     : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
}

CUgraphExecUpdateResult check(const ConditionalWork& own, const ConditionalWork& with) {
  return own.type == with.type && own.bodies.size() == with.bodies.size()
             ? CU_GRAPH_EXEC_UPDATE_SUCCESS
             : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
}

// What else there is may change as it likes; children are graphs of their own.
template <class Kind>
CUgraphExecUpdateResult check(const Kind&, const Kind&) {
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

bool refuse(CUgraphExecUpdateResultInfo& info, CUgraphExecUpdateResult result,
            const GraphNode* node, const GraphNode* from = nullptr) {
  info.result = result;
  info.errorNode = node == nullptr ? nullptr : to_handle<CUgraphNode>(node->handle);
  info.errorFromNode = from == nullptr ? nullptr : to_handle<CUgraphNode>(from->handle);
  return false;
}

// A node of an executable graph, and the one whose work it is to do.
struct Pair {
  GraphNode* own = nullptr;
  const GraphNode* with = nullptr;
};

// The nodes on which none depends, the latest first.
std::vector<GraphNode*> ends(const Graph& graph) {
  std::vector<GraphNode*> found;
  for (const auto& node : graph.nodes()) {
    if (node->dependents.empty()) found.push_back(node.get());
  }
  std::reverse(found.begin(), found.end());
  return found;
}

// Finds each node's counterpart, as NVIDIA's driver does: from the ends on, which pair up from the
// latest to the earliest one, along dependencies in their order.
class Pairing {
 public:
  explicit Pairing(CUgraphExecUpdateResultInfo& info) : info_(info) {}

  bool pair(const Graph& own, const Graph& with) {
    const auto own_ends = ends(own);
    const auto with_ends = ends(with);
    if (own.nodes().size() != with.nodes().size() || own_ends.size() > with_ends.size()) {
      return refuse(info_, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
    }
    if (own_ends.size() < with_ends.size()) {
      return refuse(info_, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, with_ends[own_ends.size()]);
    }
    for (std::size_t i = 0; i < own_ends.size(); ++i) {
      if (!meet(own_ends[i], with_ends[i], nullptr) || !follow()) return false;
    }
    return true;
  }
  // In the order in which they were found.
  const std::vector<Pair>& pairs() const { return pairs_; }

 private:
  // `of`: the node that depends on it.
  bool meet(GraphNode* own, const GraphNode* with, const GraphNode* of) {
    const auto [mine, fresh] = by_own_.emplace(own, with);
    const auto [theirs, unmet] = by_with_.emplace(with, own);
    if (fresh && unmet) pairs_.push_back({own, with});
    return (mine->second == with && theirs->second == own) ||
           refuse(info_, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, of, with);
  }
  // From the pairs that were not looked at yet.
  bool follow() {
    for (; next_ < pairs_.size(); ++next_) {
      const GraphNode* with = pairs_[next_].with;
      const auto& a = pairs_[next_].own->dependencies;
      const auto& b = with->dependencies;
      if (a.size() != b.size()) {
        return refuse(info_, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, with);
      }
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (!(a[i].data == b[i].data)) {
          return refuse(info_, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, with, b[i].node);
        }
        if (!meet(a[i].node, b[i].node, with)) return false;
      }
    }
    return true;
  }

  CUgraphExecUpdateResultInfo& info_;
  std::vector<Pair> pairs_;
  std::unordered_map<const GraphNode*, const GraphNode*> by_own_;
  std::unordered_map<const GraphNode*, const GraphNode*> by_with_;
  std::size_t next_ = 0;
};

// An executable graph's node keeps what it began as.
bool same_attributes(const Work& own, const Work& with) {
  const auto* kernel = std::get_if<KernelWork>(&own);
  return kernel == nullptr ||
         kernel->request.cooperative == std::get<KernelWork>(with).request.cooperative;
}

bool check_inner(const Work& own, const Work& with, CUgraphExecUpdateResultInfo& info) {
  if (const auto* child = std::get_if<ChildWork>(&own)) {
    return check_update(*child->graph, *std::get<ChildWork>(with).graph, info);
  }
  if (const auto* conditional = std::get_if<ConditionalWork>(&own)) {
    const auto& other = std::get<ConditionalWork>(with);
    for (std::size_t i = 0; i < conditional->bodies.size(); ++i) {
      if (!check_update(*conditional->bodies[i], *other.bodies[i], info)) return false;
    }
  }
  return true;
}

void take_over(Work& own, const Work& with) {
  if (auto* child = std::get_if<ChildWork>(&own)) {
    apply_update(*child->graph, *std::get<ChildWork>(with).graph);
  } else if (auto* conditional = std::get_if<ConditionalWork>(&own)) {
    const auto& other = std::get<ConditionalWork>(with);
    conditional->handle = other.handle;
    for (std::size_t i = 0; i < conditional->bodies.size(); ++i) {
      apply_update(*conditional->bodies[i], *other.bodies[i]);
    }
  } else {
    own = with;
  }
}

}  // namespace

CUgraphExecUpdateResult check_change(const Work& own, const Work& with) {
  if (own.index() != with.index()) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  return std::visit(
      [&own](const auto& other) {
        return check(std::get<std::decay_t<decltype(other)>>(own), other);
      },
      with);
}

bool check_update(const Graph& own, const Graph& with, CUgraphExecUpdateResultInfo& info) {
  Pairing pairing(info);
  if (!pairing.pair(own, with)) return false;
  for (const Pair& pair : pairing.pairs()) {
    CUgraphExecUpdateResult result = check_change(pair.own->work, pair.with->work);
    if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS &&
        !same_attributes(pair.own->work, pair.with->work)) {
      result = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    }
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return refuse(info, result, pair.with);
    if (!check_inner(pair.own->work, pair.with->work, info)) return false;
  }
  return true;
}

void apply_update(Graph& own, const Graph& with) {
  CUgraphExecUpdateResultInfo info{};
  Pairing pairing(info);
  pairing.pair(own, with);
  for (const Pair& pair : pairing.pairs()) take_over(pair.own->work, pair.with->work);
  own.conditionals() = with.conditionals();
  own.take_objects(with);
}

CUresult GraphExec::update(const Graph& graph, CUgraphExecUpdateResultInfo* info) {
  *info = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
  if (!check_update(*graph_, graph, *info)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  apply_update(*graph_, graph);
  changed();
  return CUDA_SUCCESS;
}

}  // namespace flyt::softgpu
