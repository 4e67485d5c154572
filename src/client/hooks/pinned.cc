// Page-locked host memory.
#include "client/hooks_pinned.h"

#include "base/mappings.h"
#include "client/call.h"
#include "client/memory_state.h"
#include "commands/pinned.h"

namespace flyt::client::hooks {
namespace {

constexpr unsigned int kAllocFlags =
    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
constexpr unsigned int kRegisterFlags =
    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;

Memory host_memory(MemoryKind kind, const void* base, std::uint64_t bytes, unsigned int flags) {
  Memory memory;
  memory.kind = kind;
  memory.base = address_of(base);
  memory.bytes = bytes;
  memory.context = owner().handle;
  memory.device = context().device;
  // Native tells every block as mapped, whether that was asked for or not.
  memory.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  if (memory.read_only()) memory.access = CU_MEM_ACCESS_FLAGS_PROT_READ;
  return memory;
}

// Notes host memory; kernels reach it from now on where the program has said that they will.
CUresult add(const Memory& memory) {
  MemoryState& state = session().memory();
  state.mirror().note_candidate(memory);
  if (!state.map().add(memory)) {
    state.mirror().drop_candidate();
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  return CUDA_SUCCESS;
}

CUresult add_for_kernels(const Memory& memory, unsigned int flags, unsigned int wanted) {
  CUresult result = add(memory);
  if (result != CUDA_SUCCESS || (flags & wanted) == 0) return result;
  MemoryState& state = session().memory();
  result = state.mirror().begin(memory.base);
  if (result == CUDA_SUCCESS) return result;
  if (state.map().remove(memory.base, memory.kind)) state.mirror().drop_candidate();
  return result;
}

// Forgets it, with all that may still write there done.
CUresult let_go(const Memory& memory) {
  MemoryState& state = session().memory();
  CUresult result = CUDA_SUCCESS;
  if (memory.mirrored) {
    result = state.mirror().end(memory);
  } else {
    state.mirror().drop_candidate();
  }
  // A native free waits for the GPU; here only what still writes to these very pages matters.
  state.transfers().await_arrivals(memory.base, memory.bytes);
  return result;
}

}  // namespace

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) { return cuMemHostAlloc(pp, bytesize, 0); }

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  if (pp == nullptr || (Flags & ~kAllocFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  *pp = nullptr;
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  if (bytesize == 0) return CUDA_SUCCESS;
  MemoryState& memory = session().memory();
  void* allocated = memory.pinned().allocate(bytesize);
  if (allocated == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const Memory fresh = host_memory(MemoryKind::kPinned, allocated, bytesize, Flags);
  const CUresult result = memory.pinned().shared()
                              ? memory.add_shared(fresh)
                              : add_for_kernels(fresh, Flags, CU_MEMHOSTALLOC_DEVICEMAP);
  if (result != CUDA_SUCCESS) {
    memory.pinned().free(allocated, bytesize);
    return result;
  }
  *pp = allocated;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* p) {
  MemoryState& memory = session().memory();
  const auto there = memory.map().find(address_of(p));
  const ContextOf home(there ? home_of(*there) : nullptr);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  if (p == nullptr) return CUDA_SUCCESS;
  const auto freed = memory.map().remove(address_of(p), MemoryKind::kPinned);
  if (!freed) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = let_go(*freed);
  memory.pinned().free(p, freed->bytes);
  return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  if (pdptr == nullptr || Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  MemoryState& state = session().memory();
  auto memory = state.map().find(address_of(p));
  if (!memory || memory->on_device()) return CUDA_ERROR_INVALID_VALUE;
  // Who asks means to give it to a kernel.
  if (const CUresult result = state.mirror().begin(memory->base); result != CUDA_SUCCESS) {
    return result;
  }
  memory = state.map().find(address_of(p));
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = memory->device_address(address_of(p));
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  if (pFlags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto memory = session().memory().map().find(address_of(p));
  if (!memory || (memory->on_device() && !memory->is_managed())) return CUDA_ERROR_INVALID_VALUE;
  // That it is for reading only is told as its access.
  *pFlags = memory->is_managed() ? CU_MEMHOSTALLOC_DEVICEMAP
                                 : memory->flags & ~unsigned{CU_MEMHOSTREGISTER_READ_ONLY};
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  const std::uint64_t base = address_of(p);
  std::uint64_t last = 0;
  if (p == nullptr || bytesize == 0 || (Flags & ~kRegisterFlags) != 0 ||
      __builtin_add_overflow(base, bytesize - 1, &last)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  MemoryMap& map = session().memory().map();
  const auto there = map.find(base);
  if (there && there->kind != MemoryKind::kRegistered) return CUDA_ERROR_INVALID_VALUE;
  if (map.overlaps(base, bytesize)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  // The GPU may write what it has, and so must the program.
  const bool read_only = (Flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (!pages_allow(base, bytesize, read_only ? PageUse::kRead : PageUse::kWrite)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return add_for_kernels(host_memory(MemoryKind::kRegistered, p, bytesize, Flags), Flags,
                         CU_MEMHOSTREGISTER_DEVICEMAP);
}

// The first version takes any flag, and heeds those that it knows.
CUresult cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
  return cuMemHostRegister_v2(p, bytesize, Flags & kRegisterFlags);
}

CUresult cuMemHostUnregister(void* p) {
  MemoryState& memory = session().memory();
  const auto there = memory.map().find(address_of(p));
  const ContextOf home(there ? home_of(*there) : nullptr);
  if (home.bad() != CUDA_SUCCESS) return home.bad();
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult no = session().captures().unsafe_call(); no != CUDA_SUCCESS) return no;
  const auto removed = memory.map().remove(address_of(p), MemoryKind::kRegistered);
  if (removed) return let_go(*removed);
  return there ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

}  // namespace flyt::client::hooks
