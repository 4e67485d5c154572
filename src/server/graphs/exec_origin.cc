#include "server/graphs/exec_origin.h"

#include <algorithm>
#include <utility>

#include "server/context_subjects.h"
#include "server/graphs/graph_typed_nodes.h"
#include "server/graphs/graphs.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server {
namespace {

// So often it is tried to make one again: a wait of another thread may end a capture.
constexpr unsigned kFailuresMax = 4;

bool all_in(const std::vector<std::shared_ptr<SmPart>>& parts, const SmPart* part) {
  return std::all_of(parts.begin(), parts.end(),
                     [part](const auto& each) { return each.get() == part; });
}

}  // namespace

std::shared_ptr<ExecOrigin> ExecOrigin::begin(Session& session, std::uint64_t name, CUgraph graph,
                                              std::uint64_t flags) {
  auto part = session.moves().part();
  if (part == nullptr || !session.movable()) return nullptr;
  auto origin = std::make_shared<ExecOrigin>(session);
  origin->original_ = graph;
  origin->flags_ = flags;
  origin->made_in_ = session.graphs().parts(name);
  origin->part_ = std::move(part);
  if (all_in(origin->made_in_, origin->part_.get())) return origin;
  bool all = false;
  origin->base_ = GraphCopy::make(session.driver(), graph);
  if (origin->base_ != nullptr && !session.moves().greens()) {
    session.forget_entered();
    origin->made_ = origin->base_->moved(*origin->part_, all);
  }
  origin->content_ = origin->made_;
  if (origin->made_ == nullptr) origin->part_ = origin->made_in_.front();
  if (all) origin->made_in_.clear();
  return origin;
}

std::shared_ptr<ExecOrigin> ExecOrigin::restored(
    Session& session, std::shared_ptr<GraphCopy> made,
    std::unordered_map<std::uint64_t, std::size_t> numbers, std::uint64_t flags) {
  auto part = session.moves().part();
  const bool moves = part != nullptr && session.movable();
  if (!moves && numbers.empty()) return nullptr;
  auto origin = std::make_shared<ExecOrigin>(session);
  origin->flags_ = flags;
  origin->part_ = std::move(part);
  origin->numbers_ = std::move(numbers);
  origin->base_ = origin->made_ = std::move(made);
  if (moves) origin->content_ = origin->made_;
  return origin;
}

void ExecOrigin::instantiated() {
  const CUgraph graph = std::exchange(original_, nullptr);
  // Kernels may launch it, by a handle that they have. Where the program has green contexts of its
  // own, nobody knows which of its nodes are to run in which.
  const bool stays =
      (flags_ & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0 || session_.moves().greens();
  if (base_ != nullptr || stays) return;
  base_ = GraphCopy::make(session_.driver(), graph);
  content_ = base_;
}

void ExecOrigin::renew(std::uint64_t handle, CUgraphExec& exec) {
  if (fixed() || part_ == session_.moves().part() || session_.graphs().working()) return;
  if (session_.moves().part() == nullptr) return;
  if (make_again(handle, exec)) return;
  if (++failures_ < kFailuresMax) return;
  session_.log().warn("a graph keeps its multiprocessors", {{"graph", handle}});
  content_ = nullptr;
}

bool ExecOrigin::make_again(std::uint64_t handle, CUgraphExec& exec) {
  const driver::Table& driver = session_.driver();
  auto present = session_.moves().part();
  bool all = false;
  session_.forget_entered();
  auto copy = content_->moved(*present, all);
  if (copy == nullptr || copy->size() != base_->size()) return false;
  CUgraphExec fresh = nullptr;
  const std::uint64_t flags = flags_ & ~std::uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  if (driver.cuGraphInstantiateWithFlags(&fresh, copy->graph(), flags) != CUDA_SUCCESS) {
    return false;
  }
  for (const std::size_t number : disabled_) {
    driver.cuGraphNodeSetEnabled(fresh, copy->node(number), 0);
  }
  const Handles::Entry old = session_.handles().entry(wire::HandleKind::kGraphExec, handle);
  session_.handles().replace(wire::HandleKind::kGraphExec, handle, fresh, old.attachment);
  static_cast<void>(session_.graphs().end_exec(handle, std::exchange(exec, fresh)));
  made_ = content_ = std::move(copy);
  part_ = std::move(present);
  if (all) made_in_.clear();
  launches_apart_ = true;
  return true;
}

void ExecOrigin::before_launch(const Request& request, CUstream client, CUstream native) {
  const Place place{request.context(), request.thread(), client};
  if (std::exchange(launches_apart_, false) && launched_ != Place{} && launched_ != place) {
    for (const auto& end : last_launch()) {
      session_.driver().cuStreamWaitEvent(native, end->event(), 0);
    }
    session_.forget_entered();
    session_.enter(request.context());
  }
  launched_ = place;
}

// The end of the stream of the last launch, or if the program has ended it, of all such streams.
std::vector<std::shared_ptr<Fence>> ExecOrigin::last_launch() {
  CUstream stream = CU_STREAM_LEGACY;
  if (address_of(launched_.stream) == wire::kStreamPerThread) {
    stream = session_.thread_stream(launched_.context, launched_.thread);
  } else if (address_of(launched_.stream) > wire::kStreamPerThread) {
    stream = static_cast<CUstream>(
        session_.handles().find(wire::HandleKind::kStream, address_of(launched_.stream)));
  }
  CUresult result = session_.enter(launched_.context);
  if (stream == nullptr || result != CUDA_SUCCESS) return session_.moves().left_behind();
  auto end = session_.memory().events.record(launched_.context, stream, result);
  if (end == nullptr) return {};
  return {std::move(end)};
}

std::optional<std::size_t> ExecOrigin::number_of(std::uint64_t name) {
  const auto known = numbers_.find(name);
  if (known != numbers_.end()) return known->second;
  const auto found = find(name);
  if (found) numbers_[name] = *found;
  return found;
}

std::optional<std::size_t> ExecOrigin::find(std::uint64_t name) {
  const driver::Table& driver = session_.driver();
  const Graphs& graphs = session_.graphs();
  const std::uint64_t graph = graphs.graph_of(name);
  const std::uint64_t around = graphs.around(graph);
  const CUgraphNode node = graphs.node(name);
  if (base_ == nullptr || node == nullptr) return std::nullopt;
  if (around == 0) {
    CUgraphNode twin = nullptr;
    if (driver.cuGraphNodeFindInClone(&twin, node, base_->graph()) != CUDA_SUCCESS) return {};
    return base_->number_of(twin);
  }
  // In a child graph, at the same place as in the copy of the child.
  const auto outer = number_of(around);
  CUgraph child = nullptr;
  if (!outer || driver.cuGraphChildGraphNodeGetGraph(base_->node(*outer), &child) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  std::size_t count = 0;
  driver.cuGraphGetNodes(graphs.graph(graph), nullptr, &count);
  std::vector<CUgraphNode> own(count);
  std::vector<CUgraphNode> twins(count);
  driver.cuGraphGetNodes(graphs.graph(graph), own.data(), &count);
  std::size_t twin_count = count;
  if (driver.cuGraphGetNodes(child, twins.data(), &twin_count) != CUDA_SUCCESS) return {};
  const auto at = std::find(own.begin(), own.end(), node);
  if (at == own.end() || twin_count != own.size()) return std::nullopt;
  return base_->number_of(twins[static_cast<std::size_t>(at - own.begin())]);
}

CUgraphNode ExecOrigin::node(std::uint64_t name) {
  if (made_ == nullptr) return session_.graphs().node(name);
  const auto number = number_of(name);
  return number && *number < made_->size() ? made_->node(*number) : nullptr;
}

void ExecOrigin::note_params(std::uint64_t name, CUgraphNodeParams& params, bool typed) {
  if (fixed()) return;
  const driver::Table& driver = session_.driver();
  const auto number = number_of(name);
  CUresult result = CUDA_ERROR_NOT_FOUND;
  if (number && *number < content_->size()) {
    const CUgraphNode twin = content_->node(*number);
    result = typed || driver.cuGraphNodeSetParams == nullptr
                 ? set_typed_node(driver, twin, params)
                 : driver.cuGraphNodeSetParams(twin, &params);
  }
  if (result != CUDA_SUCCESS) content_ = nullptr;
}

void ExecOrigin::note_enabled(std::uint64_t name, bool enabled) {
  if (fixed()) return;
  const auto number = number_of(name);
  if (!number) {
    content_ = nullptr;
  } else if (enabled) {
    disabled_.erase(*number);
  } else {
    disabled_.insert(*number);
  }
}

std::shared_ptr<GraphCopy> ExecOrigin::for_update(std::uint64_t name, CUgraph graph) {
  if (all_in(session_.graphs().parts(name), part_.get())) return nullptr;
  bool all = false;
  session_.forget_entered();
  const auto copy = GraphCopy::make(session_.driver(), graph);
  return copy == nullptr ? nullptr : copy->moved(*part_, all);
}

CUgraphNode ExecOrigin::original_of(CUgraph graph, const GraphCopy& copy, CUgraphNode node) const {
  const driver::Table& driver = session_.driver();
  std::size_t count = 0;
  driver.cuGraphGetNodes(graph, nullptr, &count);
  std::vector<CUgraphNode> own(count);
  std::vector<CUgraphNode> twins(count);
  std::size_t twin_count = count;
  driver.cuGraphGetNodes(graph, own.data(), &count);
  driver.cuGraphGetNodes(copy.graph(), twins.data(), &twin_count);
  const auto at = std::find(twins.begin(), twins.end(), node);
  return node == nullptr || at == twins.end() ? nullptr
                                              : own[static_cast<std::size_t>(at - twins.begin())];
}

void ExecOrigin::note_update(CUgraph graph) {
  if (fixed()) return;
  content_ = GraphCopy::make(session_.driver(), graph);
  if (content_ != nullptr && !content_->same_shape(*base_)) content_ = nullptr;
}

}  // namespace flyt::server
