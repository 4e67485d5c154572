#include "softgpu/capture.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "softgpu/current.h"

namespace flyt::softgpu {
namespace {

// The graph stays in the capture until it ends; from now on nothing is added to it.
void invalidate(Capture& capture) { capture.valid = false; }

// The GraphStore's mutex is held, often by with_graphs(), through which clang does not see.

// Is a stream capturing that orders itself with that legacy one? Calls visit(capture) for each.
template <class Visit>
bool blocking_captures(GraphStore& graphs, const Stream& legacy,
                       Visit visit) NO_THREAD_SAFETY_ANALYSIS {
  bool found = false;
  const auto partition = legacy.partition();
  for (const auto& capture : graphs.captures()) {
    const bool blocks = std::any_of(capture->streams.begin(), capture->streams.end(),
                                    [&partition](const auto& stream) {
                                      return stream->partition() == partition && stream->blocking();
                                    });
    if (!blocks) continue;
    found = true;
    visit(*capture);
  }
  return found;
}

CUresult check_legacy(GraphStore& graphs, const Stream& stream) {
  if (!stream.legacy()) return CUDA_SUCCESS;
  return blocking_captures(graphs, stream, invalidate) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                       : CUDA_SUCCESS;
}

// The frontier's nodes that still exist.
std::vector<Edge> edges_of(GraphStore& graphs, const Frontier& frontier) {
  std::vector<Edge> edges;
  for (const CapturePoint& point : frontier) {
    if (const auto node = graphs.nodes().find(point.node)) {
      edges.push_back({node.get(), point.data});
    }
  }
  return edges;
}

// Adds the node to a capture that was found valid; the stream continues behind it.
GraphNode& append(GraphStore& graphs, StreamCapture& part, Work work, bool programmatic) {
  std::vector<Edge> edges = edges_of(graphs, part.frontier);
  for (Edge& edge : edges) {
    // Only a kernel can let its successor begin early.
    if (!programmatic || !std::holds_alternative<KernelWork>(edge.node->work)) continue;
    edge.data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    edge.data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  }
  GraphNode& node = part.capture->graph->add(std::move(work), edges);
  part.frontier = {{node.handle, kPlainEdge}};
  return node;
}

// Nodes before those of the frontier, and these.
std::unordered_set<std::uint64_t> reached_from(GraphStore& graphs, const Frontier& frontier) {
  std::unordered_set<std::uint64_t> reached;
  std::vector<const GraphNode*> left;
  for (const Edge& edge : edges_of(graphs, frontier)) left.push_back(edge.node);
  while (!left.empty()) {
    const GraphNode* node = left.back();
    left.pop_back();
    if (!reached.insert(node->handle).second) continue;
    for (const Edge& edge : node->dependencies) left.push_back(edge.node);
  }
  return reached;
}

bool all_joined(GraphStore& graphs, const Capture& capture, const Stream& origin) {
  const auto reached = reached_from(graphs, origin.capture()->frontier);
  for (const auto& stream : capture.streams) {
    if (stream.get() == &origin || stream->capture() == nullptr) continue;
    for (const CapturePoint& point : stream->capture()->frontier) {
      if (graphs.nodes().find(point.node) != nullptr && !reached.contains(point.node)) return false;
    }
  }
  return true;
}

// Takes all streams out of it.
void finish(GraphStore& graphs, Capture& capture) NO_THREAD_SAFETY_ANALYSIS {
  capture.ended = true;
  if (capture.graph != nullptr) --capture.graph->captures;
  for (const auto& stream : std::exchange(capture.streams, {})) stream->set_capture(nullptr);
  graphs.remove(&capture);
}

void join(const std::shared_ptr<Capture>& capture, const std::shared_ptr<Stream>& stream,
          Frontier frontier) {
  auto part = std::make_shared<StreamCapture>();
  part->capture = capture;
  part->frontier = std::move(frontier);
  stream->set_capture(std::move(part));
  capture->streams.push_back(stream);
}

// The stream's valid part in a capture, or why there is none.
CUresult valid_part(const Stream& stream, StreamCapture** part) {
  *part = stream.capture();
  if (*part == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  return (*part)->capture->valid ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

}  // namespace

void merge(Frontier& into, const Frontier& from) {
  for (const CapturePoint& point : from) {
    const bool there = std::any_of(into.begin(), into.end(), [&point](const CapturePoint& other) {
      return other.node == point.node;
    });
    if (!there) into.push_back(point);
  }
}

bool legacy_is_captured(Driver& driver, const Stream& legacy) {
  return blocking_captures(driver.graphs(), legacy, [](const Capture&) {});
}

CUresult check_work(Driver& driver, const Context& context, const Stream& stream) {
  GraphStore& graphs = driver.graphs();
  const Lock lock(graphs.mutex());
  if (stream.capture() != nullptr && !stream.capture()->capture->valid) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return check_legacy(graphs, stream);
}

CUresult check_waiting_work(Driver& driver, const Context& context, const Stream& stream) {
  GraphStore& graphs = driver.graphs();
  const Lock lock(graphs.mutex());
  if (stream.capture() == nullptr) return check_legacy(graphs, stream);
  Capture& capture = *stream.capture()->capture;
  if (!capture.valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  invalidate(capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult check_wait(Driver& driver, const Context& context, const Stream& stream) {
  const CUresult bad = check_waiting_work(driver, context, stream);
  return bad != CUDA_SUCCESS ? bad : check_unsafe(driver);
}

CUresult check_not_captured(Driver& driver, const Context& context, const Partition& partition) {
  GraphStore& graphs = driver.graphs();
  if (!graphs.capturing()) return CUDA_SUCCESS;
  const bool whole = &partition == context.whole().get();
  const Lock lock(graphs.mutex());
  bool found = false;
  for (const auto& capture : graphs.captures()) {
    for (const auto& stream : capture->streams) {
      const bool of_it =
          whole ? stream->context() == context.handle() : stream->partition().get() == &partition;
      if (!of_it) continue;
      found = true;
      invalidate(*capture);
    }
  }
  return found ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult check_context_wait(Driver& driver, const Context& context, const Partition& partition) {
  const CUresult bad = check_not_captured(driver, context, partition);
  return bad != CUDA_SUCCESS ? bad : check_unsafe(driver);
}

CUresult check_unsafe(Driver& driver) {
  GraphStore& graphs = driver.graphs();
  if (!graphs.capturing()) return CUDA_SUCCESS;
  const CUstreamCaptureMode own = thread_capture_mode();
  if (own == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  const std::uint64_t thread = thread_number();
  const Lock lock(graphs.mutex());
  bool forbidden = false;
  for (const auto& capture : graphs.captures()) {
    const bool local = capture->thread == thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool global =
        own == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!local && !global) continue;
    forbidden = true;
    invalidate(*capture);
  }
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult check_event(Driver& driver, const Event& event) {
  if (const auto captured = event.capture()) {
    const Lock lock(driver.graphs().mutex());
    invalidate(*captured->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return check_unsafe(driver);
}

CUresult capture_work(Driver& driver, Stream& stream, Work work) {
  const Lock lock(driver.graphs().mutex());
  StreamCapture* part = nullptr;
  if (const CUresult bad = valid_part(stream, &part); bad != CUDA_SUCCESS) return bad;
  append(driver.graphs(), *part, std::move(work), false);
  return CUDA_SUCCESS;
}

CUresult capture_kernel(Driver& driver, Stream& stream, const Context& context,
                        const std::shared_ptr<Function>& function, LaunchRequest request) {
  KernelWork work;
  work.context = context.handle();
  work.function = function;
  const bool is_kernel = driver.kernels().find(from_handle(request.handle)) != nullptr;
  if (is_kernel) {
    work.kern = to_handle<CUkernel>(from_handle(request.handle));
  } else {
    work.func = request.handle;
  }
  const bool programmatic = request.programmatic;
  const bool has_priority = std::any_of(
      request.attributes.begin(), request.attributes.end(),
      [](const CUlaunchAttribute& each) { return each.id == CU_LAUNCH_ATTRIBUTE_PRIORITY; });
  if (!has_priority && stream.priority() != 0) {
    CUlaunchAttribute priority{};
    priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    priority.value.priority = stream.priority();
    request.attributes.push_back(priority);
  }
  work.request = std::move(request);
  const Lock lock(driver.graphs().mutex());
  StreamCapture* part = nullptr;
  if (const CUresult bad = valid_part(stream, &part); bad != CUDA_SUCCESS) return bad;
  append(driver.graphs(), *part, std::move(work), programmatic);
  return CUDA_SUCCESS;
}

CUresult capture_copy(Driver& driver, Stream& stream, const Context& context,
                      const CopyRequest& request) {
  CopyWork work{context.handle(), describe_copy(driver.regions(), request), request};
  note_known(driver.regions(), work.request);
  return capture_work(driver, stream, std::move(work));
}

CUresult capture_fill(Driver& driver, Stream& stream, const Context& context,
                      const FillRequest& request) {
  FillWork work;
  work.context = context.handle();
  work.request = request;
  work.params.dst = request.to.address;
  work.params.pitch = request.to.pitch;
  work.params.value = request.value;
  work.params.elementSize = request.element_bytes;
  work.params.width = request.extent.width / request.element_bytes;
  work.params.height = request.extent.height;
  work.params.ctx = to_handle<CUcontext>(context.handle());
  return capture_work(driver, stream, std::move(work));
}

CUresult capture_words(Driver& driver, Stream& stream, const Context& context,
                       std::vector<MemoryWord> words) {
  WordsWork work;
  work.context = context.handle();
  for (const MemoryWord& word : words) work.batch.push_back(batch_entry(word));
  work.words = std::move(words);
  return capture_work(driver, stream, std::move(work));
}

CUresult capture_record(Driver& driver, Stream& stream, CUevent handle,
                        const std::shared_ptr<Event>& event, bool external) {
  const Lock lock(driver.graphs().mutex());
  StreamCapture* part = nullptr;
  if (const CUresult bad = valid_part(stream, &part); bad != CUDA_SUCCESS) return bad;
  if (external) {
    append(driver.graphs(), *part, RecordWork{handle, event}, false);
    return CUDA_SUCCESS;
  }
  event->set_capture(
      std::make_shared<const EventCapture>(EventCapture{part->capture, part->frontier}));
  return CUDA_SUCCESS;
}

CUresult capture_wait(Driver& driver, const std::shared_ptr<Stream>& stream, bool legacy,
                      CUevent handle, const std::shared_ptr<Event>& event, bool external) {
  const Lock lock(driver.graphs().mutex());
  StreamCapture* part = stream->capture();
  if (part != nullptr && !part->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const auto captured = event->capture();
  if (external) {
    // Only a stream that captures has a graph for it.
    if (part == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    append(driver.graphs(), *part, WaitWork{handle, event}, false);
    return CUDA_SUCCESS;
  }
  if (captured == nullptr) {
    if (part == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    invalidate(*part->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (captured->capture->ended) {
    if (part != nullptr) invalidate(*part->capture);
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  if (!captured->capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (legacy) {
    invalidate(*captured->capture);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (part == nullptr) {
    join(captured->capture, stream, captured->frontier);
    return CUDA_SUCCESS;
  }
  if (part->capture != captured->capture) {
    invalidate(*part->capture);
    invalidate(*captured->capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  merge(part->frontier, captured->frontier);
  return CUDA_SUCCESS;
}

CUresult begin_capture(Driver& driver, const Context& context,
                       const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       std::shared_ptr<Graph> graph, Frontier frontier) NO_THREAD_SAFETY_ANALYSIS {
  GraphStore& graphs = driver.graphs();
  if (stream->legacy()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture() != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_shared<Capture>();
  capture->id = graphs.next_capture();
  capture->mode = mode;
  capture->thread = thread_number();
  capture->origin = stream;
  capture->given = graph != nullptr;
  capture->graph = graph != nullptr ? std::move(graph) : Graph::make(&driver);
  ++capture->graph->captures;
  join(capture, stream, std::move(frontier));
  graphs.add(std::move(capture));
  return CUDA_SUCCESS;
}

CUresult end_capture(Driver& driver, Stream& stream, CUgraph* out) {
  GraphStore& graphs = driver.graphs();
  const Lock lock(graphs.mutex());
  if (stream.capture() == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  const std::shared_ptr<Capture> capture = stream.capture()->capture;
  if (capture->origin.lock().get() != &stream) {
    invalidate(*capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->thread != thread_number() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
    result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  } else if (!capture->valid) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!all_joined(graphs, *capture, stream)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  finish(graphs, *capture);
  const std::shared_ptr<Graph> graph = std::exchange(capture->graph, nullptr);
  if (result == CUDA_SUCCESS) {
    if (out != nullptr) {
      *out = to_handle<CUgraph>(graph->handle());
    } else if (!capture->given) {
      graphs.graphs().take(graph->handle());
    }
    return CUDA_SUCCESS;
  }
  if (out != nullptr) *out = nullptr;
  if (!capture->given) graphs.graphs().take(graph->handle());
  return result;
}

namespace {

// Ends the capture without a graph.
void drop(GraphStore& graphs, const std::shared_ptr<Capture>& capture) {
  invalidate(*capture);
  finish(graphs, *capture);
  const std::shared_ptr<Graph> graph = std::exchange(capture->graph, nullptr);
  if (!capture->given) graphs.graphs().take(graph->handle());
}

}  // namespace

void abandon_capture(Driver& driver, Stream& stream) {
  GraphStore& graphs = driver.graphs();
  const Lock lock(graphs.mutex());
  if (stream.capture() == nullptr) return;
  const std::shared_ptr<Capture> capture = stream.capture()->capture;
  if (capture->origin.lock().get() == &stream) drop(graphs, capture);
}

void abandon_captures(Driver& driver, const Context& context) {
  GraphStore& graphs = driver.graphs();
  const Lock lock(graphs.mutex());
  for (const auto& capture : std::vector<std::shared_ptr<Capture>>(graphs.captures())) {
    const bool concerned = std::any_of(
        capture->streams.begin(), capture->streams.end(),
        [&context](const auto& stream) { return stream->context() == context.handle(); });
    if (concerned) drop(graphs, capture);
  }
}

}  // namespace flyt::softgpu
