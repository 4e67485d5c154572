#include "server/graphs/graph_records.h"

#include <algorithm>
#include <cstring>

#include "commands/graph.h"
#include "server/graphs/graph_builder.h"
#include "server/graphs/graph_memory.h"
#include "server/graphs/graph_reading.h"
#include "server/graphs/graphs.h"
#include "server/recovery/moved_variables.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {
namespace {

template <class T>
void append(std::vector<std::byte>& out, const T& value) {
  const Bytes bytes = bytes_at(&value, sizeof value);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

CUgraphNodeType type_of(Bytes parameters) {
  std::uint32_t type = CU_GRAPH_NODE_TYPE_EMPTY;
  std::memcpy(&type, parameters.data(), std::min(sizeof type, parameters.size()));
  return static_cast<CUgraphNodeType>(type);
}

// What a command says of these is all that there is to know; who allocates or has bodies is asked.
bool says_all(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_HOST ||
         type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ||
         type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

}  // namespace

bool GraphRecords::wanted() const {
  const Recovery* const recovery = session_.recovery();
  return recovery != nullptr && recovery->on() && !recovery->spoilt();
}

void GraphRecords::touch() {
  dirty_ = true;
  session_.recovery()->marks().set_unsaved_graphs(true);
}

void GraphRecords::changed(std::uint64_t graph, std::uint32_t context) {
  if (!wanted() || saving_) return;
  Graph& record = graphs_[session_.graphs().root(graph)];
  record.image = nullptr;
  record.unsaved = true;
  if (context != 0) record.context = context;
  touch();
}

// The driver does not tell in which contexts some of its nodes run; those of the original do.
void GraphRecords::cloned(std::uint64_t clone, std::uint64_t graph) {
  if (!wanted()) return;
  const GraphImageRef original = image_of(graph);
  const Graph& copied = graphs_[session_.graphs().root(graph)];
  Graph& record = graphs_[clone];
  record.context = copied.context;
  record.stale = copied.stale;
  const auto image = original == nullptr ? nullptr
                                         : with_natives(session_.driver(), *original,
                                                        session_.graphs().graph(clone));
  if (image != nullptr) take_nodes(*image, record.nodes);
  changed(clone);
}

void GraphRecords::named(std::uint64_t graph) {
  if (!wanted() || saving_) return;
  graphs_[session_.graphs().root(graph)].unsaved = true;
  touch();
}

void GraphRecords::node_changed(std::uint64_t node) {
  if (!wanted()) return;
  const Graphs& graphs = session_.graphs();
  const std::uint64_t graph = graphs.graph_of(node);
  graphs_[graphs.root(graph)].nodes.erase(graphs.node(node));
  changed(graph);
}

void GraphRecords::node_added(std::uint64_t node, std::uint32_t context, Bytes parameters,
                              Bytes data) {
  if (!wanted()) return;
  const Graphs& graphs = session_.graphs();
  const std::uint64_t graph = graphs.graph_of(node);
  if (says_all(type_of(parameters)) && data.size() <= kNodeDataBytesMax) {
    const std::uint64_t own = session_.handles().handle_at(wire::HandleKind::kContext, context);
    auto image = budget_.count(image_of_command(parameters, data, nullptr, own));
    if (image != nullptr) {
      graphs_[graphs.root(graph)].nodes[graphs.node(node)] = std::move(image);
    }
  }
  changed(graph, context);
}

void GraphRecords::node_set(std::uint64_t node, Bytes parameters, Bytes data) {
  if (!wanted()) return;
  const Graphs& graphs = session_.graphs();
  NodeImages& nodes = graphs_[graphs.root(graphs.graph_of(node))].nodes;
  const auto known = nodes.find(graphs.node(node));
  if (known == nodes.end() || known->second == nullptr || !says_all(type_of(parameters)) ||
      data.size() > kNodeDataBytesMax) {
    return node_changed(node);
  }
  auto image = budget_.count(image_of_command(parameters, data, known->second.get(), 0));
  if (image == nullptr) return node_changed(node);
  known->second = std::move(image);
  changed(graphs.graph_of(node));
}

void GraphRecords::forget(std::uint64_t graph) {
  if (graphs_.erase(graph) == 0 || !wanted()) return;
  note_gone({GraphLog::Kind::kGraph, graph});
  touch();
}

void GraphRecords::on_context_destroy(std::uint32_t context) {
  if (!wanted()) return;
  for (auto& [name, graph] : graphs_) {
    if (graph.context != context) continue;
    graph = {};
    graph.stale = true;
    touch();
  }
}

// What was never saved need not be taken out of the file, and there is no end of it until then.
void GraphRecords::note_gone(const GraphLog::Key& key) {
  if (session_.recovery()->marks().graphs().holds(key)) gone_.insert(key);
}

void GraphRecords::note_conditional(std::uint64_t graph) {
  if (!wanted()) return;
  Graph& record = graphs_[session_.graphs().root(graph)];
  record.conditional = true;
  record.blame = commands::CreateConditional::kOp;
  changed(graph);
}

const GraphImageRef& GraphRecords::read(std::uint64_t root, Graph& graph) {
  if (graph.image == nullptr && !graph.conditional && !graph.stale) {
    GraphReading reading(session_);
    graph.image =
        reading.read(session_.graphs().graph(root), graph.context, graph.nodes, graph.blame);
    if (graph.image != nullptr) graph.blame = 0;
  }
  return graph.image;
}

GraphImageRef GraphRecords::image_of(std::uint64_t graph) {
  if (!wanted()) return nullptr;
  const std::uint64_t root = session_.graphs().root(graph);
  Graph& record = graphs_[root];
  if (graph == root || record.stale) return read(root, record);
  std::uint16_t blame = 0;
  return GraphReading(session_).read(session_.graphs().graph(graph), record.context, record.nodes,
                                     blame);
}

GraphRecords::Exec* GraphRecords::find(std::uint64_t exec) {
  const auto found = execs_.find(exec);
  if (!wanted() || found == execs_.end()) return nullptr;
  found->second.unsaved = true;
  touch();
  return &found->second;
}

void GraphRecords::give_up(Exec& exec, std::uint16_t blame) {
  exec.content = nullptr;
  exec.blame = blame;
}

void GraphRecords::exec_made(std::uint64_t exec, std::uint64_t graph, std::uint64_t flags) {
  if (!wanted()) return;
  const std::uint64_t root = session_.graphs().root(graph);
  Exec& made = execs_[exec];
  made = {};
  made.base = made.content = image_of(graph);
  made.context = graphs_[root].context;
  made.graph = graph;
  made.flags = flags;
  if (made.content == nullptr) made.blame = graphs_[root].blame;
  if (made.content == nullptr && made.blame == 0) made.blame = commands::InstantiateGraph::kOp;
  // Kernels have a handle of it.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    give_up(made, commands::InstantiateGraph::kOp);
  }
  touch();
}

std::optional<std::size_t> GraphRecords::place_in(const Exec& exec, std::uint64_t node) const {
  if (exec.base == nullptr) return std::nullopt;
  const std::size_t place = place_of(*exec.base, session_.graphs().node(node));
  return place < count_nodes(*exec.base) ? std::optional(place) : std::nullopt;
}

void GraphRecords::exec_node_set(std::uint64_t exec, std::uint64_t node, Bytes parameters,
                                 Bytes data) {
  Exec* const record = find(exec);
  if (record == nullptr || record->content == nullptr) return;
  const auto place = place_in(*record, node);
  const NodeImage* const before = place ? node_at(*record->content, *place) : nullptr;
  if (before == nullptr) return give_up(*record, commands::SetExecNode::kOp);
  std::shared_ptr<const NodeImage> now;
  if (type_of(parameters) == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraphNodeParams params{};
    std::memcpy(static_cast<void*>(&params), parameters.data(), sizeof params);
    const auto child = std::make_shared<NodeImage>(*before);
    child->child = image_of(address_of(params.graph.graph));
    if (child->child == nullptr) return give_up(*record, commands::SetExecNode::kOp);
    now = child;
  } else if (data.size() <= kNodeDataBytesMax) {
    now = budget_.count(image_of_command(parameters, data, before, 0));
  }
  if (now == nullptr) return give_up(*record, commands::SetExecNode::kOp);
  record->content = with_node(*record->content, *place, std::move(now));
}

void GraphRecords::exec_node_enabled(std::uint64_t exec, std::uint64_t node, bool enabled) {
  Exec* const record = find(exec);
  if (record == nullptr || record->content == nullptr) return;
  const auto place = place_in(*record, node);
  if (!place) return give_up(*record, commands::EnableExecNode::kOp);
  if (enabled) {
    record->disabled.erase(*place);
  } else {
    record->disabled.insert(*place);
  }
}

void GraphRecords::exec_updated(std::uint64_t exec, GraphImageRef image) {
  Exec* const record = find(exec);
  if (record == nullptr || record->content == nullptr) return;
  if (image == nullptr) return give_up(*record, commands::UpdateGraphExec::kOp);
  if (!same_shape(*record->content, *image)) {
    // Which node is which is not known any more.
    if (!record->disabled.empty()) return give_up(*record, commands::UpdateGraphExec::kOp);
    record->base = nullptr;
  }
  record->content = std::move(image);
}

// Whoever goes on with it all the same is told again that it has ended.
void GraphRecords::exec_ended(std::uint64_t exec) {
  if (execs_.erase(exec) == 0 || !wanted()) return;
  note_gone({GraphLog::Kind::kExec, exec});
  dirty_ = true;
  if (held_) touch();
}

void GraphRecords::look_after_captures() {
  if (!wanted()) return;
  capturing_ = session_.graphs().capturing()
                   ? Spoiler(session_.recovery()->marks(), commands::BeginCapture::kOp)
                   : Spoiler();
}

void GraphRecords::look_after_memory() {
  if (wanted() && (session_.graph_memory().any() || held_)) touch();
}

void GraphRecords::save() {
  // Nobody asks the driver about a graph that a worker works with.
  if (!dirty_ || session_.graphs().working()) return;
  dirty_ = false;
  Marks& marks = session_.recovery()->marks();
  if (!wanted()) {
    graphs_.clear();
    execs_.clear();
    gone_.clear();
    return marks.set_unsaved_graphs(false);
  }
  GraphLog& log = marks.graphs();
  if (Status begun = log.begin(); !begun) {
    session_.log().warn("graphs are not saved", {{"why", begun.error().message}});
    marks.spoil(commands::CreateGraph::kOp);
    return marks.set_unsaved_graphs(false);
  }
  saving_ = true;
  for (const GraphLog::Key& key : std::exchange(gone_, {})) log.drop(key);
  for (auto& [name, graph] : graphs_) {
    if (graph.unsaved) save_graph(log, name, graph);
  }
  for (auto& [name, exec] : execs_) {
    if (exec.unsaved) save_exec(log, name, exec);
  }
  saving_ = false;
  const std::uint16_t blame = whom_to_blame();
  held_ = blame != 0 ? Spoiler(marks, blame) : Spoiler();
  marks.end_graphs();
  marks.set_unsaved_graphs(false);
}

std::uint16_t GraphRecords::whom_to_blame() const {
  if (session_.graph_memory().any()) return commands::CaptureAllocation::kOp;
  for (const auto& [name, graph] : graphs_) {
    if (graph.blame != 0) return graph.blame;
  }
  for (const auto& [name, exec] : execs_) {
    if (exec.blame != 0) return exec.blame;
  }
  return 0;
}

bool GraphRecords::put(GraphLog& log, GraphLog::Key key, const std::vector<std::byte>& content) {
  const Status put = log.put(key, content);
  if (!put) session_.log().warn("a graph is not saved", {{"why", put.error().message}});
  return put.ok();
}

// All of it is named, so that no question about it makes it another one.
void GraphRecords::save_graph(GraphLog& log, std::uint64_t name, Graph& graph) {
  const GraphLog::Key key{GraphLog::Kind::kGraph, name};
  if (read(name, graph) == nullptr) {
    log.drop(key);
    graph.unsaved = false;
    return;
  }
  Graphs& graphs = session_.graphs();
  std::vector<std::byte> content;
  append(content, std::uint64_t{graph.context});
  const ImageNames names{
      [&](CUgraphNode node, std::uint64_t in) { return graphs.name_node(node, in); },
      [&](CUgraph inner, std::uint64_t node) { return graphs.name_graph(inner, node); }};
  write_image(*graph.image, graph.image.get(), name, names, content);
  const bool saved = put(log, key, content);
  graph.unsaved = !saved;
  graph.blame = saved ? 0 : commands::CreateGraph::kOp;
}

void GraphRecords::save_exec(GraphLog& log, std::uint64_t name, Exec& exec) {
  const GraphLog::Key key{GraphLog::Kind::kExec, name};
  if (exec.content == nullptr) {
    log.drop(key);
    exec.unsaved = false;
    return;
  }
  const Graphs& graphs = session_.graphs();
  std::vector<std::byte> content;
  append(content, std::uint64_t{exec.context});
  append(content, exec.graph);
  append(content, exec.flags);
  append(content, static_cast<std::uint64_t>(exec.disabled.size()));
  for (const std::uint64_t place : exec.disabled) append(content, place);
  // The driver may use an address again for a node of another graph.
  const std::uint64_t root = graphs.root(exec.graph);
  const bool there = graphs.graph(exec.graph) != nullptr;
  const ImageNames names{[&](CUgraphNode node, std::uint64_t) {
                           const std::uint64_t known = graphs.name_of(node);
                           const std::uint64_t in = graphs.graph_of(known);
                           return known != 0 && graphs.root(in) == root ? known : 0;
                         },
                         [](CUgraph, std::uint64_t) { return std::uint64_t{0}; }};
  write_image(*exec.content, there ? exec.base.get() : nullptr, 0, names, content);
  const bool saved = put(log, key, content);
  exec.unsaved = !saved;
  exec.blame = saved ? 0 : commands::InstantiateGraph::kOp;
}

bool GraphRecords::hold(const MovedVariables& moved) const {
  const auto in = [&moved](Bytes content) { return moved.any_in(0, content); };
  const Recovery& recovery = *session_.recovery();
  const std::vector<Bytes> saved = session_.recovery()->marks().graphs().contents();
  if (std::any_of(saved.begin(), saved.end(), in)) return true;
  return recovery.before() &&
         std::any_of(recovery.before()->graphs.begin(), recovery.before()->graphs.end(),
                     [&](const GraphLog::Entry& entry) { return in(entry.content); });
}

}  // namespace flyt::server
