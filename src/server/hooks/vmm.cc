// Virtual memory management: create, map, open.
#include "server/hooks_vmm.h"

#include "commands/recovery.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server::hooks {

CUresult vmm_create(Request& request, const commands::VmmCreate& command,
                    commands::VmmCreate::Reply& reply) {
  MemorySubjects& memory = request.session().memory();
  CUresult result = memory.virtual_memory.create(command.allocation, command.bytes, command.device,
                                                 reply.block_id);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  memory.make_room(command.device);
  return memory.virtual_memory.create(command.allocation, command.bytes, command.device,
                                      reply.block_id);
}

CUresult vmm_release(Request& request, const commands::VmmRelease& command) {
  return request.session().memory().virtual_memory.release(command.allocation);
}

CUresult vmm_map(Request& request, const commands::VmmMap& command) {
  return request.session().memory().virtual_memory.map(command.address, command.bytes,
                                                       command.allocation);
}

CUresult vmm_unmap(Request& request, const commands::VmmUnmap& command) {
  return request.session().memory().virtual_memory.unmap(command.address, command.bytes);
}

CUresult vmm_set_access(Request& request, const commands::VmmSetAccess& command) {
  Session& session = request.session();
  // What a client of before makes again is open to the memory's own device.
  if (session.recovery() != nullptr &&
      !session.recovery()->marks().client_knows(commands::RecoveredPushes::kOp) &&
      session.memory().virtual_memory.elsewhere(command.address, command.bytes, command.device)) {
    session.recovery()->marks().spoil(request.op());
  }
  return session.memory().virtual_memory.set_access(command.address, command.bytes, command.device,
                                                    static_cast<CUmemAccess_flags>(command.access));
}

}  // namespace flyt::server::hooks
