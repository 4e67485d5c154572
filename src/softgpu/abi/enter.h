// Enter: what every call of the ABI checks before it does anything.
#pragma once

#include <memory>

#include "cuda/default_stream.h"
#include "cuda/functions.h"
#include "softgpu/capture_checks.h"
#include "softgpu/current.h"
#include "softgpu/driver.h"
#include "softgpu/turns.h"

namespace flyt::softgpu {

// The calling thread's context: CUDA_ERROR_INVALID_CONTEXT without one,
// CUDA_ERROR_CONTEXT_IS_DESTROYED where it is gone; its own error otherwise.
CUresult current_context(Driver& driver, std::shared_ptr<Context>& context);
// The same, without asking for its error.
CUresult living_context(Driver& driver, std::shared_ptr<Context>& context);

// For calls on what belongs to a context of its own, `home` (0: to none): a thread that has none
// current may make them, and one that has must have a living one. The error is home's, else the
// current one's.
CUresult check_home(Driver& driver, std::uint64_t home);

// The part of a context that is current: a green context of it, or all of the device.
// CUDA_ERROR_CONTEXT_IS_DESTROYED where it has just gone.
CUresult current_partition(const Context& context, std::shared_ptr<Partition>& partition);

// The context of a call that names one, and the part of it that it names: null means the current
// one.
CUresult named_context(Driver& driver, CUcontext handle, std::shared_ptr<Context>& context);
CUresult named_partition(Driver& driver, CUcontext handle, std::shared_ptr<Context>& context,
                         std::shared_ptr<Partition>& partition);

// Calls body(driver) once CUDA is initialised and outside of host functions.
template <class Body>
CUresult with_driver(Body body) {
  if (InHostFunction::active()) return CUDA_ERROR_NOT_PERMITTED;
  Driver* driver = current_driver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  const auto turn = turn_of_call(driver->settings());
  return body(*driver);
}

// Calls body(driver, context) with the calling thread's context, if that is without error.
template <class Body>
CUresult with_context(Body body) {
  return with_driver([&body](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    if (const CUresult bad = current_context(driver, context); bad != CUDA_SUCCESS) return bad;
    return body(driver, *context);
  });
}

// The stream of a call and the context that it belongs to.
struct StreamOfCall {
  std::shared_ptr<Stream> stream;
  std::shared_ptr<Context> context;
  std::shared_ptr<Partition> partition;

  Ticket submit(std::function<void()> run) const {
    stream->await_room();
    return context->submit(*stream, std::move(run));
  }
  Ticket submit(Operation operation) const {
    stream->await_room();
    return context->submit(*stream, std::move(operation));
  }
};

// Default streams are those of the current context, which must be without error. An explicit
// stream brings its own context, and needs no current one.
CUresult find_stream(Driver& driver, CUstream handle, StreamOfCall& out);

// Calls body(driver, context, stream).
template <class Body>
CUresult with_stream(CUstream handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    StreamOfCall stream;
    if (const CUresult bad = find_stream(driver, handle, stream); bad != CUDA_SUCCESS) return bad;
    return body(driver, *stream.context, stream);
  });
}

// The same for calls that give the stream work, which a capture may take instead.
template <class Body>
CUresult with_work(CUstream handle, Body body) {
  return with_stream(handle,
                     [&](Driver& driver, Context& context, const StreamOfCall& stream) -> CUresult {
                       if (driver.graphs().capturing()) {
                         const CUresult bad = check_work(driver, context, *stream.stream);
                         if (bad != CUDA_SUCCESS) return bad;
                       }
                       return body(driver, context, stream);
                     });
}

// The same for work that the call waits for, which no capture takes.
template <class Body>
CUresult with_waiting_work(CUstream handle, Body body) {
  return with_stream(handle,
                     [&](Driver& driver, Context& context, const StreamOfCall& stream) -> CUresult {
                       if (driver.graphs().capturing()) {
                         const CUresult bad = check_waiting_work(driver, context, *stream.stream);
                         if (bad != CUDA_SUCCESS) return bad;
                       }
                       return body(driver, context, stream);
                     });
}

// The same for calls that wait for the stream or ask about its work, which no capture permits.
template <class Body>
CUresult with_wait(CUstream handle, Body body) {
  return with_stream(handle,
                     [&](Driver& driver, Context& context, const StreamOfCall& stream) -> CUresult {
                       if (driver.graphs().capturing()) {
                         const CUresult bad = check_wait(driver, context, *stream.stream);
                         if (bad != CUDA_SUCCESS) return bad;
                       }
                       return body(driver, context, stream);
                     });
}

// Calls body(driver, context) where no capture forbids a call that may wait for all work.
template <class Body>
CUresult with_unsafe(Body body) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    const CUresult bad = check_unsafe(driver);
    return bad != CUDA_SUCCESS ? bad : body(driver, context);
  });
}

// An event under its handle: CUDA_ERROR_INVALID_HANDLE, or CUDA_ERROR_CONTEXT_IS_DESTROYED for
// one that is gone.
CUresult find_event(Driver& driver, CUevent handle, std::shared_ptr<Event>& out);

// The function behind a CUfunction, or behind a CUkernel passed as one if `kernels`.
CUresult find_function(Driver& driver, Context& context, CUfunction handle, bool kernels,
                       std::shared_ptr<Function>& out);

}  // namespace flyt::softgpu
