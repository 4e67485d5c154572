// Capture: streams whose work becomes nodes of a graph instead of being done.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "softgpu/capture_checks.h"
#include "softgpu/graph.h"

namespace flyt::softgpu {

// A node that the next one of a stream will depend on. By handle: the program may destroy it.
struct CapturePoint {
  std::uint64_t node = 0;
  CUgraphEdgeData data{};
};
using Frontier = std::vector<CapturePoint>;

// One cuStreamBeginCapture and what has joined it. Guarded by the GraphStore's mutex.
struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::uint64_t thread = 0;
  std::weak_ptr<Stream> origin;
  std::shared_ptr<Graph> graph;  // Without a handle in the program's hands until the end,
  bool given = false;            // unless it was the program's before.
  bool valid = true;
  bool ended = false;
  std::vector<std::shared_ptr<Stream>> streams;
};

// A stream's part in a capture.
struct StreamCapture {
  std::shared_ptr<Capture> capture;
  Frontier frontier;
  // What cuStreamGetCaptureInfo pointed to.
  std::vector<CUgraphNode> told_nodes;
  std::vector<CUgraphEdgeData> told_edges;
};

// An event that was recorded in a capturing stream.
struct EventCapture {
  std::shared_ptr<Capture> capture;
  Frontier frontier;
};

// Makes the work a node of the capture of the stream, which is capturing.
CUresult capture_work(Driver& driver, Stream& stream, Work work);
CUresult capture_kernel(Driver& driver, Stream& stream, const Context& context,
                        const std::shared_ptr<Function>& function, LaunchRequest request);
CUresult capture_copy(Driver& driver, Stream& stream, const Context& context,
                      const CopyRequest& request);
CUresult capture_fill(Driver& driver, Stream& stream, const Context& context,
                      const FillRequest& request);
CUresult capture_words(Driver& driver, Stream& stream, const Context& context,
                       std::vector<MemoryWord> words);

// cuEventRecord in a capturing stream.
CUresult capture_record(Driver& driver, Stream& stream, CUevent handle,
                        const std::shared_ptr<Event>& event, bool external);
// cuStreamWaitEvent where the stream captures or the event was captured: joins, or forks.
CUresult capture_wait(Driver& driver, const std::shared_ptr<Stream>& stream, bool legacy,
                      CUevent handle, const std::shared_ptr<Event>& event, bool external);

// With the GraphStore's mutex held: is a blocking stream of the context capturing, so that its
// legacy stream has no status?
bool legacy_is_captured(Driver& driver, const Stream& legacy);
void merge(Frontier& into, const Frontier& from);

// With the GraphStore's mutex held. `graph`: null for a new one. `frontier`: what the first work
// depends on.
CUresult begin_capture(Driver& driver, const Context& context,
                       const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode,
                       std::shared_ptr<Graph> graph, Frontier frontier);
CUresult end_capture(Driver& driver, Stream& stream, CUgraph* out);
// Before a stream loses its handle: a capture that began with it ends. One that it has joined goes
// on, and still wants its work to be joined.
void abandon_capture(Driver& driver, Stream& stream);
// Ends all captures that streams of the context take part in.
void abandon_captures(Driver& driver, const Context& context);

}  // namespace flyt::softgpu
