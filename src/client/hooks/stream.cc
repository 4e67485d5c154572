// Streams, their attributes, callbacks and host functions.
#include "client/hooks_stream.h"

#include <algorithm>

#include "client/call.h"
#include "client/graphs/graphs.h"
#include "client/memory_state.h"
#include "client/streams/host_call_scope.h"
#include "client/streams/stream_wait.h"
#include "client/streams/watched_query.h"
#include "commands/graph.h"
#include "commands/stream.h"
#include "cuda/default_stream.h"

namespace flyt::client::hooks {
namespace {

// A native stream that is created without a policy tells this one.
constexpr int kNoPolicy = -1;

// Null for the default streams. After check().
StreamState* state_of(CUstream stream) {
  return session().memory().streams.find(address_of(stream));
}

// A default stream is one of the current context's.
ContextState& context_of(CUstream stream) {
  const StreamState* state = state_of(stream);
  return state != nullptr ? *state->context : context();
}

CUresult create(CUstream* out, unsigned int flags, int priority) {
  if (out == nullptr || (flags & ~static_cast<unsigned int>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ContextState& owner = context();
  const int least = owner.least_priority.load();
  const int greatest = owner.greatest_priority.load();
  const int clamped =
      std::min(std::max(priority, std::min(greatest, least)), std::max(greatest, least));
  return session().memory().make_stream(owner, flags, clamped, *out);
}

// Attributes that change how the GPU runs the stream go to the server as well.
CUresult send_attribute(CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue& value) {
  return post(commands::StreamSetAttribute{.stream = stream,
                                           .attribute = static_cast<std::uint32_t>(attribute),
                                           .value = bytes_at(&value, sizeof(value))});
}

}  // namespace

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return create(phStream, Flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return create(phStream, flags, priority);
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const StreamState* state = state_of(hStream);
  *priority = state != nullptr ? state->priority.load() : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context_of(hStream).device;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const StreamState* state = state_of(hStream);
  *flags = state != nullptr ? state->flags : static_cast<unsigned int>(CU_STREAM_DEFAULT);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // NVIDIA's driver takes it for work.
  std::uint64_t graph = 0;
  const CUresult no = session().captures().work_call(hStream, graph);
  if (no != CUDA_SUCCESS) return no;
  if (const StreamState* state = state_of(hStream)) {
    *streamId = state->id;
    return CUDA_SUCCESS;
  }
  const void* thread = hStream == CU_STREAM_PER_THREAD ? &thread_state() : nullptr;
  *streamId = session().memory().default_stream_id(context(), thread);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = static_cast<CUcontext>(pointer_at(context_of(hStream).handle));
  return CUDA_SUCCESS;
}

// Of a green context's stream both are told: the device's primary context and the green one.
CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  const ContextState& of = context_of(hStream);
  if (pCtx != nullptr) *pCtx = static_cast<CUcontext>(pointer_at(of.home->handle));
  if (pGreenCtx != nullptr) *pGreenCtx = static_cast<CUgreenCtx>(pointer_at(of.green));
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check(hEvent); result != CUDA_SUCCESS) return result;
  const bool external = Flags == CU_EVENT_WAIT_EXTERNAL;
  if (!external && Flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  EventState& event = *session().memory().events.find(address_of(hEvent));
  const commands::StreamWaitEvent command{.stream = hStream, .event = hEvent, .flags = Flags};
  if (session().captures().any()) {
    if (external) event.in_graphs = true;
    return session().post_and_hear(command);
  }
  // External waits exist only while a stream is captured.
  if (external) return CUDA_ERROR_ILLEGAL_STATE;
  // An event that was never recorded, or is known to be over, holds nothing up.
  if (event.known_done()) return CUDA_SUCCESS;
  give_work(hStream);
  return event.captured ? session().post_and_hear(command) : post(command);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  const CUstream named = hStream;
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t graph = 0;
  const CUresult no = session().captures().work_call(hStream, graph);
  if (no != CUDA_SUCCESS) return no;
  if (graph != 0) {
    return ask(commands::CaptureHostCall{
        .stream = hStream,
        .kind = 1,
        .function = session().graphs().name_of(callback, named, userData)});
  }
  return session().memory().host_calls().add(hStream, 1, [=](CUresult status) {
    const HostCallScope scope(HostCall::kCallback);
    callback(named, status, userData);
  });
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::uint64_t graph = 0;
  const CUresult no = session().captures().work_call(hStream, graph);
  if (no != CUDA_SUCCESS) return no;
  if (graph != 0) {
    return ask(commands::CaptureHostCall{
        .stream = hStream, .kind = 0, .function = session().graphs().name_of(fn, userData)});
  }
  return session().memory().host_calls().add(hStream, 0, [=](CUresult) {
    const HostCallScope scope(HostCall::kFunction);
    fn(userData);
  });
}

CUresult cuStreamQuery(CUstream hStream) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  const CUresult no = session().captures().wait_call(hStream);
  if (no != CUDA_SUCCESS) return no;
  return query_stream(session(), hStream);
}

CUresult cuStreamSynchronize(CUstream hStream) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  const CUresult no = session().captures().wait_call(hStream);
  return no != CUDA_SUCCESS ? no : synchronize(session(), hStream);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
  const StreamState* state = state_of(hStream);
  ContextState* const of = state != nullptr ? state->context : nullptr;
  // The server let go of it with its green context.
  const bool gone = of != nullptr && of->live.load() == 0;
  if (!session().memory().streams.drop(address_of(hStream))) return CUDA_ERROR_INVALID_HANDLE;
  session().captures().on_stream_destroyed(hStream);
  session().memory().transfers().note_done(of->handle, hStream);
  // A wait for the context that another thread is about to post names it no more.
  ContextStreams& streams = of->home->streams;
  const Lock lock(streams.mutex());
  streams.end(hStream);
  return gone ? CUDA_SUCCESS : post(commands::StreamDestroy{.stream = hStream});
}

CUresult cuStreamCopyAttributes(CUstream dstStream, CUstream srcStream) {
  if (const CUresult result = check(dstStream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check(srcStream); result != CUDA_SUCCESS) return result;
  StreamState* to = state_of(dstStream);
  const StreamState* from = state_of(srcStream);
  if (to == nullptr) return CUDA_SUCCESS;
  to->sync_policy = from != nullptr ? from->sync_policy.load() : kNoPolicy;
  for (const CUstreamAttrID attribute :
       {CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW}) {
    CUstreamAttrValue value{};
    CUresult result = cuStreamGetAttribute(srcStream, attribute, &value);
    if (result == CUDA_SUCCESS) result = cuStreamSetAttribute(dstStream, attribute, &value);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const StreamState* state = state_of(hStream);
  if (attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
    value->accessPolicyWindow =
        state != nullptr ? state->access_window.get() : CUaccessPolicyWindow{};
  } else if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
    const int policy = state != nullptr ? state->sync_policy.load() : kNoPolicy;
    value->syncPolicy = static_cast<CUsynchronizationPolicy>(policy);
  } else if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    value->priority = state != nullptr ? state->priority.load() : 0;
  } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) {
    const int domain = state != nullptr ? state->mem_sync_domain.load() : 0;
    value->memSyncDomain = static_cast<CUlaunchMemSyncDomain>(domain);
  } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
    const std::uint16_t map = state != nullptr ? state->mem_sync_domain_map.load() : 0x0100;
    value->memSyncDomainMap.default_ = static_cast<unsigned char>(map & 0xff);
    value->memSyncDomainMap.remote = static_cast<unsigned char>(map >> 8);
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* param) {
  if (const CUresult result = check(hStream); result != CUDA_SUCCESS) return result;
  if (param == nullptr) return CUDA_ERROR_INVALID_VALUE;
  StreamState* state = state_of(hStream);
  if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) {
    // How a waiting thread waits is this side's own affair.
    const auto policy = static_cast<int>(param->syncPolicy);
    constexpr int kFirst = CU_SYNC_POLICY_AUTO;
    constexpr int kLast = CU_SYNC_POLICY_BLOCKING_SYNC;
    if (policy < kFirst || policy > kLast) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (state != nullptr) state->sync_policy = policy;
    return CUDA_SUCCESS;
  }
  if (attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
    const auto& window = param->accessPolicyWindow;
    const auto place = session().memory().map().place(address_of(window.base_ptr),
                                                      std::max<std::size_t>(window.num_bytes, 1));
    const bool good = window.num_bytes == 0 || place.place == MemoryMap::Place::kDevice;
    if (!good) return CUDA_ERROR_INVALID_VALUE;
    if (state != nullptr) state->access_window.set(window);
    return send_attribute(hStream, attr, *param);
  }
  if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
    if (state != nullptr) state->priority = param->priority;
  } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN) {
    if (state != nullptr) state->mem_sync_domain = static_cast<int>(param->memSyncDomain);
  } else if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) {
    const auto& map = param->memSyncDomainMap;
    if (state != nullptr) {
      state->mem_sync_domain_map = static_cast<std::uint16_t>(map.remote << 8 | map.default_);
    }
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return send_attribute(hStream, attr, *param);
}

}  // namespace flyt::client::hooks
