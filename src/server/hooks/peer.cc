// Access between devices.
#include "server/hooks_peer.h"

#include <vector>

#include "server/context_subjects.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

CUresult set_access(Request& request, CUdevice owner, bool allowed) {
  CUdevice accessor = 0;
  const CUresult result = request.driver().cuCtxGetDevice(&accessor);
  if (result != CUDA_SUCCESS) return result;
  request.session().memory().set_access(owner, accessor, allowed);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult ctx_enable_peer_access(Request& request, const commands::CtxEnablePeerAccess& command) {
  const Handles::Entry peer = request.session().handles().entry(wire::HandleKind::kContext,
                                                                address_of(command.peerContext));
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result =
      request.driver().cuCtxEnablePeerAccess(static_cast<CUcontext>(peer.native), command.Flags);
  if (result != CUDA_SUCCESS) return result;
  return set_access(request, ContextSubjects::origin(peer).device, true);
}

CUresult ctx_disable_peer_access(Request& request, const commands::CtxDisablePeerAccess& command) {
  const Handles::Entry peer = request.session().handles().entry(wire::HandleKind::kContext,
                                                                address_of(command.peerContext));
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result =
      request.driver().cuCtxDisablePeerAccess(static_cast<CUcontext>(peer.native));
  if (result != CUDA_SUCCESS) return result;
  request.driver().cuCtxSynchronize();
  return set_access(request, ContextSubjects::origin(peer).device, false);
}

void device_get_p_2_p_atomic_capabilities(Request request,
                                          const commands::DeviceGetP2PAtomicCapabilities& command) {
  const driver::Table& driver = request.driver();
  if (driver.cuDeviceGetP2PAtomicCapabilities == nullptr) {
    return request.reply(CUDA_ERROR_NOT_SUPPORTED);
  }
  std::vector<CUatomicOperation> operations = command.operations.to_vector();
  if (operations.empty() || operations.size() != command.count) {
    return request.reply(CUDA_ERROR_INVALID_VALUE);
  }
  std::vector<unsigned int> capabilities(operations.size());
  const CUresult result = driver.cuDeviceGetP2PAtomicCapabilities(
      capabilities.data(), operations.data(), command.count, command.srcDevice, command.dstDevice);
  commands::DeviceGetP2PAtomicCapabilities::Reply reply;
  reply.capabilities = wire::List<unsigned int>(capabilities);
  request.reply(result, reply);
}

}  // namespace flyt::server::hooks
