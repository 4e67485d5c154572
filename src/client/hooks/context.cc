// Primary and ordinary contexts, and the stack of current ones.
#include "client/hooks_context.h"

#include <algorithm>
#include <vector>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/context_life.h"
#include "client/graphs/graphs.h"
#include "client/memory_state.h"
#include "client/recovery/recovery.h"
#include "commands/context.h"

namespace flyt::client::hooks {
namespace {

CUcontext handle_of(const ContextState* context) {
  return context == nullptr ? nullptr : static_cast<CUcontext>(pointer_at(context->handle));
}

bool valid_flags(unsigned int flags) {
  const unsigned int schedule = flags & CU_CTX_SCHED_MASK;
  return (flags & ~static_cast<unsigned int>(CU_CTX_FLAGS_MASK)) == 0 &&
         (schedule & (schedule - 1)) == 0;
}

// How the program wants its threads to wait.
void heed_schedule(unsigned int flags) {
  if ((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC) session().let_waits_sleep();
}

// Before the server is told: nothing of the context may be used any more. How many green contexts
// die with it.
std::uint32_t die(ContextState& context) {
  session().memory().transfers().await_late_copies();
  const std::vector<ContextState*> greens = session().contexts().greens_of(context);
  for (ContextState* green : greens) end_green(*green);
  session().storage().end(handle_of(&context));
  session().code().core_dumps.end(handle_of(&context));
  session().memory().on_context_destroyed(context);
  context.live.store(0);
  session().graphs().on_context_destroyed(context);
  session().code().on_context_destroyed(context);
  return static_cast<std::uint32_t>(greens.size());
}

CUresult make_primary(PrimaryContext& primary, CUdevice device) REQUIRES(primary.mutex) {
  if (primary.state == nullptr) primary.state = session().contexts().make(device, true);
  if (primary.state == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const unsigned int flags = primary.flags.load();
  const commands::RetainPrimary command{
      .context = handle_of(primary.state), .device = device, .flags = flags};
  const CUresult result = ask_and_note(command, [&](const commands::RetainPrimary::Reply& reply) {
    come_alive(*primary.state, reply, flags);
    primary.active.store(true);
    return CUDA_SUCCESS;
  });
  if (result == CUDA_SUCCESS) heed_schedule(flags);
  return result;
}

// The context that a call names, or the current one for null.
CUresult named_or_current(CUcontext handle, ContextState*& context) {
  context = handle == nullptr ? thread_state().current_state : session().contexts().find(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->live.load() == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return static_cast<CUresult>(context->home->sticky.load());
}

// A session that goes on in another process meanwhile has the context no more.
template <class Command>
CUresult ask_to_end(const Command& command) {
  const unsigned times = session().times_recovered();
  const CUresult result = ask(command);
  const bool gone = result == CUDA_ERROR_INVALID_CONTEXT && times != session().times_recovered();
  return gone ? CUDA_SUCCESS : result;
}

CUresult synchronize(ContextState* context) {
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const ContextScope scope(context);
  if (context->green == 0 && session().memory().fences().all_done(*context)) {
    return session().take_posted_error();
  }
  const std::uint64_t ended = context->streams.ended();
  const commands::SynchronizeContext command{.context = handle_of(context)};
  commands::SynchronizeContext::Reply reply;
  const CUresult result = ask(command, reply);
  if (result != CUDA_SUCCESS) return result;
  context->streams.note_done(ended);
  return session().take_posted_error();
}

CUresult create(CUcontext* out, unsigned int flags, CUdevice device, std::uint32_t sm_count) {
  if (out == nullptr || !valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  ContextState* context = session().contexts().make(device, false);
  if (context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const commands::CreateContext command{
      .context = handle_of(context), .device = device, .flags = flags, .sm_count = sm_count};
  const CUresult result = ask_and_note(command, [&](const commands::CreateContext::Reply& reply) {
    context->affinity.store(sm_count);
    come_alive(*context, reply, flags);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  heed_schedule(flags);
  push_current(context);
  *out = handle_of(context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  PrimaryContext& primary = session().contexts().primary(dev);
  const Lock lock(primary.mutex);
  if (!primary.active.load()) {
    if (const CUresult no = make_primary(primary, dev); no != CUDA_SUCCESS) return no;
  }
  ++primary.retained;
  *pctx = handle_of(primary.state);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  PrimaryContext& primary = session().contexts().primary(dev);
  const Lock lock(primary.mutex);
  if (primary.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.retained != 0) return CUDA_SUCCESS;
  const bool was_active = primary.active.exchange(false);
  if (was_active) die(*primary.state);
  const commands::ReleasePrimary command{.context = handle_of(primary.state), .device = dev};
  return ask(command);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  if (!valid_flags(flags) || (flags & CU_CTX_MAP_HOST) != 0) return CUDA_ERROR_INVALID_VALUE;
  PrimaryContext& primary = session().contexts().primary(dev);
  const Lock lock(primary.mutex);
  primary.flags.store(flags);
  if (!primary.active.load()) return CUDA_SUCCESS;
  heed_schedule(flags);
  primary.state->flags.store(flags);
  return post(commands::SetPrimaryFlags{.device = dev, .flags = flags});
}

// The first version sets no flags of a context that is there.
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  if (!valid_flags(flags) || (flags & CU_CTX_MAP_HOST) != 0) return CUDA_ERROR_INVALID_VALUE;
  PrimaryContext& primary = session().contexts().primary(dev);
  const Lock lock(primary.mutex);
  if (primary.active.load()) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
  primary.flags.store(flags);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const PrimaryContext& primary = session().contexts().primary(dev);
  *flags = primary.flags.load(std::memory_order_relaxed);
  *active = primary.active.load(std::memory_order_relaxed) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  if (const CUresult no = check_device(dev); no != CUDA_SUCCESS) return no;
  PrimaryContext& primary = session().contexts().primary(dev);
  const Lock lock(primary.mutex);
  primary.flags.store(0);
  if (!primary.active.exchange(false)) return CUDA_SUCCESS;
  // The green ones held it until now.
  primary.retained -= std::min(primary.retained, die(*primary.state));
  return ask_to_end(commands::ResetPrimary{.context = handle_of(primary.state), .device = dev});
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev, 0);
}

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev, 0);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  if (numParams < 0 || numParams > 1 || (numParams == 1 && paramsArray == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (numParams == 0) return create(pctx, flags, dev, 0);
  if (paramsArray->type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  return create(pctx, flags, dev, paramsArray->param.smCount.val);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  if (ctxCreateParams == nullptr) return create(pctx, flags, dev, 0);
  if (ctxCreateParams->cigParams != nullptr) {
    return refused("cuCtxCreate_v4", "graphics contexts are not remoted");
  }
  return cuCtxCreate_v3(pctx, ctxCreateParams->execAffinityParams,
                        ctxCreateParams->numExecAffinityParams, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextState* context = session().contexts().find(ctx);
  if (context == nullptr || context->primary || context->green != 0) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context->live.load() == 0) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  die(*context);
  // It leaves the top of this thread's stack; elsewhere it stays current and dead.
  if (thread_state().current_state == context) pop_current();
  return ask_to_end(commands::DestroyContext{.context = ctx});
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextState* context = session().contexts().find(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  push_current(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  const ContextState* current = thread_state().current_state;
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = handle_of(current);
  pop_current();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (ctx == nullptr) {
    pop_current();
    return CUDA_SUCCESS;
  }
  ContextState* context = session().contexts().find(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  set_current(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = handle_of(thread_state().current_state);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  const ContextState* context = thread_state().current_state;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  const ContextState* context = session().contexts().find(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

// Mapping host memory is always possible; NVIDIA says so of primary contexts alone.
CUresult cuCtxGetFlags(unsigned int* flags) {
  const ContextState* context = thread_state().current_state;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = context->home->flags.load() | (context->home->primary ? CU_CTX_MAP_HOST : 0u);
  return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (!valid_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  heed_schedule(flags);
  owner().flags.store(flags);
  return post(commands::SetContextFlags{.flags = flags});
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ContextState* context =
      ctx == nullptr ? thread_state().current_state : session().contexts().find(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *ctxId = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  return synchronize(&context());
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  ContextState* context = nullptr;
  if (const CUresult no = named_or_current(ctx, context); no != CUDA_SUCCESS) return no;
  return synchronize(context);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const commands::SetContextLimit command{.limit = static_cast<std::int32_t>(limit),
                                          .value = value};
  return ask_and_note(command, [limit](const commands::SetContextLimit::Reply& reply) {
    const auto index = static_cast<std::size_t>(limit);
    if (index < owner().limits.size()) owner().limits[index].store(reply.value);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  const auto index = static_cast<std::size_t>(limit);
  if (pvalue == nullptr || index >= owner().limits.size()) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t value = owner().limits[index].load(std::memory_order_relaxed);
  if (value == ContextState::kUnknownLimit) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *pvalue = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = static_cast<CUfunc_cache>(owner().cache_config.load());
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  owner().cache_config.store(static_cast<int>(config));
  return post(commands::SetContextCache{.config = static_cast<std::int32_t>(config)});
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ContextState* context = nullptr;
  const CUresult no = named_or_current(ctx, context);
  // Who names one is told of it, whatever it has run into.
  const bool told = ctx != nullptr && context != nullptr && context->live.load() != 0;
  if (no != CUDA_SUCCESS && !told) return no;
  *version = context->api_version.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (leastPriority != nullptr) *leastPriority = context().least_priority.load();
  if (greatestPriority != nullptr) *greatestPriority = context().greatest_priority.load();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pExecAffinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const commands::ContextAffinity command{.kind = static_cast<std::int32_t>(type)};
  commands::ContextAffinity::Reply reply;
  const CUresult result = ask(command, reply);
  if (result != CUDA_SUCCESS) return result;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val = reply.sm_count;
  return CUDA_SUCCESS;
}

// Usage counts of ordinary contexts have no effect any more.
CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  context().attached.fetch_add(1);
  *pctx = handle_of(&context());
  return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
  ContextState* current = thread_state().current_state;
  if (current == nullptr || ctx != handle_of(current)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult good = check(ctx);
  if (good != CUDA_SUCCESS || current->primary || current->green != 0) return good;
  return current->attached.fetch_sub(1) == 1 ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

// Banks have had one size since Maxwell; the calls only check their arguments.
CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  if (const CUresult no = enter(Needs::kContext); no != CUDA_SUCCESS) return no;
  return config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
                 config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
