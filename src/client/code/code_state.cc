#include "client/code/code_state.h"

#include "client/context.h"
#include "client/recovery/recovery.h"

namespace flyt::client {

CodeState::CodeState()
    : modules(wire::HandleKind::kModule),
      libraries(wire::HandleKind::kLibrary),
      functions(wire::HandleKind::kFunction),
      kernels(wire::HandleKind::kKernel),
      links(wire::HandleKind::kLink) {}

void CodeState::forget_module(std::uint64_t handle) {
  ModuleState* module = modules.find(handle);
  if (module == nullptr) return;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [name, function] : module->functions) functions.drop(function);
    module->functions.clear();
    module->globals.clear();
  }
  modules.drop(handle);
  forget_code(handle);
}

void CodeState::forget_code(std::uint64_t handle) const {
  if (recovery != nullptr) recovery->drop_code(handle);
}

void CodeState::on_context_destroyed(const ContextState& context) {
  std::vector<std::uint64_t> dead_modules;
  modules.for_each([&](std::uint64_t handle, const ModuleState& module) {
    if (module.context == &context) dead_modules.push_back(handle);
  });
  for (const std::uint64_t handle : dead_modules) forget_module(handle);
  functions.for_each([&](std::uint64_t handle, const FunctionState& function) {
    if (function.context == &context) functions.drop(handle);
  });
  const std::lock_guard lock(mutex);
  const auto of_context = [&](const auto& entry) { return entry.first == &context; };
  kernels.for_each(
      [&](std::uint64_t, KernelState& kernel) { std::erase_if(kernel.functions, of_context); });
  libraries.for_each(
      [&](std::uint64_t, LibraryState& library) { std::erase_if(library.modules, of_context); });
}

}  // namespace flyt::client
