// Events.
#include "client/hooks_event.h"

#include "client/call.h"
#include "client/hooks_context.h"
#include "client/memory_state.h"
#include "client/streams/watched_query.h"
#include "commands/context.h"
#include "commands/event.h"

namespace flyt::client::hooks {
namespace {

EventState& state_of(CUevent event) { return *session().memory().events.find(address_of(event)); }

// The fence that was posted behind a record, and what the program may have known before.
struct FenceBehind {
  std::uint64_t revelations = 0;
  std::uint64_t fence = 0;  // 0: none.
};

// Asks the server unless the answer is known; `ask_server` waits or just looks.
template <class Ask>
CUresult completion(CUevent event, Ask&& ask_server) {
  if (const CUresult result = check(event); result != CUDA_SUCCESS) return result;
  EventState& state = state_of(event);
  const ContextOf home(state.context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult no = session().captures().event_call(event); no != CUDA_SUCCESS) return no;
  // Records that come after this line are another question.
  const std::uint64_t records = state.records.load();
  if (state.known_done()) return session().take_posted_error();
  if (!state.asked.load(std::memory_order_relaxed)) state.asked.store(true);
  const CUresult result = ask_server();
  if (result == CUDA_SUCCESS) state.done.store(records);
  return result;
}

// After the command that records it was sent, with that result.
void recorded(CUevent event, EventState& state, CUresult result, const FenceBehind& behind = {}) {
  // Only now: a query sent before it that counts it already would take the event for done.
  const std::uint64_t record = state.records.fetch_add(1) + 1;
  if (behind.fence != 0) state.fence.set(record, behind.fence, behind.revelations);
  const bool shared = (state.flags & CU_EVENT_INTERPROCESS) != 0;
  if (result == CUDA_SUCCESS && shared && !session().captures().any()) {
    // Another process may wait for it as soon as this returns, so the server must have it by then.
    static_cast<void>(ask(commands::EventQuery{.event = event}));
  }
}

// A live context without an error.
CUresult find(CUcontext handle, ContextState*& context) {
  if (const CUresult result = check(handle); result != CUDA_SUCCESS) return result;
  context = session().contexts().find(handle);
  return static_cast<CUresult>(context->home->sticky.load());
}

}  // namespace

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  constexpr unsigned int kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  const bool shared_and_timed =
      (Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0;
  if (phEvent == nullptr || (Flags & ~kKnown) != 0 || shared_and_timed) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryState& memory = session().memory();
  const auto made = memory.events.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  made.state->context = &owner();
  made.state->flags = Flags;
  const auto event = static_cast<CUevent>(pointer_at(made.handle));
  const CUresult result =
      session().post_and_note(commands::EventCreate{.event = event, .flags = Flags},
                              [&] { memory.events.publish(made.handle); });
  if (result != CUDA_SUCCESS) {
    memory.events.discard(made.handle);
    return result;
  }
  *phEvent = event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  return cuEventRecordWithFlags(hEvent, hStream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  if (const CUresult result = check(hEvent); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  const bool external = flags == CU_EVENT_RECORD_EXTERNAL;
  const bool capturing = session().captures().any();
  // External records exist only while a stream is captured.
  if (external && !capturing) return CUDA_ERROR_ILLEGAL_STATE;
  if (!external && flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  MemoryState& memory = session().memory();
  EventState& state = state_of(hEvent);
  const StreamState* stream = memory.streams.find(address_of(hStream));
  const ContextState* home = stream != nullptr ? stream->context->home : &owner();
  if (home != state.context) return CUDA_ERROR_INVALID_HANDLE;
  give_work(hStream);
  if (external) state.in_graphs = true;
  state.captured = capturing && !external;
  FenceBehind behind{.revelations = memory.watches().revelations()};
  const CUresult result =
      post(commands::EventRecord{.event = hEvent, .stream = hStream, .flags = flags});
  const bool fenced = result == CUDA_SUCCESS && !capturing && state.asked.load() && state.ours();
  if (fenced) behind.fence = memory.fences().mark(context(), hStream);
  recorded(hEvent, state, result, behind);
  return result;
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  ContextState* context = nullptr;
  if (const CUresult result = find(hCtx, context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check(hEvent); result != CUDA_SUCCESS) return result;
  EventState& state = state_of(hEvent);
  if (context->home != state.context) return CUDA_ERROR_INVALID_HANDLE;
  const ContextScope scope(context);
  const CUresult result = post(commands::ContextRecordEvent{
      .context = static_cast<CUcontext>(pointer_at(context->handle)), .event = hEvent});
  recorded(hEvent, state, result);
  return result;
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  ContextState* context = nullptr;
  if (const CUresult result = find(hCtx, context); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check(hEvent); result != CUDA_SUCCESS) return result;
  // An event that was never recorded, or is known to be over, holds nothing up.
  if (state_of(hEvent).known_done()) return CUDA_SUCCESS;
  const ContextScope scope(context);
  return post(commands::ContextWaitEvent{
      .context = static_cast<CUcontext>(pointer_at(context->handle)), .event = hEvent});
}

CUresult cuEventQuery(CUevent hEvent) {
  return completion(hEvent, [&] { return query_event(session(), hEvent, state_of(hEvent)); });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return completion(hEvent, [&] { return wait_for_event(session(), hEvent, state_of(hEvent)); });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  if (const CUresult result = check(hEvent); result != CUDA_SUCCESS) return result;
  const ContextOf home(state_of(hEvent).context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (!session().memory().events.drop(address_of(hEvent))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return post(commands::EventDestroy{.event = hEvent});
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  if (pMilliseconds == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const CUevent event : {hStart, hEnd}) {
    if (const CUresult result = check(event); result != CUDA_SUCCESS) return result;
    const EventState& state = state_of(event);
    const bool recorded = state.records.load() != 0 || state.in_graphs.load();
    if (!recorded || (state.flags & CU_EVENT_DISABLE_TIMING) != 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
  }
  const ContextOf home(state_of(hStart).context);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  commands::EventElapsedTime::Reply reply;
  const CUresult result = call(commands::EventElapsedTime{.start = hStart, .end = hEnd}, reply);
  if (result == CUDA_SUCCESS) *pMilliseconds = reply.milliseconds;
  return result;
}

}  // namespace flyt::client::hooks
