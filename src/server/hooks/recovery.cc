// A session that goes on in this process.
#include "server/hooks_recovery.h"

#include "server/code/code_subjects.h"
#include "server/graphs/graphs.h"
#include "server/hooks_graph.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
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

// A client that makes its session again asks this when all its code is loaded, and before anything
// runs.
CUresult hear_posts(Request& request, const commands::HearPosts&) {
  Session& session = request.session();
  if (session.recovery() == nullptr) return CUDA_SUCCESS;
  const auto saved = session.recovery()->take_variables();
  Status restored;
  if (saved != nullptr) restored = session.code().variables().restore(*saved);
  if (restored) restored = session.graphs().records().restore(request);
  if (!restored) {
    session.log().warn("the session cannot go on here", {{"why", restored.error().message}});
    session.end(restored.error().message);
  }
  return CUDA_SUCCESS;
}

CUresult recovered_fault(Request& request, const commands::RecoveredFault&,
                         commands::RecoveredFault::Reply& reply) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  reply.error = request.session().recovery()->before()->fault;
  return CUDA_SUCCESS;
}

CUresult recovered_pushes(Request& request, const commands::RecoveredPushes&,
                          commands::RecoveredPushes::Reply& reply) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  reply.pushes = request.session().recovery()->before()->pushes;
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

CUresult restore_pool_memory(Request& request, const commands::RestorePoolMemory& command,
                             commands::RestorePoolMemory::Reply& reply) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  Pools::Allocation allocation;
  const CUresult result = request.session().memory().pools.restore(command.pool, command.address,
                                                                   command.bytes, allocation);
  reply.block_address = allocation.chunk_address;
  reply.block_bytes = allocation.chunk_bytes;
  reply.block_id = allocation.chunk_id;
  return result;
}

CUresult end_restoring(Request& request, const commands::EndRestoring&) {
  if (!goes_on(request)) return CUDA_ERROR_INVALID_VALUE;
  request.session().memory().arena.end_restoring();
  for (CUdevice device = 0; device < static_cast<CUdevice>(kUsageDevicesMax); ++device) {
    request.session().memory().arena.trim(device);
  }
  request.session().memory().virtual_memory.end_restoring();
  request.session().code().variables().end_restoring();
  request.session().recovery()->end_restoring();
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
