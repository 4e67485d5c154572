#include "server/graphs/graphs.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "server/context_subjects.h"
#include "server/graphs/graph_memory.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {

Graphs::Graphs(Session& session)
    : session_(session), records_(session), costs_(session.driver(), *this) {}

CUgraph Graphs::graph(std::uint64_t name) const {
  const auto found = graphs_.find(name);
  return found == graphs_.end() ? nullptr : found->second.native;
}

CUgraphNode Graphs::node(std::uint64_t name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : found->second.native;
}

std::uint64_t Graphs::graph_of(std::uint64_t node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? 0 : found->second.graph;
}

std::uint64_t Graphs::root(std::uint64_t graph) const {
  for (;;) {
    const auto found = graphs_.find(graph);
    const std::uint64_t around = found == graphs_.end() ? 0 : graph_of(found->second.around);
    if (around == 0) return graph;
    graph = around;
  }
}

unsigned Graphs::depth(std::uint64_t graph) const {
  unsigned depth = 0;
  while ((graph = graph_of(around(graph))) != 0) ++depth;
  return depth;
}

std::uint64_t Graphs::name_of(CUgraphNode node) const {
  const auto found = node_names_.find(node);
  return found == node_names_.end() ? 0 : found->second;
}

std::uint64_t Graphs::name_of(CUgraph graph) const {
  const auto found = graph_names_.find(graph);
  return found == graph_names_.end() ? 0 : found->second;
}

std::set<std::uint64_t> Graphs::graphs_in(std::uint64_t node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? std::set<std::uint64_t>{} : found->second.graphs;
}

std::uint64_t Graphs::around(std::uint64_t graph) const {
  const auto found = graphs_.find(graph);
  return found == graphs_.end() ? 0 : found->second.around;
}

std::vector<std::shared_ptr<SmPart>> Graphs::parts(std::uint64_t graph) const {
  const auto found = graphs_.find(root(graph));
  return found == graphs_.end() ? std::vector<std::shared_ptr<SmPart>>{} : found->second.parts;
}

void Graphs::note_part(std::uint64_t graph) {
  const auto found = graphs_.find(root(graph));
  auto part = session_.moves().part();
  if (found == graphs_.end() || part == nullptr) return;
  auto& parts = found->second.parts;
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(std::move(part));
}

// All of another graph has become part of it.
void Graphs::note_parts_of(std::uint64_t graph, std::uint64_t other) {
  const auto found = graphs_.find(root(graph));
  if (found == graphs_.end()) return;
  auto& own = found->second.parts;
  for (auto& part : parts(other)) {
    if (std::find(own.begin(), own.end(), part) == own.end()) own.push_back(std::move(part));
  }
}

bool Graphs::nodes(const wire::List<std::uint64_t>& names, std::vector<CUgraphNode>& out) const {
  out.clear();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const CUgraphNode native = node(names[i]);
    if (native == nullptr) return false;
    out.push_back(native);
  }
  return true;
}

std::uint64_t Graphs::next_name(wire::HandleKind kind) {
  if (full()) return 0;
  for (;;) {
    const std::uint64_t number = names_++;
    if (session_.recovery() != nullptr) session_.recovery()->marks().set_graph_names(names_);
    const auto generation =
        static_cast<std::uint32_t>(number / wire::kHandleIndexMax % wire::kHandleGenerationMax + 1);
    const auto index = static_cast<std::uint32_t>(number % wire::kHandleIndexMax + 1);
    const std::uint64_t name = wire::Handle::make(kind, generation, index).value;
    if (!graphs_.contains(name) && !nodes_.contains(name)) return name;
  }
}

std::uint64_t Graphs::name_graph(CUgraph native, std::uint64_t around) {
  if (native == nullptr) return 0;
  const auto [known, fresh] = graph_names_.try_emplace(native, 0);
  if (!fresh) return known->second;
  const std::uint64_t name = next_name(wire::HandleKind::kGraph);
  if (name == 0) {
    graph_names_.erase(known);
    return 0;
  }
  known->second = name;
  graphs_[name] = {native, around, {}, {}};
  const auto node = nodes_.find(around);
  if (node != nodes_.end()) node->second.graphs.insert(name);
  if (around == 0) note_part(name);
  if (around == 0) {
    records_.changed(name);
  } else {
    records_.named(name);
  }
  return name;
}

std::uint64_t Graphs::name_node(CUgraphNode native, std::uint64_t graph) {
  if (native == nullptr) return 0;
  const auto [known, fresh] = node_names_.try_emplace(native, 0);
  if (!fresh) return known->second;
  const std::uint64_t name = next_name(wire::HandleKind::kGraphNode);
  const auto around = graphs_.find(graph);
  if (name == 0 || around == graphs_.end()) {
    node_names_.erase(known);
    return 0;
  }
  known->second = name;
  nodes_[name] = {native, graph, {}};
  around->second.nodes.insert(name);
  records_.named(graph);
  return name;
}

bool Graphs::restore_graph(std::uint64_t name, CUgraph native, std::uint64_t around) {
  const bool good = wire::Handle{name}.kind() == wire::HandleKind::kGraph &&
                    graph_names_.try_emplace(native, name).second &&
                    graphs_.try_emplace(name, Graph{native, around, {}, {}}).second;
  if (!good) return false;
  const auto node = nodes_.find(around);
  if (node != nodes_.end()) node->second.graphs.insert(name);
  if (around == 0) note_part(name);
  return true;
}

bool Graphs::restore_node(std::uint64_t name, CUgraphNode native, std::uint64_t graph) {
  const auto around = graphs_.find(graph);
  if (wire::Handle{name}.kind() != wire::HandleKind::kGraphNode || around == graphs_.end() ||
      !node_names_.try_emplace(native, name).second ||
      !nodes_.try_emplace(name, Node{native, graph, {}}).second) {
    return false;
  }
  around->second.nodes.insert(name);
  return true;
}

void Graphs::put_around(std::uint64_t graph, std::uint64_t node) {
  const auto found = graphs_.find(graph);
  const auto around = nodes_.find(node);
  if (found == graphs_.end() || around == nodes_.end()) return;
  found->second.around = node;
  around->second.graphs.insert(graph);
  records_.forget(graph);
  records_.changed(around->second.graph);
}

void Graphs::add_conditional(std::uint64_t handle, std::uint64_t graph) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end() || !conditionals_.insert(handle).second) return;
  found->second.conditionals.push_back(handle);
}

void Graphs::forget_graph(std::uint64_t name) {
  const auto found = graphs_.find(name);
  if (found == graphs_.end()) return;
  const Graph gone = std::move(found->second);
  graphs_.erase(found);
  graph_names_.erase(gone.native);
  records_.forget(name);
  costs_.forget(name);
  for (const std::uint64_t handle : gone.conditionals) conditionals_.erase(handle);
  for (const std::uint64_t node : gone.nodes) forget_node(node);
  const auto around = nodes_.find(gone.around);
  if (around != nodes_.end()) around->second.graphs.erase(name);
}

void Graphs::forget_node(std::uint64_t name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) return;
  const Node gone = std::move(found->second);
  nodes_.erase(found);
  node_names_.erase(gone.native);
  costs_.forget(name);
  for (const std::uint64_t graph : gone.graphs) forget_graph(graph);
  const auto around = graphs_.find(gone.graph);
  if (around != graphs_.end()) around->second.nodes.erase(name);
}

std::shared_ptr<void> Graphs::at_work() { return at_work_; }

// What takes room until then has it of the limits of what the client makes meanwhile.
CUresult Graphs::end(const GraphCosts::Cost& cost, End end) {
  if (at_work_.use_count() == 1) return end.destroy();
  ends_.push_back(std::move(end));
  ending_.add({.nodes = cost.total() + 1, .edges = cost.edges});
  return CUDA_SUCCESS;
}

CUresult Graphs::end(const GraphCosts::Cost& cost, std::function<CUresult()> destroy) {
  return end(cost, End{0, std::move(destroy)});
}

CUresult Graphs::end_exec(std::uint64_t name, CUgraphExec native) {
  if (native == nullptr) return CUDA_SUCCESS;
  const auto home = execs_.find(name);
  return end(costs_.counted(name),
             End{home == execs_.end() ? 0 : home->second, [&driver = session_.driver(), native] {
                   return driver.cuGraphExecDestroy(native);
                 }});
}

void Graphs::note_exec(std::uint64_t exec, std::uint32_t context) {
  if (session_.contexts().count() == 1) execs_[exec] = session_.contexts().home_of(context);
}

// Whoever is going to update one of them cannot enter the context any more, and leaves it alone.
void Graphs::on_context_destroy(std::uint32_t context) {
  std::erase_if(ends_, [&](const End& end) {
    if (end.context != context) return false;
    static_cast<void>(end.destroy());
    return true;
  });
  if (ends_.empty()) ending_ = {};
  std::erase_if(execs_, [&](const auto& item) {
    if (item.second != context) return false;
    const auto gone =
        session_.handles().replace(wire::HandleKind::kGraphExec, item.first, nullptr, {});
    if (gone.native != nullptr) {
      session_.driver().cuGraphExecDestroy(static_cast<CUgraphExec>(gone.native));
    }
    records_.exec_ended(item.first);
    return true;
  });
  records_.on_context_destroy(context);
}

void Graphs::poll() {
  if (ends_.empty() || at_work_.use_count() != 1) return;
  for (const End& end : std::exchange(ends_, {})) static_cast<void>(end.destroy());
  ending_ = {};
  session_.graph_memory().sweep();
}

GraphCosts::Cost Graphs::cost_of(std::uint64_t graph) const {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return {};
  GraphCosts::Cost cost = costs_.counted(graph);
  cost.nodes += found->second.nodes.size();
  for (const std::uint64_t node : found->second.nodes) {
    cost.add(costs_.counted(node));
    for (const std::uint64_t inner : nodes_.at(node).graphs) cost.add(cost_of(inner));
  }
  return cost;
}

std::shared_ptr<const void> Graphs::begin_update(std::uint64_t exec, std::uint64_t graph) {
  std::erase_if(updates_, [](const auto& update) { return update.expired(); });
  auto update = std::make_shared<const Update>(Update{exec, root(graph)});
  updates_.push_back(update);
  return update;
}

bool Graphs::updating(std::uint64_t exec) const {
  return std::any_of(updates_.begin(), updates_.end(), [exec](const auto& weak) {
    const auto update = weak.lock();
    return update != nullptr && update->exec == exec;
  });
}

bool Graphs::in_update(std::uint64_t graph) const {
  if (updates_.empty()) return false;
  return std::any_of(updates_.begin(), updates_.end(), [whole = root(graph)](const auto& weak) {
    const auto update = weak.lock();
    return update != nullptr && update->graph == whole;
  });
}

void Graphs::capture_begun(CUstream stream, std::uint64_t into) {
  CUgraph native = graph(into);
  CUstreamCaptureStatus status{};
  const driver::Table& driver = session_.driver();
  if (into == 0 && driver.cuStreamGetCaptureInfo_v2 != nullptr) {
    static_cast<void>(
        driver.cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &native, nullptr, nullptr));
  }
  streams_[stream] = {native, into != 0};
  captures_.store(streams_.size(), std::memory_order_release);
  records_.look_after_captures();
}

bool Graphs::captured_into(std::uint64_t graph) const {
  const auto native = graphs_.find(graph);
  return native != graphs_.end() &&
         std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& item) { return item.second.graph == native->second.native; });
}

void Graphs::look_after_capture(CUstream stream, bool has_graph) {
  const auto found = streams_.find(stream);
  if (found == streams_.end() || capturing(stream)) return;
  const auto name = graph_names_.find(found->second.graph);
  has_graph = has_graph || found->second.shared;
  streams_.erase(found);
  captures_.store(streams_.size(), std::memory_order_release);
  records_.look_after_captures();
  if (!has_graph && name != graph_names_.end()) forget_graph(name->second);
}

std::uint64_t Graphs::captured_graph(CUstream stream) {
  CUgraph native = nullptr;
  CUstreamCaptureStatus status{};
  const driver::Table& driver = session_.driver();
  if (driver.cuStreamGetCaptureInfo_v2 == nullptr ||
      driver.cuStreamGetCaptureInfo_v2(stream, &status, nullptr, &native, nullptr, nullptr) !=
          CUDA_SUCCESS) {
    return 0;
  }
  return name_graph(native, 0);
}

bool Graphs::note_captured(std::uint64_t nodes) {
  if (costs_.note_captured(nodes)) return true;
  session_.end("captures of more nodes than a session may have");
  return false;
}

void Graphs::forget_stream(CUstream stream) {
  streams_.erase(stream);
  if (streams_.empty()) costs_.capture_ended(0, true);
  captures_.store(streams_.size(), std::memory_order_release);
  records_.look_after_captures();
}

bool Graphs::capturing(CUstream stream) const {
  if (!capturing()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const driver::Table& driver = session_.driver();
  return driver.cuStreamIsCapturing != nullptr &&
         driver.cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// A wait for the whole context would end its captures.
CUresult Graphs::wait_for_context(std::uint32_t context) {
  const driver::Table& driver = session_.driver();
  std::vector<std::shared_ptr<Fence>> ends = session_.moves().left_behind();
  CUresult result = CUDA_SUCCESS;
  if (!capturing()) {
    for (const auto& end : ends) static_cast<void>(end->wait());
    return driver.cuCtxSynchronize();
  }
  {
    const Lock lock(joining_);
    std::vector<CUstream> streams = session_.contexts().thread_streams(context);
    for (const Handles::Entry& entry : session_.handles().all(wire::HandleKind::kStream)) {
      const auto* owner = dynamic_cast<const StreamOwner*>(entry.attachment.get());
      if (owner == nullptr || owner->context() != context) continue;
      if (CUstream stream = owner->stream()) streams.push_back(stream);
    }
    streams.push_back(CU_STREAM_LEGACY);
    for (CUstream stream : streams) {
      CUstreamCaptureStatus status{};
      // The legacy stream has no status while a stream that it would wait for captures.
      const CUresult asked = driver.cuStreamIsCapturing(stream, &status);
      if (asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE) continue;
      auto fence = session_.memory().events.record(context, stream, result);
      if (fence != nullptr) ends.push_back(std::move(fence));
    }
  }
  for (const auto& end : ends) {
    const CUresult waited = end->wait();
    if (waited != CUDA_SUCCESS) result = waited;
  }
  return result;
}

}  // namespace flyt::server
