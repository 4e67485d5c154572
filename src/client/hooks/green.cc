// Green contexts and the resources they are made of.
#include "client/hooks_green.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "client/call.h"
#include "client/code/code_state.h"
#include "client/context_life.h"
#include "client/hooks_context.h"
#include "client/memory_state.h"
#include "commands/green.h"

namespace flyt::client {

void end_green(ContextState& context) {
  const auto handle = static_cast<CUcontext>(pointer_at(context.handle));
  session().storage().end(handle);
  session().memory().on_green_destroyed(context);
  context.live.store(0);
}

namespace hooks {
namespace {

// What a CUdevResource holds besides what programs may see: which of the server's it stands for.
// Programs copy it about, and could write anything; the server looks the number up.
struct Inside {
  std::uint64_t magic = 0;
  std::uint64_t resource = 0;
};
constexpr std::uint64_t kMagic = 0x6372'7365'722d'7966;
static_assert(sizeof(Inside) <= sizeof(CUdevResource::_internal_padding));

constexpr std::size_t kGroupsMax = commands::SplitResource::Reply::kResourcesCountMax;

CUdevResource make_resource(std::uint64_t number, const CUdevSmResource& sm) {
  CUdevResource resource{};
  if (number == 0) return resource;
  const Inside inside{kMagic, number};
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  std::memcpy(resource._internal_padding, &inside, sizeof inside);
  resource.sm = sm;
  return resource;
}

CUresult read_resource(const CUdevResource& resource, std::uint64_t& number) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Inside inside;
  std::memcpy(&inside, resource._internal_padding, sizeof inside);
  number = inside.resource;
  // What programs see of it is theirs to read.
  const bool sound = inside.magic == kMagic && resource.sm.smCount != 0;
  return sound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

template <class Command>
CUresult tell_resource(const Command& command, CUdevResource* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (command.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  typename Command::Reply reply;
  const CUresult result = ask(command, reply);
  if (result == CUDA_SUCCESS) *out = make_resource(reply.resource, reply.sm);
  return result;
}

CUcontext handle_of(const ContextState& context) {
  return static_cast<CUcontext>(pointer_at(context.handle));
}

// A live green context's; CUDA_ERROR_CONTEXT_IS_DESTROYED where it died with its primary context.
CUresult find_green(CUgreenCtx handle, ContextState*& context) {
  const GreenState* green = session().contexts().greens.find(address_of(handle));
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context = green->context;
  return context->live.load() == 0 ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

// With the primary context retained for it.
CUresult create(CUdevResourceDesc desc, CUdevice device, unsigned int flags, CUcontext primary,
                CUgreenCtx& out) {
  Contexts& contexts = session().contexts();
  const auto* description = contexts.descriptions.table.find(address_of(desc));
  if (description == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto made = contexts.greens.make();
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  ContextState* context = contexts.make(device, false, contexts.find(primary), made.handle);
  const auto green = static_cast<CUgreenCtx>(pointer_at(made.handle));
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  commands::CreateGreenContext::Reply reply;
  rpc::Reply answer;
  if (context != nullptr) {
    result = ask(commands::CreateGreenContext{.green = green,
                                              .context = handle_of(*context),
                                              .description = desc,
                                              .device = device,
                                              .flags = flags},
                 reply, answer);
  }
  if (result != CUDA_SUCCESS) {
    contexts.greens.discard(made.handle);
    return result;
  }
  context->multiprocessors = description->multiprocessors;
  come_alive(*context, reply, context->home->flags.load());
  context->home->streams.note_unnamed();
  made.state->context = context;
  contexts.greens.publish(made.handle);
  out = green;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult no = check_device(device); no != CUDA_SUCCESS) return no;
  return tell_resource(
      commands::DeviceResource{.device = device, .type = static_cast<std::uint32_t>(type)},
      resource);
}

CUresult cuCtxGetDevResource(CUcontext hCtx, CUdevResource* resource, CUdevResourceType type) {
  if (const CUresult no = check(hCtx); no != CUDA_SUCCESS) return no;
  return tell_resource(
      commands::ContextResource{.context = hCtx, .type = static_cast<std::uint32_t>(type)},
      resource);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource* resource,
                                  CUdevResourceType type) {
  ContextState* context = nullptr;
  if (const CUresult no = find_green(hCtx, context); no != CUDA_SUCCESS) return no;
  return cuCtxGetDevResource(handle_of(*context), resource, type);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* nbGroups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int useFlags, unsigned int minCount) {
  if (nbGroups == nullptr || input == nullptr || (result != nullptr && *nbGroups == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::uint64_t number = 0;
  if (const CUresult no = read_resource(*input, number); no != CUDA_SUCCESS) return no;
  const std::size_t room = result == nullptr ? 0 : std::min<std::size_t>(*nbGroups, kGroupsMax);
  commands::SplitResource::Reply reply;
  rpc::Reply answer;
  const CUresult split = ask(commands::SplitResource{.resource = number,
                                                     .groups = static_cast<std::uint32_t>(room),
                                                     .flags = useFlags,
                                                     .min_count = minCount},
                             reply, answer);
  if (split != CUDA_SUCCESS) return split;
  *nbGroups = reply.groups;
  if (result == nullptr) return CUDA_SUCCESS;
  const std::size_t told = std::min({room, reply.resources.size(), reply.sms.size()});
  *nbGroups = static_cast<unsigned int>(told);
  for (std::size_t i = 0; i < told; ++i) {
    result[i] = make_resource(reply.resources[i], reply.sms[i]);
  }
  if (remaining != nullptr) *remaining = make_resource(reply.rest, reply.rest_sm);
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* phDesc, CUdevResource* resources,
                                   unsigned int nbResources) {
  if (phDesc == nullptr || resources == nullptr || nbResources == 0 || nbResources > kGroupsMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<std::uint64_t> numbers(nbResources);
  std::uint32_t multiprocessors = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const CUresult no = read_resource(resources[i], numbers[i]);
    if (no != CUDA_SUCCESS) return no;
    multiprocessors += resources[i].sm.smCount;
  }
  ResourceDescriptions& descriptions = session().contexts().descriptions;
  std::uint64_t handle = descriptions.find(numbers);
  if (handle == 0) {
    const auto made = descriptions.table.make();
    if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult no = ask(commands::DescribeResources{
        .description = static_cast<CUdevResourceDesc>(pointer_at(made.handle)),
        .resources = wire::List<std::uint64_t>(std::span<const std::uint64_t>(numbers))});
    if (no != CUDA_SUCCESS) {
      descriptions.table.discard(made.handle);
      return no;
    }
    made.state->resources = numbers;
    made.state->multiprocessors = multiprocessors;
    descriptions.table.publish(made.handle);
    descriptions.add(made.handle, numbers);
    handle = made.handle;
  }
  *phDesc = static_cast<CUdevResourceDesc>(pointer_at(handle));
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx* phCtx, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags) {
  if (phCtx == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  CUcontext primary = nullptr;
  if (const CUresult no = cuDevicePrimaryCtxRetain(&primary, dev); no != CUDA_SUCCESS) return no;
  const CUresult result = create(desc, dev, flags, primary, *phCtx);
  if (result != CUDA_SUCCESS) static_cast<void>(cuDevicePrimaryCtxRelease_v2(dev));
  return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  ContextState* context = nullptr;
  const CUresult found = find_green(hCtx, context);
  if (found == CUDA_ERROR_INVALID_CONTEXT) return found;
  if (!session().contexts().greens.drop(address_of(hCtx))) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (thread_state().current_state == context) pop_current();
  // With its primary context everything else has gone already.
  if (found != CUDA_SUCCESS) return found;
  session().memory().transfers().await_late_copies();
  end_green(*context);
  const CUresult result = ask(commands::DestroyGreenContext{.green = hCtx});
  const CUresult released = cuDevicePrimaryCtxRelease_v2(context->device);
  return result != CUDA_SUCCESS ? result : released;
}

CUresult cuCtxFromGreenCtx(CUcontext* pContext, CUgreenCtx hCtx) {
  ContextState* context = nullptr;
  if (const CUresult no = find_green(hCtx, context); no != CUDA_SUCCESS) return no;
  if (pContext == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pContext = handle_of(*context);
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent) {
  ContextState* context = nullptr;
  if (const CUresult no = find_green(hCtx, context); no != CUDA_SUCCESS) return no;
  return cuCtxRecordEvent(handle_of(*context), hEvent);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent) {
  ContextState* context = nullptr;
  if (const CUresult no = find_green(hCtx, context); no != CUDA_SUCCESS) return no;
  return cuCtxWaitEvent(handle_of(*context), hEvent);
}

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  if (const CUresult no = check(hStream); no != CUDA_SUCCESS) return no;
  if (phCtx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const StreamState* state = session().memory().streams.find(address_of(hStream));
  const ContextState& of = state != nullptr ? *state->context : context();
  *phCtx = static_cast<CUgreenCtx>(pointer_at(of.green));
  return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream* phStream, CUgreenCtx greenCtx, unsigned int flags,
                                int priority) {
  ContextState* context = nullptr;
  if (const CUresult no = find_green(greenCtx, context); no != CUDA_SUCCESS) return no;
  if (phStream == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  // Whatever context the thread has current.
  ContextState* before = thread_state().current_state;
  set_current(context);
  const int clamped =
      std::clamp(priority, context->greatest_priority.load(), context->least_priority.load());
  const CUresult result = session().memory().make_stream(*context, flags, clamped, *phStream);
  set_current(before);
  return result;
}

CUresult cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long* greenCtxId) {
  ContextState* context = nullptr;
  if (const CUresult no = find_green(greenCtx, context); no != CUDA_SUCCESS) return no;
  if (greenCtxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *greenCtxId = context->id;
  return CUDA_SUCCESS;
}

}  // namespace hooks
}  // namespace flyt::client
