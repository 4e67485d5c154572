// Host memory of the client that kernels reach.
#include "server/hooks_pinned.h"

#include "server/memory_subjects.h"
#include "server/session.h"
#include "wire/host_memory.h"

namespace flyt::server::hooks {

namespace {

// Once more where managed memory may have found the lease full.
template <class Map>
CUresult map_with_room(Request& request, std::uint32_t flags, Map&& map) {
  const CUresult result = map();
  if (result != CUDA_ERROR_OUT_OF_MEMORY || (flags & wire::kMapManaged) == 0) return result;
  CUdevice device = 0;
  static_cast<void>(request.driver().cuCtxGetDevice(&device));
  request.session().memory().make_room(device);
  return map();
}

}  // namespace

CUresult map_host(Request& request, const commands::MapHost& command) {
  if (request.context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return map_with_room(request, command.flags, [&] {
    return request.session().memory().host_mirror.map(command.address, command.bytes, command.flags,
                                                      request.home());
  });
}

CUresult share_host(Request& request, const commands::ShareHost& command) {
  if (request.context() == 0) return CUDA_ERROR_INVALID_CONTEXT;
  return map_with_room(request, command.flags, [&] {
    return request.session().memory().host_mirror.share(
        command.address, command.bytes, command.offset, command.flags, request.home());
  });
}

CUresult unmap_host(Request& request, const commands::UnmapHost& command) {
  Session& session = request.session();
  const CUresult result = session.memory().host_mirror.unmap(command.address, request.home());
  return result == CUDA_ERROR_INVALID_VALUE ? session.ended_before(result) : result;
}

CUresult write_host(Request& request, const commands::WriteHost& command) {
  if (request.session().memory().host_mirror.write(command.changes)) return CUDA_SUCCESS;
  request.session().end("write_host: malformed, or outside of the memory on both sides");
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace flyt::server::hooks
