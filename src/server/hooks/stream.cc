// Streams, their attributes and the client's functions in them.
#include "server/hooks_stream.h"

#include <memory>
#include <utility>

#include "server/code/launch_attributes.h"
#include "server/context_subjects.h"
#include "server/graphs/graphs.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"
#include "wire/graphs.h"

namespace flyt::server::hooks {
namespace {

// What a stream that ends has not done yet is under way all the same.
void note_work(Session& session, const StreamOwner* owner) {
  if (owner == nullptr || session.recovery() == nullptr || session.recovery()->spoilt()) return;
  // A question would end it.
  if (session.graphs().capturing(owner->stream())) return;
  if (session.enter(owner->context()) != CUDA_SUCCESS) return;
  session.memory().ended_streams.note(owner->context(), owner->stream());
}

// Before it ends, and its address comes back as another one's.
void forget(Session& session, std::uint32_t context, CUstream stream) {
  session.enter(context);
  session.moves().note_end(context, stream);
  session.memory().depths.forget(stream);
  session.memory().pools.forget_stream(stream);
  session.graphs().forget_stream(stream);
}

}  // namespace

CUresult stream_create(Request& request, const commands::StreamCreate& command) {
  CUstream stream = nullptr;
  // In a green context too, which is current then.
  const CUresult result =
      request.driver().cuStreamCreateWithPriority(&stream, command.flags, command.priority);
  if (result != CUDA_SUCCESS) return result;
  Session& session = request.session();
  auto owner = std::make_shared<StreamOwner>(request.driver(), request.context(), stream,
                                             session.moves().part_of(request.context()));
  if (!session.handles().put(wire::HandleKind::kStream, address_of(command.stream), stream,
                             std::move(owner))) {
    session.end("stream_create: the handle is malformed or in use");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

CUresult stream_destroy(Request& request, const commands::StreamDestroy& command) {
  Session& session = request.session();
  Handles::Entry entry =
      session.handles().drop(wire::HandleKind::kStream, address_of(command.stream));
  if (entry.handle == 0) return session.ended_before(CUDA_ERROR_INVALID_HANDLE);
  const auto* const owner = dynamic_cast<const StreamOwner*>(entry.attachment.get());
  session.memory().holds.seal();
  note_work(session, owner);
  forget(session, request.context(), static_cast<CUstream>(entry.native));
  if (owner != nullptr) session.contexts().note_ended_stream(owner->context());
  // The driver finishes the stream's work by itself, and a capture ends.
  entry.attachment.reset();
  return CUDA_SUCCESS;
}

CUresult end_thread(Request& request, const commands::EndThread&) {
  Session& session = request.session();
  auto streams = session.contexts().take_thread_streams(request.thread());
  if (!streams.empty()) session.memory().holds.seal();
  for (auto& owner : streams) {
    note_work(session, owner.get());
    forget(session, owner->context(), owner->stream());
    session.contexts().note_ended_stream(owner->context());
    owner.reset();  // As above.
  }
  return CUDA_SUCCESS;
}

CUresult stream_wait_event(Request& request, const commands::StreamWaitEvent& command) {
  CUstream stream = command.stream;
  CUevent event = command.event;
  if (!request.resolve(stream) || !request.resolve(event)) return CUDA_ERROR_INVALID_HANDLE;
  Session& session = request.session();
  session.memory().depths.count(request.context(), stream);
  if (!session.graphs().capturing()) {
    return request.driver().cuStreamWaitEvent(stream, event, command.flags);
  }
  // The stream may join a capture, which must not find events of our own in it, or copies.
  if (session.memory().deliveries.issues_into(stream)) return CUDA_ERROR_ILLEGAL_STATE;
  session.memory().holds.seal();
  const Lock lock(session.graphs().joining());
  return request.driver().cuStreamWaitEvent(stream, event, command.flags);
}

CUresult stream_query(Request& request, const commands::StreamQuery& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  return request.session().moves().query(stream);
}

CUresult watch_stream(Request& request, const commands::WatchStream& command,
                      commands::WatchStream::Reply& reply) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = request.session().moves().query(stream);
  MemorySubjects& memory = request.session().memory();
  if (result != CUDA_ERROR_NOT_READY || memory.watches.full()) return result;
  CUresult marked = CUDA_SUCCESS;
  const auto end = memory.events.record(request.context(), stream, marked);
  if (end == nullptr) return result;
  reply.watched =
      memory.watches.add(command.token, Watches::For::kProgram, [end] { return end->poll(); });
  return result;
}

// Whatever becomes of it, the client waits until it is told.
CUresult mark_stream(Request& request, const commands::MarkStream& command) {
  MemorySubjects& memory = request.session().memory();
  CUstream stream = command.stream;
  std::shared_ptr<Fence> end;
  CUresult marked = CUDA_SUCCESS;
  if (request.resolve(stream) && !memory.watches.full() &&
      !request.session().graphs().capturing(stream)) {
    end = memory.events.record(request.context(), stream, marked);
  }
  if (end == nullptr ||
      !memory.watches.add(command.token, Watches::For::kClient, [end] { return end->poll(); })) {
    request.session().endpoint().push_completed(command.token, CUDA_SUCCESS);
  }
  return CUDA_SUCCESS;
}

void stream_synchronize(Request request, const commands::StreamSynchronize& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return request.reply(CUDA_ERROR_INVALID_HANDLE);
  request.session().memory().answer_at_end_of(stream, std::move(request));
}

CUresult stream_set_attribute(Request& request, const commands::StreamSetAttribute& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUstreamAttrValue value{};
  if (command.value.size() != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&value, command.value.data(), sizeof(value));
  const auto attribute = static_cast<CUstreamAttrID>(command.attribute);
  if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
    const CUresult bad = LaunchAttributes::admit_window(request, value.accessPolicyWindow);
    if (bad != CUDA_SUCCESS) return bad;
  } else if (attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY &&
             attribute != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN &&
             attribute != CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (request.driver().cuStreamSetAttribute == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return request.driver().cuStreamSetAttribute(stream, attribute, &value);
}

CUresult host_call(Request& request, const commands::HostCall& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (command.kind > 1) return CUDA_ERROR_INVALID_VALUE;
  if ((command.token & wire::kGraphRun) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (request.session().graphs().capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  request.session().memory().depths.count(request.context(), stream);
  return request.session().memory().host_calls.enqueue(
      stream, static_cast<HostCalls::Kind>(command.kind), command.token, request.sequence());
}

CUresult host_call_done(Request& request, const commands::HostCallDone& command) {
  if (request.session().memory().host_calls.done(command.token)) return CUDA_SUCCESS;
  request.session().end("host_call_done: no such call is running");
  return CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace flyt::server::hooks
