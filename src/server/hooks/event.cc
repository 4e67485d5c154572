// Events.
#include "server/hooks_event.h"

#include <memory>
#include <shared_mutex>
#include <utility>

#include "server/context_subjects.h"
#include "server/hooks_context.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// Held by the handle's entry and by the copy of it that record() looks at. Waits hold more.
constexpr long kOwnersWithoutWaits = 2;
// How often a worker looks whether another process has come to its record of an event.
constexpr Duration kSharedEventPause = std::chrono::microseconds(200);

// Who waits for an event waits for the record that was the last one then. Native events forget it
// with the next record, so that one goes to a fresh event under the same handle.
CUresult renew(Request& request, const Handles::Entry& entry, CUevent& event) {
  const auto& owner = static_cast<const EventOwner&>(*entry.attachment);
  const driver::Table& driver = request.driver();
  if (const CUresult result = request.session().enter(owner.context()); result != CUDA_SUCCESS) {
    return result;
  }
  const CUresult result = driver.cuEventCreate(&event, owner.flags());
  if (result != CUDA_SUCCESS) return result;
  request.session().handles().replace(
      wire::HandleKind::kEvent, entry.handle, event,
      std::make_shared<EventOwner>(driver, owner.context(), event, owner.flags()));
  return CUDA_SUCCESS;
}

// Off the main thread, where the context may end, which takes the event with it.
CUresult wait_for_event(Session& session, const EventOwner& owner, const Handles::Entry& context) {
  if (!context) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  ContextOrigin& origin = ContextSubjects::origin(context);
  // What another process records may take longer than all work of the context, which is to end then
  // all the same.
  const bool elsewhere = (owner.flags() & CU_EVENT_INTERPROCESS) != 0;
  const driver::Table& driver = session.driver();
  for (;;) {
    {
      const std::shared_lock lock(origin.waits);
      CUevent const event = owner.event();
      if (origin.ended || event == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
      const CUresult result =
          elsewhere ? driver.cuEventQuery(event) : driver.cuEventSynchronize(event);
      if (!elsewhere || result != CUDA_ERROR_NOT_READY) return result;
    }
    session.clock().sleep_for(kSharedEventPause);
  }
}

// The driver's event for a record that the client asks for now.
CUresult event_for_record(Request& request, CUevent handle, CUevent& event) {
  const Handles::Entry entry =
      request.session().handles().entry(wire::HandleKind::kEvent, address_of(handle));
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  event = static_cast<CUevent>(entry.native);
  const auto& owner = static_cast<const EventOwner&>(*entry.attachment);
  // Other processes and graphs know one by what it is.
  const bool shared = (owner.flags() & CU_EVENT_INTERPROCESS) != 0;
  const bool stays = shared || owner.in_graphs();
  if (stays || entry.attachment.use_count() <= kOwnersWithoutWaits) return CUDA_SUCCESS;
  const CUresult result = renew(request, entry, event);
  // It made the event's own context current.
  return result == CUDA_SUCCESS ? request.session().enter(request.context()) : result;
}

}  // namespace

CUresult event_create(Request& request, const commands::EventCreate& command) {
  CUevent event = nullptr;
  unsigned int flags = command.flags;
  if (request.driver().cuIpcGetEventHandle == nullptr) {
    flags &= ~static_cast<unsigned int>(CU_EVENT_INTERPROCESS);
  }
  const CUresult result = request.driver().cuEventCreate(&event, flags);
  if (result != CUDA_SUCCESS) return result;
  auto owner = std::make_shared<EventOwner>(request.driver(), request.home(), event, flags);
  Session& session = request.session();
  if (!session.handles().put(wire::HandleKind::kEvent, address_of(command.event), event,
                             std::move(owner))) {
    session.end("event_create: the handle is malformed or in use");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return CUDA_SUCCESS;
}

CUresult event_destroy(Request& request, const commands::EventDestroy& command) {
  const Handles::Entry entry =
      request.session().handles().drop(wire::HandleKind::kEvent, address_of(command.event));
  return entry.handle != 0 ? CUDA_SUCCESS
                           : request.session().ended_before(CUDA_ERROR_INVALID_HANDLE);
}

CUresult event_record(Request& request, const commands::EventRecord& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  CUevent event = nullptr;
  const CUresult result = event_for_record(request, command.event, event);
  if (result != CUDA_SUCCESS) return result;
  request.session().memory().depths.count(request.context(), stream);
  if (command.flags == CU_EVENT_RECORD_DEFAULT) {
    return request.driver().cuEventRecord(event, stream);
  }
  const Handles::Entry entry =
      request.session().handles().entry(wire::HandleKind::kEvent, address_of(command.event));
  static_cast<const EventOwner&>(*entry.attachment).note_in_graphs();
  return request.driver().cuEventRecordWithFlags(event, stream, command.flags);
}

CUresult context_record_event(Request& request, const commands::ContextRecordEvent& command) {
  CUcontext context = command.context;
  if (!request.resolve(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (request.driver().cuCtxRecordEvent == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  CUevent event = nullptr;
  const CUresult result = event_for_record(request, command.event, event);
  return result == CUDA_SUCCESS ? request.driver().cuCtxRecordEvent(context, event) : result;
}

CUresult context_wait_event(Request& request, const commands::ContextWaitEvent& command) {
  CUcontext context = command.context;
  CUevent event = command.event;
  if (!request.resolve(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!request.resolve(event)) return CUDA_ERROR_INVALID_HANDLE;
  if (request.driver().cuCtxWaitEvent == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return request.driver().cuCtxWaitEvent(context, event);
}

CUresult event_query(Request& request, const commands::EventQuery& command) {
  CUevent event = command.event;
  if (!request.resolve(event)) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult result = request.driver().cuEventQuery(event);
  if (result == CUDA_SUCCESS) request.session().moves().note_done();
  return result;
}

CUresult watch_event(Request& request, const commands::WatchEvent& command,
                     commands::WatchEvent::Reply& reply) {
  Session& session = request.session();
  const Handles::Entry entry =
      session.handles().entry(wire::HandleKind::kEvent, address_of(command.event));
  if (entry.handle == 0) return CUDA_ERROR_INVALID_HANDLE;
  const driver::Table& driver = request.driver();
  const CUresult result = driver.cuEventQuery(static_cast<CUevent>(entry.native));
  if (result != CUDA_ERROR_NOT_READY) return result;
  const auto owner = std::static_pointer_cast<EventOwner>(entry.attachment);
  reply.watched =
      session.memory().watches.add(command.token, Watches::For::kProgram, [&driver, owner] {
        const CUevent present = owner->event();
        return present == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : driver.cuEventQuery(present);
      });
  return result;
}

void event_synchronize(Request request, const commands::EventSynchronize& command) {
  Session& session = request.session();
  const Handles::Entry entry =
      session.handles().entry(wire::HandleKind::kEvent, address_of(command.event));
  if (entry.handle == 0) return request.reply(CUDA_ERROR_INVALID_HANDLE);
  const auto event = static_cast<CUevent>(entry.native);
  const driver::Table& driver = request.driver();
  const CUresult result = driver.cuEventQuery(event);
  if (result != CUDA_ERROR_NOT_READY) return request.reply(result);
  Completion completion;
  const auto owner = std::static_pointer_cast<EventOwner>(entry.attachment);
  completion.context = owner->context();
  request.forget_payload();
  auto waiting = std::make_shared<Request>(std::move(request));
  MemorySubjects& memory = session.memory();
  // The owner is kept, so that another thread may destroy the event meanwhile.
  completion.poll = [&driver, owner] {
    const CUevent present = owner->event();
    return present == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED : driver.cuEventQuery(present);
  };
  const Handles::Entry context = session.handles().entry(
      wire::HandleKind::kContext,
      session.handles().handle_at(wire::HandleKind::kContext, owner->context()));
  completion.block = [&session, owner, context] {
    return wait_for_event(session, *owner, context);
  };
  completion.finish = [waiting, &session, &memory](CUresult done) {
    waiting->reply(done);
    if (memory.pools.has_excess()) {
      session.workers().run([&memory] { memory.pools.release_excess(); });
    }
  };
  session.completions().add(std::move(completion));
}

CUresult event_elapsed_time(Request& request, const commands::EventElapsedTime& command,
                            commands::EventElapsedTime::Reply& reply) {
  CUevent start = command.start;
  CUevent end = command.end;
  if (!request.resolve(start) || !request.resolve(end)) return CUDA_ERROR_INVALID_HANDLE;
  const driver::Table& driver = request.driver();
  if (driver.cuEventElapsedTime_v2 != nullptr) {
    return driver.cuEventElapsedTime_v2(&reply.milliseconds, start, end);
  }
  return driver.cuEventElapsedTime(&reply.milliseconds, start, end);
}

}  // namespace flyt::server::hooks
