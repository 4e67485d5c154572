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
  if (own.context == with.context && same_bytes(own.params, with.params)) {
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
  const bool good = own.context == with.context &&
                    own.params.srcMemoryType == with.params.srcMemoryType &&
                    own.params.dstMemoryType == with.params.dstMemoryType &&
                    one_row(own.request.extent) && one_row(with.request.extent);
  return good ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

CUgraphExecUpdateResult check(const FillWork& own, const FillWork& with) {
  if (same_bytes(own.params, with.params)) return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  const bool good =
      own.context == with.context && one_row(own.request.extent) && one_row(with.request.extent);
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
             : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
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

std::unordered_map<const GraphNode*, std::size_t> positions(const Graph& graph) {
  std::unordered_map<const GraphNode*, std::size_t> found;
  for (const auto& node : graph.nodes()) found.emplace(node.get(), found.size());
  return found;
}

bool check_edges(const Graph& own, const Graph& with, CUgraphExecUpdateResultInfo& info) {
  const auto own_positions = positions(own);
  const auto with_positions = positions(with);
  for (std::size_t i = 0; i < own.nodes().size(); ++i) {
    const auto& a = own.nodes()[i]->dependencies;
    const GraphNode* node = with.nodes()[i].get();
    const auto& b = node->dependencies;
    if (a.size() != b.size()) {
      return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node);
    }
    for (std::size_t k = 0; k < a.size(); ++k) {
      const bool same =
          own_positions.at(a[k].node) == with_positions.at(b[k].node) && a[k].data == b[k].data;
      if (!same) {
        return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, node, b[k].node);
      }
    }
  }
  return true;
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
  if (own.nodes().size() != with.nodes().size()) {
    return refuse(info, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr);
  }
  if (!check_edges(own, with, info)) return false;
  for (std::size_t i = 0; i < own.nodes().size(); ++i) {
    const GraphNode& node = *with.nodes()[i];
    const CUgraphExecUpdateResult result = check_change(own.nodes()[i]->work, node.work);
    if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return refuse(info, result, &node);
    if (!check_inner(own.nodes()[i]->work, node.work, info)) return false;
  }
  return true;
}

void apply_update(Graph& own, const Graph& with) {
  for (std::size_t i = 0; i < own.nodes().size(); ++i) {
    take_over(own.nodes()[i]->work, with.nodes()[i]->work);
  }
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
