// Device memory: cuMemAlloc, cuMemFree, cuMemGetInfo.
#include "server/hooks_memory.h"

#include <algorithm>
#include <utility>

#include "server/lease/usage_board.h"
#include "server/memory_subjects.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

void answer(Request& request, const Arena::Allocation& allocation) {
  commands::MemAlloc::Reply reply;
  reply.address = allocation.address;
  reply.block_address = allocation.block_address;
  reply.block_bytes = allocation.block_bytes;
  reply.block_id = allocation.block_id;
  request.reply(CUDA_SUCCESS, reply);
}

// Maps new memory; what waits for the GPU, lies idle or fills pools is used before the device is
// said to be full.
CUresult allocate(MemorySubjects& memory, const Arena::Wanted& wanted,
                  Arena::Allocation& allocation) {
  CUresult result = memory.arena.allocate(wanted, allocation);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && memory.reaper.drain()) {
    result = memory.arena.allocate(wanted, allocation);
  }
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  memory.make_room(wanted.device);
  return memory.arena.allocate(wanted, allocation);
}

}  // namespace

void mem_alloc(Request request, const commands::MemAlloc& command) {
  MemorySubjects& memory = request.session().memory();
  Arena::Wanted wanted{0, command.bytes, request.home(), request.home()};
  const CUresult result = request.driver().cuCtxGetDevice(&wanted.device);
  if (result != CUDA_SUCCESS) return request.reply(result, commands::MemAlloc::Reply{});
  if (const auto taken = memory.arena.take(wanted)) return answer(request, *taken);
  Session& session = request.session();
  request.forget_payload();
  session.run_slow(std::move(request), [&memory, wanted](Request slow) {
    Arena::Allocation allocation;
    const CUresult mapped = allocate(memory, wanted, allocation);
    if (mapped == CUDA_SUCCESS) return answer(slow, allocation);
    slow.reply(mapped, commands::MemAlloc::Reply{});
  });
}

CUresult mem_free(Request& request, const commands::MemFree& command) {
  const bool freed = request.session().memory().free_later(command.address, request.home());
  return freed ? CUDA_SUCCESS : request.session().ended_before(CUDA_ERROR_INVALID_VALUE);
}

CUresult mem_info(Request& request, const commands::MemInfo&, commands::MemInfo::Reply& reply) {
  CUdevice device = 0;
  const CUresult result = request.driver().cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  const Arena& arena = request.session().memory().arena;
  return request.session().memory().arena.while_settled([&] {
    std::size_t free = 0;
    std::size_t total = 0;
    const CUresult asked = request.driver().cuMemGetInfo_v2(&free, &total);
    const MemoryQuota quota = own_usage().quota();
    if (quota.limit != 0 && device == 0) {
      total = std::min(total, std::max(quota.limit, quota.used));
      free = std::min(free, quota.left());
    }
    // What we keep mapped for the next allocation is free as far as the program can tell.
    reply.free = std::min(free + arena.usage(device).idle_bytes, total);
    reply.total = total;
    return asked;
  });
}

}  // namespace flyt::server::hooks
