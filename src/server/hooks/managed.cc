// Managed variables.
#include "server/hooks_managed.h"

#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// This process writes what the client wrote whenever that comes, whatever the GPUs do.
bool may_be_written_any_time(const driver::Table& driver) {
  int devices = 0;
  bool all = driver.cuDeviceGetCount(&devices) == CUDA_SUCCESS;
  for (CUdevice device = 0; device < devices; ++device) {
    int concurrent = 0;
    all = all &&
          driver.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                      device) == CUDA_SUCCESS &&
          concurrent != 0;
  }
  return all;
}

}  // namespace

CUresult map_managed(Request& request, const commands::MapManaged& command) {
  Session& session = request.session();
  const auto region = session.regions().around(command.address);
  if (!region || region->kind != Regions::Kind::kGlobal || region->base != command.address ||
      region->size != command.bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Without a context the driver says nothing of addresses; who then lies ends this session only.
  if (request.context() != 0 && !is_managed(request.driver(), command.address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!may_be_written_any_time(request.driver())) return CUDA_ERROR_NOT_SUPPORTED;
  HostMirror& mirror = session.memory().host_mirror;
  const CUresult result = mirror.adopt(command.address, command.bytes);
  if (result == CUDA_SUCCESS) mirror.send_changes();
  return result;
}

}  // namespace flyt::server::hooks
