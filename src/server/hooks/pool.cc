// Stream-ordered allocation and its pools.
#include "server/hooks_pool.h"

#include <utility>

#include "server/graphs/graphs.h"
#include "server/lease/moves.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

void answer(Request& request, CUresult result, const Pools::Allocation& allocation) {
  commands::PoolAllocate::Reply reply;
  reply.address = allocation.address;
  reply.block_address = allocation.chunk_address;
  reply.block_bytes = allocation.chunk_bytes;
  reply.block_id = allocation.chunk_id;
  request.reply(result, reply);
}

// Grows the pool; memory that waits for the GPU or lies idle elsewhere is used before the device
// is said to be full.
CUresult allocate(MemorySubjects& memory, std::uint64_t pool, std::uint64_t bytes,
                  const StreamPlace& place, Pools::Allocation& allocation) {
  CUresult result = memory.pools.allocate(pool, bytes, place, allocation);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  CUdevice device = 0;
  static_cast<void>(memory.session.driver().cuCtxGetDevice(&device));
  memory.make_room(device);
  return memory.pools.allocate(pool, bytes, place, allocation);
}

// The stream may have died with its context meanwhile.
CUresult allocate_in_use(MemorySubjects& memory, std::uint64_t context, std::uint64_t pool,
                         std::uint64_t bytes, const StreamPlace& place,
                         Pools::Allocation& allocation) {
  const auto using_stream = memory.session.use();
  const CUresult entered = memory.session.enter_again(context);
  if (entered != CUDA_SUCCESS) return entered;
  return allocate(memory, pool, bytes, place, allocation);
}

}  // namespace

CUresult pool_create(Request& request, const commands::PoolCreate& command) {
  return request.session().memory().pools.create(command.pool, command.device, command.bytes_max);
}

CUresult pool_destroy(Request& request, const commands::PoolDestroy& command) {
  Session& session = request.session();
  const CUresult result = session.memory().pools.destroy(command.pool);
  return result == CUDA_ERROR_INVALID_VALUE ? session.ended_before(result) : result;
}

void pool_allocate(Request request, const commands::PoolAllocate& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return answer(request, CUDA_ERROR_INVALID_HANDLE, {});
  if (request.session().graphs().capturing(stream)) {
    return answer(request, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, {});
  }
  MemorySubjects& memory = request.session().memory();
  const StreamPlace place{request.context(), stream};
  Pools::Allocation allocation;
  const CUresult result = memory.pools.take(command.pool, command.bytes, place, allocation);
  if (result != CUDA_ERROR_NOT_READY) return answer(request, result, allocation);
  // The worker may have to name the stream to the driver: it must not die meanwhile.
  auto owner = request.owner_of(command.stream);
  auto placing = request.session().moves().placing();
  Session& session = request.session();
  const std::uint64_t context =
      session.handles().handle_at(wire::HandleKind::kContext, request.context());
  request.forget_payload();
  session.run_slow(std::move(request), [&memory, context, place, pool = command.pool,
                                        bytes = command.bytes, keep = std::move(owner),
                                        placing = std::move(placing)](Request slow) mutable {
    Pools::Allocation made;
    const CUresult grown = allocate_in_use(memory, context, pool, bytes, place, made);
    placing = nullptr;
    answer(slow, grown, made);
  });
}

CUresult pool_free(Request& request, const commands::PoolFree& command) {
  CUstream stream = command.stream;
  if (!request.resolve(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (request.session().graphs().capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  MemorySubjects& memory = request.session().memory();
  if (memory.pools.free(command.address, {request.context(), stream})) return CUDA_SUCCESS;
  // What cuMemAlloc gave may be freed this way too.
  return memory.free_later(command.address, request.home())
             ? CUDA_SUCCESS
             : request.session().ended_before(CUDA_ERROR_INVALID_VALUE);
}

CUresult pool_trim(Request& request, const commands::PoolTrim& command) {
  return request.session().memory().pools.trim(command.pool, command.bytes_to_keep);
}

CUresult pool_get(Request& request, const commands::PoolGet& command,
                  commands::PoolGet::Reply& reply) {
  return request.session().memory().pools.get(
      command.pool, static_cast<CUmemPool_attribute>(command.attribute), reply.value);
}

CUresult pool_set(Request& request, const commands::PoolSet& command) {
  return request.session().memory().pools.set(
      command.pool, static_cast<CUmemPool_attribute>(command.attribute), command.value);
}

CUresult pool_access(Request& request, const commands::PoolAccess& command) {
  const driver::Table& driver = request.driver();
  int reaches = 0;
  const CUresult known = driver.cuDeviceCanAccessPeer(&reaches, command.accessor, command.owner);
  if (known != CUDA_SUCCESS || reaches == 0) return CUDA_ERROR_INVALID_DEVICE;
  MemorySubjects& memory = request.session().memory();
  if (!memory.blocks.fixed_addresses()) return CUDA_ERROR_INVALID_DEVICE;
  memory.set_access(command.owner, command.accessor, command.allowed != 0);
  return CUDA_SUCCESS;
}

}  // namespace flyt::server::hooks
