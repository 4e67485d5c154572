// Graphs that are again what they were, in another process of the session.
#include <unordered_map>

#include "server/graphs/exec_origin.h"
#include "server/graphs/graph_builder.h"
#include "server/graphs/graph_copy.h"
#include "server/graphs/graph_records.h"
#include "server/graphs/graphs.h"
#include "server/lease/moves.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server {
namespace {

Error damaged() { return {ErrorCode::kInvalid, "what graphs were is not as it was written"}; }

// What a node named was ended by the program, and nobody can make that node.
bool has_ended(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT;
}

// The client's names of all nodes, by their places.
void number(const GraphImage& image, std::size_t& place,
            std::unordered_map<std::uint64_t, std::size_t>& numbers) {
  for (std::size_t i = 0; i < image.nodes.size(); ++i) {
    if (image.names[i] != 0) numbers[image.names[i]] = place;
    ++place;
    if (image.nodes[i]->child != nullptr) number(*image.nodes[i]->child, place, numbers);
  }
}

}  // namespace

Status GraphRecords::restore(Request& request) {
  const auto& before = session_.recovery()->before();
  if (restored_ || !before) return {};
  restored_ = true;
  session_.graphs().begin_names_at(before->graph_names);
  session_.recovery()->marks().set_graph_names(before->graph_names);
  // The program knows of others, and that its work is lost.
  if (before->unsaved_graphs) return {};
  const std::vector<GraphLog::Entry> entries = session_.recovery()->take_graphs();
  std::size_t left_out = 0;
  for (const GraphLog::Kind kind : {GraphLog::Kind::kGraph, GraphLog::Kind::kExec}) {
    for (const GraphLog::Entry& entry : entries) {
      if (entry.key.first != kind) continue;
      CUresult result = CUDA_SUCCESS;
      Status made = kind == GraphLog::Kind::kGraph ? restore_graph(request, entry, result)
                                                   : restore_exec(request, entry, result);
      if (!made) return made;
      if (result == CUDA_SUCCESS) continue;
      ++left_out;
      // With work under way the program has to start over anyway.
      if (has_ended(result) || before->work != before->done) continue;
      return Error{ErrorCode::kUnsupported,
                   "making a graph again failed with " + std::to_string(result)};
    }
  }
  if (left_out != 0) {
    session_.log().info("graphs are left out, because what they used has ended",
                        {{"graphs", left_out}});
  }
  save();
  return {};
}

Status GraphRecords::restore_graph(Request& request, const GraphLog::Entry& entry,
                                   CUresult& result) {
  const driver::Table& driver = session_.driver();
  Reader reader(entry.content);
  const auto context = reader.take<std::uint64_t>();
  auto image = read_image(reader);
  if (!image) return std::move(image).error();
  if (!reader.finished() || (*image)->name != entry.key.second) return damaged();
  result = session_.enter(static_cast<std::uint32_t>(context));
  CUgraph native = nullptr;
  if (result == CUDA_SUCCESS) result = GraphBuilder(request).build(**image, native);
  if (result != CUDA_SUCCESS) return {};
  const auto made = with_natives(driver, **image, native);
  if (made == nullptr) {
    driver.cuGraphDestroy(native);
    result = CUDA_ERROR_UNKNOWN;
    return {};
  }
  if (Status named = name_all(*made, 0); !named) return named;
  Graph& graph = graphs_[entry.key.second];
  graph.context = static_cast<std::uint32_t>(context);
  take_nodes(*made, graph.nodes);
  graph.image = made;
  touch();
  return {};
}

Status GraphRecords::name_all(const GraphImage& image, std::uint64_t around) {
  Graphs& graphs = session_.graphs();
  if (image.name == 0) return {};
  if (!graphs.restore_graph(image.name, image.native, around)) return damaged();
  for (std::size_t i = 0; i < image.nodes.size(); ++i) {
    const std::uint64_t name = image.names[i];
    if (name == 0) continue;
    if (!graphs.restore_node(name, image.natives[i], image.name)) return damaged();
    const GraphImage* const child = image.nodes[i]->child.get();
    if (child == nullptr) continue;
    if (Status named = name_all(*child, name); !named) return named;
  }
  return {};
}

// It is made of a graph of its own, because the client's may be another one since, or gone.
Status GraphRecords::restore_exec(Request& request, const GraphLog::Entry& entry,
                                  CUresult& result) {
  const driver::Table& driver = session_.driver();
  Exec exec;
  Reader reader(entry.content);
  exec.context = static_cast<std::uint32_t>(reader.take<std::uint64_t>());
  exec.graph = reader.take<std::uint64_t>();
  exec.flags = reader.take<std::uint64_t>();
  const auto disabled = reader.take<std::uint64_t>();
  if (disabled > reader.remaining() / sizeof(std::uint64_t)) return damaged();
  for (std::uint64_t i = 0; i < disabled; ++i) exec.disabled.insert(reader.take<std::uint64_t>());
  auto image = read_image(reader);
  if (!image) return std::move(image).error();
  if (!reader.finished()) return damaged();
  result = session_.enter(exec.context);
  CUgraph graph = nullptr;
  if (result == CUDA_SUCCESS) result = GraphBuilder(request).build(**image, graph);
  if (result != CUDA_SUCCESS) return {};
  const auto copy = GraphCopy::take(driver, graph);
  CUgraphExec native = nullptr;
  result = copy == nullptr ? CUDA_ERROR_UNKNOWN
                           : driver.cuGraphInstantiateWithFlags(
                                 &native, copy->graph(),
                                 exec.flags & ~std::uint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD});
  if (result != CUDA_SUCCESS) return {};
  for (const std::uint64_t place : exec.disabled) {
    if (place >= copy->size()) return damaged();
    const CUresult disabling = driver.cuGraphNodeSetEnabled(native, copy->node(place), 0);
    if (disabling != CUDA_SUCCESS) result = disabling;
  }
  std::unordered_map<std::uint64_t, std::size_t> numbers;
  std::size_t place = 0;
  number(**image, place, numbers);
  auto origin = ExecOrigin::restored(session_, copy, std::move(numbers), exec.flags);
  if (!session_.handles().put(wire::HandleKind::kGraphExec, entry.key.second, native, origin)) {
    return damaged();
  }
  session_.graphs().note_exec(entry.key.second, exec.context);
  exec.base = with_named_natives(**image);
  exec.content = *image;
  execs_[entry.key.second] = std::move(exec);
  touch();
  return {};
}

GraphImageRef GraphRecords::with_named_natives(const GraphImage& image) const {
  const auto known = std::make_shared<GraphImage>(image);
  for (std::size_t i = 0; i < image.nodes.size(); ++i) {
    known->natives.push_back(session_.graphs().node(image.names[i]));
    if (image.nodes[i]->child == nullptr) continue;
    const auto around = std::make_shared<NodeImage>(*image.nodes[i]);
    around->child = with_named_natives(*image.nodes[i]->child);
    known->nodes[i] = around;
  }
  return known;
}

}  // namespace flyt::server
