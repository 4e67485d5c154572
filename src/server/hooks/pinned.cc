// Host memory of the client that kernels reach.
#include "server/hooks_pinned.h"

#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {

CUresult map_host(Request& request, const commands::MapHost& command) {
  if (request.context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return request.session().memory().host_mirror.map(command.address, command.bytes, command.flags,
                                                    request.home());
}

CUresult share_host(Request& request, const commands::ShareHost& command) {
  if (request.context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return request.session().memory().host_mirror.share(
      command.address, command.bytes, command.offset, command.flags, request.home());
}

CUresult unmap_host(Request& request, const commands::UnmapHost& command) {
  return request.session().memory().host_mirror.unmap(command.address, request.home());
}

CUresult write_host(Request& request, const commands::WriteHost& command) {
  if (request.session().memory().host_mirror.write(command.changes)) return CUDA_SUCCESS;
  request.session().end("write_host: malformed, or outside of the memory on both sides");
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::server::hooks
