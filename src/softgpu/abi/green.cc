// Green contexts and the resources they are made of.
#include <algorithm>
#include <cstring>
#include <vector>

#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

// What CUdevResource holds besides what programs may see. Programs copy it about, so nothing in it
// is an address, and everything is looked up again.
struct Inside {
  std::uint64_t magic = 0;
  std::int32_t device = 0;
  std::uint32_t set = 0;    // Multiprocessors::find()
  std::uint32_t split = 0;  // What it was split from: a set, or 0 for what was not split.
  std::uint32_t grain = 0;  // Of that split, so that its parts are known by both.
};
constexpr std::uint64_t kMagic = 0x6372'7365'725f'6d73;
static_assert(sizeof(Inside) <= sizeof(CUdevResource::_internal_padding));

CUdevResource make_resource(Device& device, const SmSet& sms, std::uint32_t split,
                            Multiprocessors::Grain grain) {
  CUdevResource resource{};
  const Inside inside{kMagic, device.number(), device.multiprocessors().number_of(sms), split,
                      split == 0 ? 0 : grain.step};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  std::memcpy(resource._internal_padding, &inside, sizeof inside);
  resource.sm.smCount = static_cast<unsigned>(sms.size());
  resource.sm.minSmPartitionSize = grain.least;
  resource.sm.smCoscheduledAlignment = grain.step;
  return resource;
}

struct Found {
  Device* device = nullptr;
  Inside inside;
  std::shared_ptr<const SmSet> sms;
};

CUresult read_resource(Driver& driver, const CUdevResource& resource, Found& out) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  std::memcpy(&out.inside, resource._internal_padding, sizeof out.inside);
  out.device = driver.device(out.inside.device);
  if (out.inside.magic != kMagic || out.device == nullptr) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  out.sms = out.device->multiprocessors().find(out.inside.set);
  return out.sms == nullptr || out.sms->size() != resource.sm.smCount
             ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION
             : CUDA_SUCCESS;
}

CUresult tell_resource(Device& device, const SmSet* sms, CUdevResourceType type,
                       CUdevResource* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  const Multiprocessors& chip = device.multiprocessors();
  *out = make_resource(device, sms == nullptr ? chip.all() : *sms, 0, chip.grain());
  return CUDA_SUCCESS;
}

constexpr unsigned kSplitFlags = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                                 CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;

// All groups that a resource can be split into.
std::vector<SmSet> groups_of(const Found& input, unsigned flags, unsigned least,
                             Multiprocessors::Grain& grain) {
  const Multiprocessors& chip = input.device->multiprocessors();
  const auto split = [&](Multiprocessors::Grain by) {
    grain = by;
    const unsigned size = (std::max(least, by.least) + by.step - 1) / by.step * by.step;
    return chip.split(*input.sms, size, by);
  };
  if ((flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0) {
    return split(chip.fine_grain());
  }
  if ((flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE) != 0) {
    // An attempt: groups for smaller clusters are better than none.
    auto groups = split(chip.cluster_grain());
    if (!groups.empty()) return groups;
  }
  return split(chip.grain());
}

// Calls body(driver, partition) for a green context.
template <class Body>
CUresult with_green(CUgreenCtx handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto green = driver.green_contexts().find(from_handle(handle));
    if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    // It may have gone with its primary context.
    return green->ended() ? CUDA_ERROR_CONTEXT_IS_DESTROYED : body(driver, green);
  });
}

CUcontext context_of(const Partition& green) { return to_handle<CUcontext>(green.names().handle); }

CUresult split_resource(Driver& driver, CUdevResource* result, unsigned* count,
                        const CUdevResource& resource, CUdevResource* remaining, unsigned flags,
                        unsigned least) {
  Found input;
  if (const CUresult bad = read_resource(driver, resource, input); bad != CUDA_SUCCESS) return bad;
  // Parts are split no further before a green context has been made of them.
  if (input.inside.split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if ((flags & ~kSplitFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (least > input.sms->size()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  Multiprocessors::Grain grain;
  std::vector<SmSet> groups = groups_of(input, flags, least, grain);
  if (groups.empty()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (result == nullptr) {
    *count = static_cast<unsigned>(groups.size());
    return CUDA_SUCCESS;
  }
  groups.resize(std::min<std::size_t>(groups.size(), *count));
  SmSet taken;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    result[i] = make_resource(*input.device, groups[i], input.inside.set, grain);
    taken = Multiprocessors::united(taken, groups[i]);
  }
  *count = static_cast<unsigned>(groups.size());
  if (remaining == nullptr) return CUDA_SUCCESS;
  const SmSet rest = Multiprocessors::without(*input.sms, taken);
  *remaining =
      rest.empty() ? CUdevResource{} : make_resource(*input.device, rest, input.inside.set, grain);
  return CUDA_SUCCESS;
}

CUresult describe(Driver& driver, const CUdevResource* resources, unsigned count,
                  ResourceDescription& out) {
  Found first;
  SmSet all;
  for (unsigned i = 0; i < count; ++i) {
    Found next;
    const CUresult bad = read_resource(driver, resources[i], next);
    if (bad != CUDA_SUCCESS) return bad;
    if (i == 0) first = next;
    // Of one device; whether one split made them all is not asked, as on NVIDIA's driver.
    if (next.device != first.device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    all = Multiprocessors::united(all, *next.sms);
  }
  out = {first.device->number(), std::make_shared<const SmSet>(std::move(all))};
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return with_driver([&](Driver& driver) -> CUresult {
    Device* found = driver.device(device);
    if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return tell_resource(*found, nullptr, type, resource);
  });
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (hCtx == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    std::shared_ptr<Context> context;
    std::shared_ptr<Partition> partition;
    const CUresult bad = named_partition(driver, hCtx, context, partition);
    if (bad != CUDA_SUCCESS) return bad;
    return tell_resource(context->device(), partition->sms().get(), type, resource);
  });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                  CUdevResourceType type) {
  return with_green(hCtx, [&](Driver&, const std::shared_ptr<Partition>& green) {
    return cuCtxGetDevResource(context_of(*green), resource, type);
  });
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int useFlags, unsigned int minCount) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (nbGroups == nullptr || input == nullptr || (result != nullptr && *nbGroups == 0)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return split_resource(driver, result, nbGroups, *input, remaining, useFlags, minCount);
  });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (phDesc == nullptr || resources == nullptr || nbResources == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ResourceDescription made;
    const CUresult bad = describe(driver, resources, nbResources, made);
    if (bad != CUDA_SUCCESS) return bad;
    *phDesc = to_handle<CUdevResourceDesc>(
        driver.resource_descriptions().add(std::make_shared<ResourceDescription>(std::move(made))));
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  return with_driver([&](Driver& driver) -> CUresult {
    if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if (driver.device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    const auto description = driver.resource_descriptions().find(from_handle(desc));
    if (description == nullptr || description->device != dev) return CUDA_ERROR_INVALID_VALUE;
    CUcontext primary = nullptr;
    if (const CUresult bad = cuDevicePrimaryCtxRetain(&primary, dev); bad != CUDA_SUCCESS) {
      return bad;
    }
    const auto context = driver.contexts().find(from_handle(primary));
    if (context == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *phCtx = to_handle<CUgreenCtx>(driver.make_green(context, description->sms)->names().green);
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto green = driver.green_contexts().take(from_handle(hCtx));
    if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context_stack().top() == green->names().handle) context_stack().pop();
    CUdevice device = 0;
    const CUresult gone = cuCtxGetDevice_v2(&device, context_of(*green));
    if (gone != CUDA_SUCCESS) return gone;
    driver.end_green(green);
    return cuDevicePrimaryCtxRelease_v2(device);
  });
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  return with_green(hCtx, [&](Driver&, const std::shared_ptr<Partition>& green) -> CUresult {
    if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pContext = context_of(*green);
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return with_green(hCtx, [&](Driver&, const std::shared_ptr<Partition>& green) {
    return cuCtxRecordEvent(context_of(*green), hEvent);
  });
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  return with_green(hCtx, [&](Driver&, const std::shared_ptr<Partition>& green) {
    return cuCtxWaitEvent(context_of(*green), hEvent);
  });
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return with_stream(hStream, [&](Driver&, Context&, const StreamOfCall& stream) -> CUresult {
    if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *phCtx = to_handle<CUgreenCtx>(stream.partition->names().green);
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  return with_green(greenCtx, [&](Driver& driver, const std::shared_ptr<Partition>& green) {
    if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *phStream = to_handle<CUstream>(driver.streams().add(green->add_stream(flags, priority)));
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  return with_green(greenCtx, [&](Driver&, const std::shared_ptr<Partition>& green) -> CUresult {
    if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *greenCtxId = green->names().id;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
