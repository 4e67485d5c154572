#include "client/module_globals.h"

#include "client/memory_state.h"

namespace flyt::client {

void note_global(const ContextState& context, CUdeviceptr address, std::size_t bytes) {
  Memory memory;
  memory.kind = MemoryKind::kGlobal;
  memory.base = address;
  memory.bytes = bytes;
  memory.context = context.handle;
  memory.device = context.device;
  session().memory().map().add(memory);
}

void forget_globals(const Globals& globals) {
  for (const auto& [name, global] : globals) {
    session().memory().map().remove(global.first, MemoryKind::kGlobal);
  }
}

}  // namespace flyt::client
