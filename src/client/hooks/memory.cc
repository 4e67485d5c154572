// Device memory.
#include "client/hooks_memory.h"

#include <algorithm>

#include "client/call.h"
#include "client/memory_state.h"
#include "commands/graph.h"
#include "commands/memory.h"

namespace flyt::client::hooks {
namespace {

constexpr std::size_t kPitchBytes = 512;

CUresult allocate(std::size_t bytes, CUdeviceptr& address) {
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  bool known = true;
  const auto note = [&](const commands::MemAlloc::Reply& reply) {
    Memory memory;
    memory.kind = MemoryKind::kDevice;
    memory.base = reply.address;
    memory.bytes = bytes;
    memory.context = owner().handle;
    memory.device = context().device;
    memory.mapping_base = reply.block_address;
    memory.mapping_bytes = reply.block_bytes;
    memory.block_id = reply.block_id;
    known = session().memory().map().add(memory);
    if (known) address = reply.address;
    return CUDA_SUCCESS;
  };
  const CUresult result = ask_and_note(commands::MemAlloc{.bytes = bytes}, note);
  if (known) return result;
  // The server gave out what is in use here; nothing it says can be trusted any more.
  session().channel().shut_down("cuMemAlloc: the server's address is in use");
  return session().health();
}

}  // namespace

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  commands::MemInfo::Reply reply;
  const CUresult result = ask(commands::MemInfo{}, reply);
  if (result != CUDA_SUCCESS) return result;
  if (free != nullptr) *free = reply.free;
  if (total != nullptr) *total = reply.total;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  if (dptr == nullptr || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  return allocate(bytesize, *dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  const bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0 || !element) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Device& device = *session().devices().find(context().device);
  const auto pitch_max =
      static_cast<std::size_t>(std::max(0, device.attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH)));
  if (pitch_max < kPitchBytes || WidthInBytes > pitch_max - kPitchBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::size_t pitch = (WidthInBytes + kPitchBytes - 1) / kPitchBytes * kPitchBytes;
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = allocate(bytes, *dptr);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

// Works without a current context, as native does. The address is unknown at once; the server
// keeps the memory until the GPU has passed what may still use it, as a native free would wait.
CUresult cuMemFree_v2(CUdeviceptr dptr) {
  MemoryState& state = session().memory();
  const auto memory = state.map().find(dptr);
  const ContextOf home(memory ? home_of(*memory) : nullptr);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (dptr == 0) return session().captures().unsafe_call();
  if (memory && memory->kind == MemoryKind::kGraph) {
    return ask(commands::FreeGraphMemory{.stream = nullptr, .address = dptr});
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const auto removed =
      state.map().remove(dptr, MemoryKind::kDevice, MemoryKind::kPool, MemoryKind::kManaged);
  if (!removed) return state.shared().close_pointer(dptr);
  state.shared().on_freed(removed->base);
  if (removed->is_managed()) {
    const CUresult result = state.mirror().end(*removed);
    state.managed().remove(removed->base, removed->bytes);
    state.pinned().free(pointer_at(removed->base), removed->bytes);
    return result;
  }
  return post(commands::MemFree{.address = dptr});
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  if (pbase == nullptr && psize == nullptr) return CUDA_SUCCESS;
  const auto memory = session().memory().map().find(dptr);
  if (!memory) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = memory->base;
  if (psize != nullptr) *psize = memory->bytes;
  return CUDA_SUCCESS;
}

}  // namespace flyt::client::hooks
