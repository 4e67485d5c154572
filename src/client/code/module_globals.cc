#include "client/code/module_globals.h"

#include "client/memory_state.h"

namespace flyt::client {

CUresult note_global(const ContextState& context, const NewGlobal& global, bool of_library) {
  MemoryState& state = session().memory();
  if (global.managed) {
    return state.add_managed_variable(global.address, global.bytes, of_library ? 0 : context.handle,
                                      context.device);
  }
  Memory memory;
  memory.kind = MemoryKind::kGlobal;
  memory.base = global.address;
  memory.bytes = global.bytes;
  memory.context = context.handle;
  memory.device = context.device;
  state.map().add(memory);
  return CUDA_SUCCESS;
}

void forget_globals(const Globals& globals) {
  MemoryState& state = session().memory();
  for (const auto& [name, global] : globals) {
    const auto removed =
        state.map().remove(global.first, MemoryKind::kGlobal, MemoryKind::kManagedVariable);
    if (removed && removed->is_managed()) state.remove_managed_variable(*removed);
  }
}

}  // namespace flyt::client
