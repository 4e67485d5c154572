// A session that goes on in this process.
#include "server/hooks_recovery.h"

#include "server/memory_subjects.h"
#include "server/recovery.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// Whether another process's session goes on here; else the client has broken a rule.
bool goes_on(Request& request) {
  const Recovery* const recovery = request.session().recovery();
  if (recovery != nullptr && recovery->before()) return true;
  request.session().end("a session that is new has nothing to restore");
  return false;
}

}  // namespace

CUresult recovered_marks(Request& request, const commands::RecoveredMarks&,
                         commands::RecoveredMarks::Reply& reply) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  const Marks::Told& before = *request.session().recovery()->before();
  reply.begun = before.begun;
  reply.work = before.work;
  reply.done = before.done;
  reply.spoilt = before.spoilt;
  return CUDA_SUCCESS;
}

CUresult restore_memory(Request& request, const commands::RestoreMemory& command,
                        commands::RestoreMemory::Reply& reply) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  Arena::Wanted wanted{0, command.bytes, request.home(), request.home()};
  const CUresult result = request.driver().cuCtxGetDevice(&wanted.device);
  if (result != CUDA_SUCCESS) return result;
  const auto allocation = request.session().memory().arena.restore(command.address, wanted);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  reply.block_address = allocation->block_address;
  reply.block_bytes = allocation->block_bytes;
  reply.block_id = allocation->block_id;
  return CUDA_SUCCESS;
}

CUresult end_restoring(Request& request, const commands::EndRestoring&) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  for (CUdevice device = 0; device < static_cast<CUdevice>(kUsageDevicesMax); ++device) {
    request.session().memory().arena.trim(device);
  }
  request.session().recovery()->end_restoring();
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
