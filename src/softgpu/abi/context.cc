// Primary and ordinary contexts, and the stack of current ones.
#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

constexpr unsigned kScheduleFlags = CU_CTX_SCHED_MASK;
constexpr unsigned kContextFlags = CU_CTX_FLAGS_MASK;

// One that is gone may become current; its use is what fails.
bool was_made(Driver& driver, CUcontext ctx) {
  return driver.contexts().find(from_handle(ctx)) != nullptr ||
         driver.contexts().issued(from_handle(ctx));
}

bool good_flags(unsigned flags) {
  const unsigned schedule = flags & kScheduleFlags;
  return (flags & ~kContextFlags) == 0 &&
         (schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN ||
          schedule == CU_CTX_SCHED_YIELD || schedule == CU_CTX_SCHED_BLOCKING_SYNC);
}

// Of one that is there only the second version of the call sets flags.
CUresult set_primary_flags(CUdevice dev, unsigned flags, bool while_active) {
  return with_driver([&](Driver& driver) -> CUresult {
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!good_flags(flags) || (flags & CU_CTX_MAP_HOST) != 0) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock(device->primary_mutex());
    const auto context = driver.contexts().find(device->primary().context);
    if (context != nullptr && !while_active) return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    device->primary().flags = flags;
    if (context != nullptr) context->set_flags(flags);
    return CUDA_SUCCESS;
  });
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pctx == nullptr || !good_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!device->memory().usable()) return CUDA_ERROR_OUT_OF_MEMORY;
    SharedFaults::Place place;
    if (const CUresult bad = device->enter(place); bad != CUDA_SUCCESS) return bad;
    const auto context = driver.make_context(*device, flags, false, 0);
    context->set_place(std::move(place));
    if (!context_stack().push(context->handle())) {
      driver.contexts().take(context->handle());
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pctx = to_handle<CUcontext>(context->handle());
    return CUDA_SUCCESS;
  });
}

CUresult synchronize(Driver& driver, CUcontext handle) {
  std::shared_ptr<Context> context;
  std::shared_ptr<Partition> partition;
  CUresult result = named_partition(driver, handle, context, partition);
  if (result == CUDA_SUCCESS) result = check_context_wait(driver, *context, *partition);
  if (result != CUDA_SUCCESS) return result;
  result = context->synchronize(*partition);
  driver.synchronised();
  return result;
}

// The device whose primary context has, or had, that handle; -1 for none.
int primary_of(const Driver& driver, std::uint64_t handle) {
  for (int i = 0; i < driver.device_count(); ++i) {
    Device& device = *driver.device(i);
    const Lock lock(device.primary_mutex());
    if (device.primary().last == handle) return i;
  }
  return -1;
}

// Ends the primary context; what it was retained for is void.
void reset_primary(Driver& driver, Device& device) {
  std::shared_ptr<Context> context;
  {
    const Lock lock(device.primary_mutex());
    context = driver.contexts().take(device.primary().context);
    device.primary().context = 0;
    device.primary().retained = 0;
  }
  if (context == nullptr) return;
  driver.end_context(*context);
  driver.storage().end(to_handle<CUcontext>(context->handle()));
  driver.core_dumps().end(to_handle<CUcontext>(context->handle()));
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (!device->memory().usable()) return CUDA_ERROR_OUT_OF_MEMORY;
    const Lock lock(device->primary_mutex());
    Device::Primary& primary = device->primary();
    if (primary.context == 0) {
      SharedFaults::Place place;
      if (const CUresult bad = device->enter(place); bad != CUDA_SUCCESS) return bad;
      const auto context = driver.make_context(*device, primary.flags, true, primary.last);
      context->set_place(std::move(place));
      primary.last = primary.context = context->handle();
    }
    ++primary.retained;
    *pctx = to_handle<CUcontext>(primary.context);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    {
      const Lock lock(device->primary_mutex());
      if (device->primary().retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
      if (--device->primary().retained != 0) return CUDA_SUCCESS;
    }
    reset_primary(driver, *device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return set_primary_flags(dev, flags, true);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return set_primary_flags(dev, flags, false);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const Lock lock(device->primary_mutex());
    *flags = device->primary().flags;
    *active = device->primary().context != 0 ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return with_driver([&](Driver& driver) -> CUresult {
    Device* device = driver.device(dev);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    reset_primary(driver, *device);
    const Lock lock(device->primary_mutex());
    device->primary().flags = 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  if (ctxCreateParams != nullptr &&
      (ctxCreateParams->numExecAffinityParams != 0 || ctxCreateParams->cigParams != nullptr)) {
    return with_driver([](Driver&) { return CUDA_ERROR_NOT_SUPPORTED; });
  }
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                        CUdevice dev) {
  if (numParams != 0) {
    return with_driver([](Driver&) { return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY; });
  }
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Context> context;
    if (const CUresult bad = named_context(driver, ctx, context); bad != CUDA_SUCCESS) {
      return bad == CUDA_ERROR_INVALID_CONTEXT ? CUDA_ERROR_CONTEXT_IS_DESTROYED : bad;
    }
    if (context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
    if (driver.contexts().take(from_handle(ctx)) == nullptr) {
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (context_stack().top() == from_handle(ctx)) context_stack().pop();
    driver.end_context(*context);
    driver.storage().end(ctx);
    driver.core_dumps().end(ctx);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!was_made(driver, ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    return context_stack().push(from_handle(ctx)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  return with_driver([&](Driver&) -> CUresult {
    const std::uint64_t top = context_stack().top();
    if (top == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (pctx != nullptr) *pctx = to_handle<CUcontext>(top);
    context_stack().pop();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPopCurrent(CUcontext* pctx) { return cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxSetCurrent(CUcontext ctx) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (ctx != nullptr && !was_made(driver, ctx)) return CUDA_ERROR_INVALID_CONTEXT;
    return context_stack().set(from_handle(ctx)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  return with_driver([&](Driver&) -> CUresult {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = to_handle<CUcontext>(context_stack().top());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    const CUresult bad = living_context(driver, context);
    if (bad == CUDA_ERROR_INVALID_CONTEXT) return bad;
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // A primary context that was reset still tells whose it is.
    const int number =
        context != nullptr ? context->device().number() : primary_of(driver, context_stack().top());
    if (number < 0) return bad;
    *device = number;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  return with_driver([&](Driver& driver) -> CUresult {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Context> context;
    if (const CUresult bad = named_context(driver, ctx, context); bad != CUDA_SUCCESS) return bad;
    *device = context->device().number();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    if (const CUresult bad = living_context(driver, context); bad != CUDA_SUCCESS) return bad;
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Mapping host memory is always possible; NVIDIA says so of primary contexts alone.
    *flags = context->flags() | (context->primary() ? CU_CTX_MAP_HOST : 0u);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetFlags(unsigned int flags) {
  return with_context([&](Driver&, Context& context) -> CUresult {
    if (!good_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
    context.set_flags(flags);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    std::shared_ptr<Partition> partition;
    const CUresult bad = named_partition(driver, ctx, context, partition);
    if (bad != CUDA_SUCCESS) return bad;
    if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *ctxId = partition->names().id;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return with_driver([](Driver& driver) { return synchronize(driver, nullptr); });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  return with_driver([&](Driver& driver) { return synchronize(driver, ctx); });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return with_unsafe([&](Driver&, Context& context) { return context.set_limit(limit, value); });
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  return with_context([&](Driver&, Context& context) -> CUresult {
    if (pvalue == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return context.limit(limit, pvalue);
  });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  return with_context([&](Driver&, Context& context) -> CUresult {
    if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pconfig = context.cache_config();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  return with_unsafe([&](Driver&, Context& context) -> CUresult {
    if (config > CU_FUNC_CACHE_PREFER_EQUAL) return CUDA_ERROR_INVALID_VALUE;
    context.set_cache_config(config);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  return with_context([&](Driver&, Context&) -> CUresult {
    if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pConfig = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
  return with_context([&](Driver&, Context&) {
    return config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE ? CUDA_ERROR_INVALID_VALUE
                                                              : CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  return with_driver([&](Driver& driver) -> CUresult {
    std::shared_ptr<Context> context;
    if (const CUresult bad = named_context(driver, ctx, context); bad != CUDA_SUCCESS) return bad;
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = kContextApiVersion;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return with_context([&](Driver&, Context&) {
    if (leastPriority != nullptr) *leastPriority = kPriorityLeast;
    if (greatestPriority != nullptr) *greatestPriority = kPriorityGreatest;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxResetPersistingL2Cache() {
  return with_context([](Driver&, Context&) { return CUDA_SUCCESS; });
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  return with_context([&](Driver&, Context& context) -> CUresult {
    if (pExecAffinity == nullptr || type >= CU_EXEC_AFFINITY_TYPE_MAX) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    pExecAffinity->type = type;
    pExecAffinity->param.smCount.val = context.device().limits().multiprocessors;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxAttach(CUcontext* pctx, unsigned int flags) {
  return with_context([&](Driver&, Context& context) -> CUresult {
    if (pctx == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    context.attach();
    *pctx = to_handle<CUcontext>(context_stack().top());
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDetach(CUcontext ctx) {
  bool last = false;
  const CUresult result = with_driver([&](Driver& driver) -> CUresult {
    if (ctx == nullptr || context_stack().top() != from_handle(ctx)) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    std::shared_ptr<Context> context;
    const CUresult bad = named_context(driver, ctx, context);
    last = bad == CUDA_SUCCESS && !context->primary() && context->handle() == from_handle(ctx) &&
           context->detach();
    return bad;
  });
  return last ? cuCtxDestroy_v2(ctx) : result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<Context> peer;
    if (peerContext == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (const CUresult bad = named_context(driver, peerContext, peer); bad != CUDA_SUCCESS) {
      return bad;
    }
    if (&peer->device() == &context.device()) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context.enable_peer(from_handle(peerContext))) {
      return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    }
    driver.regions().set_peer(context.device().number(), peer->device().number(), true);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (peerContext == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (!context.disable_peer(from_handle(peerContext))) {
      return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    }
    const auto peer = driver.contexts().find(from_handle(peerContext));
    if (peer == nullptr) return CUDA_SUCCESS;
    context.synchronize();
    driver.regions().set_peer(context.device().number(), peer->device().number(), false);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
