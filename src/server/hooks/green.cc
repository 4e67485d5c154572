// Green contexts and the resources they are made of.
#include "server/hooks_green.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "server/context_description.h"
#include "server/context_subjects.h"
#include "server/lease/moves.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

constexpr std::size_t kGroupsMax = commands::SplitResource::Reply::kResourcesCountMax;
static_assert(kGroupsMax < Resources::kResourcesMax);

// Notes what the driver told of a resource, and tells the client of it.
template <class Reply>
CUresult tell(Request& request, CUresult result, const CUdevResource& resource, Reply& reply) {
  if (result != CUDA_SUCCESS) return result;
  reply.resource = request.session().contexts().resources().number_of(resource);
  if (reply.resource == 0) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  reply.sm = resource.sm;
  return CUDA_SUCCESS;
}

Handles::Entry entry_of(Session& session, CUcontext handle) {
  return session.handles().entry(wire::HandleKind::kContext, address_of(handle));
}

// The client's handle of a device's primary context; none if it has none.
Handles::Entry primary_of(Session& session, CUdevice device) {
  for (const Handles::Entry& entry : session.handles().all(wire::HandleKind::kContext)) {
    const ContextOrigin& origin = ContextSubjects::origin(entry);
    if (origin.primary && origin.device == device) return entry;
  }
  return {};
}

// To the tenant the device is the lease's part of it.
CUresult lease_resource(const driver::Table& driver, CUdevice device, const SmGrant& grant,
                        CUdevResourceType type, CUdevResource& resource) {
  Confined part;
  CUresult result = confine(driver, device, grant, part);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuGreenCtxGetDevResource(part.green, &resource, type);
  driver.cuGreenCtxDestroy(part.green);
  return result;
}

}  // namespace

CUresult device_resource(Request& request, const commands::DeviceResource& command,
                         commands::DeviceResource::Reply& reply) {
  const driver::Table& driver = request.driver();
  if (driver.cuDeviceGetDevResource == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const auto type = static_cast<CUdevResourceType>(command.type);
  CUdevResource resource{};
  const SmGrant grant = request.session().grant();
  const CUresult result = grant.confined() && command.device == 0
                              ? lease_resource(driver, command.device, grant, type, resource)
                              : driver.cuDeviceGetDevResource(command.device, &resource, type);
  return tell(request, result, resource, reply);
}

CUresult context_resource(Request& request, const commands::ContextResource& command,
                          commands::ContextResource::Reply& reply) {
  const driver::Table& driver = request.driver();
  const Handles::Entry entry = entry_of(request.session(), command.context);
  if (!entry) return CUDA_ERROR_INVALID_CONTEXT;
  const ContextOrigin& origin = ContextSubjects::origin(entry);
  const auto type = static_cast<CUdevResourceType>(command.type);
  CUdevResource resource{};
  if (origin.green != nullptr) {
    return tell(request, driver.cuGreenCtxGetDevResource(origin.green, &resource, type), resource,
                reply);
  }
  if (driver.cuCtxGetDevResource == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult result =
      driver.cuCtxGetDevResource(static_cast<CUcontext>(entry.native), &resource, type);
  return tell(request, result, resource, reply);
}

void split_resource(Request request, const commands::SplitResource& command) {
  const driver::Table& driver = request.driver();
  Resources& resources = request.session().contexts().resources();
  commands::SplitResource::Reply reply;
  const auto input = resources.find(command.resource);
  if (driver.cuDevSmResourceSplitByCount == nullptr) {
    return request.reply(CUDA_ERROR_NOT_SUPPORTED, reply);
  }
  if (!input) return request.reply(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, reply);
  std::vector<CUdevResource> groups(std::min<std::size_t>(command.groups, kGroupsMax));
  CUdevResource rest{};
  reply.groups = static_cast<std::uint32_t>(groups.size());
  const CUresult result =
      driver.cuDevSmResourceSplitByCount(groups.empty() ? nullptr : groups.data(), &reply.groups,
                                         &*input, &rest, command.flags, command.min_count);
  if (result != CUDA_SUCCESS) return request.reply(result, reply);
  std::vector<std::uint64_t> numbers;
  std::vector<CUdevSmResource> sms;
  for (std::size_t i = 0; i < std::min<std::size_t>(groups.size(), reply.groups); ++i) {
    numbers.push_back(resources.number_of(groups[i]));
    sms.push_back(groups[i].sm);
  }
  reply.resources = wire::List<std::uint64_t>(numbers);
  reply.sms = wire::List<CUdevSmResource>(sms);
  if (!groups.empty()) reply.rest = resources.number_of(rest);
  if (reply.rest != 0) reply.rest_sm = rest.sm;
  request.reply(CUDA_SUCCESS, reply);
}

CUresult describe_resources(Request& request, const commands::DescribeResources& command) {
  const driver::Table& driver = request.driver();
  Session& session = request.session();
  if (driver.cuDevResourceGenerateDesc == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  std::vector<CUdevResource> resources;
  for (std::size_t i = 0; i < command.resources.size(); ++i) {
    const auto found = session.contexts().resources().find(command.resources[i]);
    if (!found) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    resources.push_back(*found);
  }
  if (resources.empty()) return CUDA_ERROR_INVALID_VALUE;
  if (!session.contexts().may_describe()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdevResourceDesc native = nullptr;
  const CUresult result = driver.cuDevResourceGenerateDesc(
      &native, resources.data(), static_cast<unsigned int>(resources.size()));
  if (result != CUDA_SUCCESS) return result;
  if (session.handles().put(wire::HandleKind::kResourceDescription, address_of(command.description),
                            native)) {
    return CUDA_SUCCESS;
  }
  session.end("describe_resources: the handle is malformed or in use");
  return CUDA_ERROR_INVALID_HANDLE;
}

void create_green_context(Request request, const commands::CreateGreenContext& command) {
  using Reply = commands::CreateGreenContext::Reply;
  const driver::Table& driver = request.driver();
  Session& session = request.session();
  const Handles::Entry primary = primary_of(session, command.device);
  void* description = session.handles().find(wire::HandleKind::kResourceDescription,
                                             address_of(command.description));
  if (!primary || description == nullptr) return request.reply(CUDA_ERROR_INVALID_VALUE, Reply{});
  const std::uint32_t home = wire::Handle{primary.handle}.index();
  const std::uint32_t index = wire::Handle{address_of(command.context)}.index();
  CUgreenCtx green = nullptr;
  CUresult result = driver.cuGreenCtxCreate(&green, static_cast<CUdevResourceDesc>(description),
                                            command.device, command.flags);
  if (result != CUDA_SUCCESS) return request.reply(result, Reply{});
  CUcontext native = nullptr;
  result = driver.cuCtxFromGreenCtx(&native, green);
  if (result == CUDA_SUCCESS) result = driver.cuCtxSetCurrent(native);
  if (result == CUDA_SUCCESS) result = session.contexts().note_green(index, home);
  if (result != CUDA_SUCCESS) {
    driver.cuCtxSetCurrent(nullptr);
    session.forget_entered();
    driver.cuGreenCtxDestroy(green);
    return request.reply(result, Reply{});
  }
  session.moves().note_green();
  auto origin =
      std::make_shared<ContextOrigin>(command.device, green, address_of(command.green), home);
  if (!request.adopt(wire::HandleKind::kContext, command.context, native, origin)) return;
  if (!request.adopt(wire::HandleKind::kGreenContext, command.green, green, origin)) return;
  describe_context<Reply>(std::move(request), native);
}

CUresult destroy_green_context(Request& request, const commands::DestroyGreenContext& command) {
  Session& session = request.session();
  const Lock lock(session.endings());
  for (const Handles::Entry& entry : session.handles().all(wire::HandleKind::kContext)) {
    const ContextOrigin& origin = ContextSubjects::origin(entry);
    if (origin.green == nullptr || origin.green_handle != address_of(command.green)) continue;
    return session.contexts().end_green(entry);
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace flyt::server::hooks
