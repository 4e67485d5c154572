#include "client/graphs/captures.h"

#include <algorithm>
#include <utility>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/event.h"
#include "commands/graph.h"
#include "commands/stream.h"

namespace flyt::client {
namespace {

// What makes the capture of a stream invalid: the driver is asked whether it is done.
CUresult query(Session& session, CUstream stream) {
  commands::StreamQuery::Reply reply;
  rpc::Reply answer;
  return session.ask(commands::StreamQuery{.stream = stream}, reply, answer);
}

}  // namespace

bool is_capture_error(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

// A thread's own default stream is another one in each thread.
std::vector<Captures::Capture>::iterator Captures::find(CUstream stream) {
  const bool own = stream == CU_STREAM_PER_THREAD;
  return std::find_if(captures_.begin(), captures_.end(), [&](const Capture& capture) {
    return capture.stream == address_of(stream) && (!own || capture.thread == &thread_state());
  });
}

void Captures::begun(CUstream stream, CUstreamCaptureMode mode, std::uint64_t graph) {
  const StreamState* state = session_.memory().streams.find(address_of(stream));
  const Lock lock(mutex_);
  captures_.push_back({address_of(stream), &thread_state(), mode, graph,
                       state != nullptr ? state->context : thread_state().current_state});
  count();
}

void Captures::settle(CUstream stream) {
  if (!any()) return;
  {
    const Lock lock(mutex_);
    const auto capture = find(stream);
    if (capture == captures_.end() || !std::exchange(capture->doomed, false)) return;
  }
  static_cast<void>(query(session_, stream));
}

CUresult Captures::before_end(CUstream stream) {
  settle(stream);
  const Lock lock(mutex_);
  const auto capture = find(stream);
  if (capture == captures_.end()) return CUDA_SUCCESS;
  const bool foreign =
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_state();
  return foreign ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD : CUDA_SUCCESS;
}

std::uint64_t Captures::ended(CUstream stream) {
  const Lock lock(mutex_);
  const auto capture = find(stream);
  if (capture == captures_.end()) return 0;
  const std::uint64_t graph = capture->graph;
  captures_.erase(capture);
  count();
  return graph;
}

void Captures::on_stream_destroyed(CUstream stream) {
  if (any()) static_cast<void>(ended(stream));
}

void Captures::on_context_destroyed(const ContextState& context) {
  if (!any()) return;
  const Lock lock(mutex_);
  std::erase_if(captures_, [&](const Capture& each) { return each.context == &context; });
  count();
}

void Captures::on_thread_ends() {
  if (!any()) return;
  const Lock lock(mutex_);
  std::erase_if(captures_, [](const Capture& each) {
    return each.stream == address_of(CU_STREAM_PER_THREAD) && each.thread == &thread_state();
  });
  count();
}

CUresult Captures::judge() {
  const CUstreamCaptureMode own = thread_state().capture_mode;
  if (own == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::vector<CUstream> forbidding;
  bool forbidden = false;
  {
    const Lock lock(mutex_);
    for (Capture& capture : captures_) {
      const bool mine = capture.thread == &thread_state();
      const bool local = mine && capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
      const bool global =
          own == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (!local && !global) continue;
      forbidden = true;
      // The default stream of another thread cannot be named here.
      capture.doomed = !mine && capture.stream == address_of(CU_STREAM_PER_THREAD);
      if (!capture.doomed) forbidding.push_back(static_cast<CUstream>(pointer_at(capture.stream)));
    }
  }
  for (const CUstream stream : forbidding) static_cast<void>(query(session_, stream));
  return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult Captures::wait_call(CUstream stream) {
  if (!any()) return CUDA_SUCCESS;
  const CUresult asked = query(session_, stream);
  return is_capture_error(asked) ? asked : judge();
}

CUresult Captures::event_call(CUevent event) {
  if (!any()) return CUDA_SUCCESS;
  commands::EventQuery::Reply reply;
  rpc::Reply answer;
  const CUresult asked = session_.ask(commands::EventQuery{.event = event}, reply, answer);
  // What is wrong with the event itself is told first, and leaves captures as they are.
  return asked != CUDA_SUCCESS && asked != CUDA_ERROR_NOT_READY ? asked : judge();
}

CUresult Captures::work_call(CUstream stream, std::uint64_t& graph) {
  graph = 0;
  if (!any()) return CUDA_SUCCESS;
  settle(stream);
  commands::CaptureInfo::Reply reply;
  rpc::Reply answer;
  const CUresult result = session_.ask(commands::CaptureInfo{.stream = stream}, reply, answer);
  // Work for a legacy stream that would wait for a captured one makes that capture invalid.
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return query(session_, stream);
  if (result != CUDA_SUCCESS) return result;
  if (reply.status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  if (reply.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) graph = reply.graph;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client
