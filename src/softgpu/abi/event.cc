// Events.
#include <memory>

#include "base/clock.h"
#include "softgpu/abi/enter.h"
#include "softgpu/capture.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kEventFlags =
    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

// By how much a wait comes back late, where it is to.
constexpr Duration kLate = std::chrono::milliseconds(100);

CUresult record(CUevent hEvent, CUstream hStream, unsigned flags) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
    if ((flags & ~unsigned{CU_EVENT_RECORD_EXTERNAL}) != 0) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Event> event;
    if (const CUresult bad = find_event(driver, hEvent, event); bad != CUDA_SUCCESS) return bad;
    const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
    // External recordings are for captures only.
    if (external && !stream.stream->capturing()) return CUDA_ERROR_ILLEGAL_STATE;
    if (event->context() != stream.context->handle()) return CUDA_ERROR_INVALID_HANDLE;
    if (stream.stream->capturing()) {
      return capture_record(driver, *stream.stream, hEvent, event, external);
    }
    auto recording = std::make_shared<Recording>();
    const auto shared = event->shared();
    const std::uint64_t number = shared == nullptr ? 0 : shared->begin();
    recording->ticket =
        stream.submit(Operation{[recording, shared, number](CUresult) {
                                  recording->reached_ns.store(system_clock().now().ns);
                                  if (shared != nullptr) shared->complete(number);
                                },
                                {},
                                true});
    event->set_recording(std::move(recording));
    return CUDA_SUCCESS;
  });
}

// Calls body(context, partition, event) for a context, or a green one, no stream of which captures.
template <class Body>
CUresult with_partition(CUcontext handle, CUevent event_handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (handle == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<Context> context;
    std::shared_ptr<Partition> partition;
    CUresult bad = named_partition(driver, handle, context, partition);
    if (bad == CUDA_SUCCESS) bad = context->fate()->error();
    std::shared_ptr<Event> event;
    if (bad == CUDA_SUCCESS) bad = find_event(driver, event_handle, event);
    if (bad == CUDA_SUCCESS) bad = check_not_captured(driver, *context, *partition);
    return bad != CUDA_SUCCESS ? bad : body(*context, *partition, *event);
  });
}

// Calls body(driver, context, event) for an event that may be waited for, whatever context is
// current.
template <class Body>
CUresult with_event(CUevent handle, bool waits, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Event> event;
    if (const CUresult bad = find_event(driver, handle, event); bad != CUDA_SUCCESS) return bad;
    const auto context = driver.contexts().find(event->context());
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (const CUresult bad = context->fate()->error(); bad != CUDA_SUCCESS) return bad;
    if ((waits && driver.graphs().capturing()) || event->capture() != nullptr) {
      if (const CUresult bad = check_event(driver, *event); bad != CUDA_SUCCESS) return bad;
    }
    return body(driver, *context, *event);
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((Flags & CU_EVENT_INTERPROCESS) != 0 && (Flags & CU_EVENT_DISABLE_TIMING) == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::shared_ptr<SharedEvent> shared;
    if ((Flags & CU_EVENT_INTERPROCESS) != 0) {
      shared = SharedEvent::make();
      if (shared == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phEvent = to_handle<CUevent>(
        driver.events().add(std::make_shared<Event>(context.handle(), Flags, std::move(shared))));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) { return record(hEvent, hStream, 0); }

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return record(hEvent, hStream, flags);
}

CUresult cuCtxRecordEvent(CUcontext hCtx, CUevent hEvent) {
  return with_partition(hCtx, hEvent,
                        [](Context& context, const Partition& partition, Event& event) -> CUresult {
                          if (event.context() != context.handle()) return CUDA_ERROR_INVALID_HANDLE;
                          auto recording = std::make_shared<Recording>();
                          const auto shared = event.shared();
                          const std::uint64_t number = shared == nullptr ? 0 : shared->begin();
                          recording->ticket = context.mark(partition, [recording, shared, number] {
                            recording->reached_ns.store(system_clock().now().ns);
                            if (shared != nullptr) shared->complete(number);
                          });
                          event.set_recording(std::move(recording));
                          return CUDA_SUCCESS;
                        });
}

CUresult cuCtxWaitEvent(CUcontext hCtx, CUevent hEvent) {
  return with_partition(
      hCtx, hEvent,
      [](Context& context, const Partition& partition, const Event& event) -> CUresult {
        if (event.capture() != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (const auto shared = event.shared()) {
          const std::uint64_t number = shared->last();
          if (shared->reached(number)) return CUDA_SUCCESS;
          context.hold_back(partition, Operation{[shared, number, fate = context.fate()](CUresult) {
                                                   await(*shared, number, *fate);
                                                 },
                                                 {},
                                                 true});
          return CUDA_SUCCESS;
        }
        const auto recording = event.recording();
        if (recording == nullptr || recording->ticket.reached()) return CUDA_SUCCESS;
        context.hold_back(partition, Operation{[](CUresult) {}, {recording->ticket}, true});
        return CUDA_SUCCESS;
      });
}

CUresult cuEventQuery(CUevent hEvent) {
  return with_event(hEvent, true, [](Driver& driver, Context& context, const Event& event) {
    const auto recording = event.recording();
    if (recording != nullptr && !recording->ticket.reached()) return CUDA_ERROR_NOT_READY;
    const auto& shared = event.shared();
    if (shared != nullptr && !shared->reached(shared->last())) return CUDA_ERROR_NOT_READY;
    driver.output().flush();
    return context.fate()->error();
  });
}

CUresult cuEventSynchronize(CUevent hEvent) {
  return with_event(hEvent, true, [](Driver& driver, Context& context, const Event& event) {
    context.event_waits().fetch_add(1);
    if (const auto recording = event.recording()) recording->ticket.wait();
    if (event.shared() != nullptr) await(*event.shared(), event.shared()->last(), *context.fate());
    driver.synchronised();
    if (driver.settings().event_waits_late) system_clock().sleep_for(kLate);
    context.event_waits().fetch_sub(1);
    return context.fate()->error();
  });
}

CUresult cuEventDestroy_v2(CUevent hEvent) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Event> event;
    if (const CUresult bad = find_event(driver, hEvent, event); bad != CUDA_SUCCESS) return bad;
    const auto context = driver.contexts().find(event->context());
    if (context != nullptr && context->fate()->error() != CUDA_SUCCESS) {
      return context->fate()->error();
    }
    driver.events().take(from_handle(hEvent));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy(CUevent hEvent) { return cuEventDestroy_v2(hEvent); }

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return with_event(
      hStart, false, [&](Driver& driver, Context& context, const Event& start) -> CUresult {
        std::shared_ptr<Event> end;
        if (const CUresult bad = find_event(driver, hEnd, end); bad != CUDA_SUCCESS) return bad;
        const auto from = start.recording();
        const auto to = end->recording();
        if (pMilliseconds == nullptr || from == nullptr || to == nullptr || !start.timed() ||
            !end->timed()) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        if (!from->ticket.reached() || !to->ticket.reached()) return CUDA_ERROR_NOT_READY;
        constexpr double kNsPerMs = 1e6;
        *pMilliseconds = static_cast<float>(
            static_cast<double>(to->reached_ns.load() - from->reached_ns.load()) / kNsPerMs);
        return context.fate()->error();
      });
}

CUresult cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return cuEventElapsedTime_v2(pMilliseconds, hStart, hEnd);
}

}  // extern "C"
