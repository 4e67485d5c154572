// Streams, their attributes, callbacks and host functions.
#include "softgpu/abi/enter.h"
#include "softgpu/capture.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kWaitFlags = CU_EVENT_WAIT_EXTERNAL;

CUresult create(CUstream* phStream, unsigned flags, int priority) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (phStream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::shared_ptr<Partition> partition;
    const CUresult bad = current_partition(context, partition);
    if (bad != CUDA_SUCCESS) return bad;
    *phStream = to_handle<CUstream>(driver.streams().add(partition->add_stream(flags, priority)));
    return CUDA_SUCCESS;
  });
}

// Calls body(stream) and gives its answer, refusing a null pointer for it.
template <class T, class Body>
CUresult ask(CUstream handle, T* out, Body body) {
  return with_stream(handle, [&](Driver&, Context&, const StreamOfCall& stream) -> CUresult {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = body(stream);
    return CUDA_SUCCESS;
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return create(phStream, Flags, kPriorityLeast);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create(phStream, flags, priority);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  return with_driver([&](Driver& driver) -> CUresult {
    const std::uint64_t handle = from_handle(hStream);
    const auto stream = driver.streams().find(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const auto context = driver.contexts().find(stream->context());
    if (context != nullptr && context->fate()->error() != CUDA_SUCCESS) {
      return context->fate()->error();
    }
    // What it still has to do goes on without a handle; a capture that began here does not.
    if (driver.graphs().capturing()) abandon_capture(driver, *stream);
    driver.streams().take(handle);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy(CUstream hStream) { return cuStreamDestroy_v2(hStream); }

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return ask(hStream, priority, [](const StreamOfCall& s) { return s.stream->priority(); });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return ask(hStream, flags, [](const StreamOfCall& s) { return s.stream->flags(); });
}

// NVIDIA's driver takes it for work: the legacy stream has none while a blocking stream captures.
CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  const auto nothing = [](Driver&, Context&, const StreamOfCall&) { return CUDA_SUCCESS; };
  if (const CUresult no = with_work(hStream, nothing); no != CUDA_SUCCESS) return no;
  return ask(hStream, streamId, [](const StreamOfCall& s) { return s.stream->id(); });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return ask(hStream, device, [](const StreamOfCall& s) { return s.context->device().number(); });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return ask(hStream, pctx, [](const StreamOfCall& s) {
    return to_handle<CUcontext>(s.partition->names().handle);
  });
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return with_stream(hStream, [&](Driver&, Context&, const StreamOfCall& stream) {
    if (pCtx != nullptr) *pCtx = to_handle<CUcontext>(stream.context->handle());
    if (pGreenCtx != nullptr) *pGreenCtx = to_handle<CUgreenCtx>(stream.partition->names().green);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
    if ((Flags & ~kWaitFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Event> event;
    if (const CUresult bad = find_event(driver, hEvent, event); bad != CUDA_SUCCESS) return bad;
    if (stream.stream->capturing() || event->capture() != nullptr || Flags != 0) {
      return capture_wait(driver, stream.stream, stream.stream->legacy(), hEvent, event,
                          Flags != 0);
    }
    if (const auto shared = event->shared()) {
      // Another process may have recorded it, so its counters are what counts.
      const std::uint64_t number = shared->last();
      if (shared->reached(number)) return CUDA_SUCCESS;
      stream.submit(Operation{[shared, number, fate = stream.context->fate()](CUresult) {
                                await(*shared, number, *fate);
                              },
                              {},
                              true});
      return CUDA_SUCCESS;
    }
    const auto recording = event->recording();
    if (recording == nullptr || recording->ticket.reached()) return CUDA_SUCCESS;
    stream.submit(Operation{[](CUresult) {}, {recording->ticket}, true});
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamQuery(CUstream hStream) {
  if (!InHostFunction::may_query()) return CUDA_ERROR_NOT_PERMITTED;
  Driver* driver = current_driver();
  if (driver == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  StreamOfCall stream;
  if (const CUresult bad = find_stream(*driver, hStream, stream); bad != CUDA_SUCCESS) return bad;
  if (driver->graphs().capturing()) {
    const CUresult bad = check_wait(*driver, *stream.context, *stream.stream);
    if (bad != CUDA_SUCCESS) return bad;
  }
  if (!stream.partition->idle(*stream.stream)) return CUDA_ERROR_NOT_READY;
  // Who learns that a kernel is done sees what it printed.
  driver->output().flush();
  return stream.context->fate()->error();
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return with_wait(hStream, [](Driver& driver, Context&, const StreamOfCall& stream) {
    // The legacy stream's end is that of all streams that order themselves with it.
    if (stream.stream->legacy()) {
      stream.submit([] {}).wait();
    } else {
      stream.stream->last().wait();
    }
    driver.synchronised();
    return stream.context->fate()->error();
  });
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
    if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (stream.stream->capturing()) {
      return capture_work(driver, *stream.stream, HostWork{nullptr, userData, callback, hStream});
    }
    stream.submit(Operation{[hStream, callback, userData](CUresult status) {
                              const InHostFunction scope(InHostFunction::Kind::kCallback);
                              callback(hStream, status, userData);
                            },
                            {},
                            true});
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  return with_work(hStream, [&](Driver& driver, Context&, const StreamOfCall& stream) -> CUresult {
    if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (stream.stream->capturing()) {
      return capture_work(driver, *stream.stream, HostWork{fn, userData});
    }
    stream.submit([fn, userData] {
      const InHostFunction scope(InHostFunction::Kind::kFunction);
      fn(userData);
    });
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  return with_stream(dstStream, [&](Driver& driver, Context&, const StreamOfCall& to) {
    StreamOfCall from;
    const CUresult bad = find_stream(driver, srcStream, from);
    if (bad == CUDA_SUCCESS) to.stream->set_attributes(from.stream->attributes());
    return bad;
  });
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  return with_stream(hStream, [&](Driver&, Context&, const StreamOfCall& stream) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const StreamAttributes attributes = stream.stream->attributes();
    if (attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
      value->accessPolicyWindow = attributes.window;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
      value->syncPolicy = attributes.policy;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      value->priority = stream.stream->priority();
    } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) {
      value->memSyncDomain = attributes.domain;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
      value->memSyncDomainMap = attributes.domains;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) {
  return with_stream(hStream, [&](Driver&, Context&, const StreamOfCall& stream) -> CUresult {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    StreamAttributes attributes = stream.stream->attributes();
    if (attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
      attributes.window = value->accessPolicyWindow;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
      if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
          value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      attributes.policy = value->syncPolicy;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) {
      attributes.domain = value->memSyncDomain;
    } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
      attributes.domains = value->memSyncDomainMap;
    } else if (attr != CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    stream.stream->set_attributes(attributes);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
