#include "client/memory/images.h"

#include "client/call.h"
#include "client/memory_state.h"

namespace flyt::client {

Images::Images()
    : arrays(wire::HandleKind::kArray),
      mipmapped_arrays(wire::HandleKind::kMipmappedArray),
      texture_references(wire::HandleKind::kTextureReference),
      surface_references(wire::HandleKind::kSurfaceReference) {}

void Images::on_context_destroyed(const ContextState& context) {
  const auto drop_all = [&](auto& table) {
    table.for_each([&](std::uint64_t handle, const auto& state) {
      if (state.context == &context) table.drop(handle);
    });
  };
  drop_all(arrays);
  drop_all(mipmapped_arrays);
  drop_all(texture_references);
  drop_all(surface_references);
  const Lock lock(mutex);
  const auto of_context = [&](const auto& item) { return item.second.context == &context; };
  std::erase_if(textures, of_context);
  std::erase_if(surfaces, of_context);
  std::erase_if(texture_names,
                [&](const auto& item) { return texture_references.find(item.second) == nullptr; });
  std::erase_if(surface_names,
                [&](const auto& item) { return surface_references.find(item.second) == nullptr; });
}

void Images::on_module_unloaded(std::uint64_t module) {
  const Lock lock(mutex);
  const auto drop_of_module = [&](auto& names, auto& table) {
    std::erase_if(names, [&](const auto& item) {
      if (item.first.first != module) return false;
      table.drop(item.second);
      return true;
    });
  };
  drop_of_module(texture_names, texture_references);
  drop_of_module(surface_names, surface_references);
}

CUresult check(CUtexref handle) {
  return session().memory().images.texture_references.find(address_of(handle)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check(CUsurfref handle) {
  return session().memory().images.surface_references.find(address_of(handle)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check(CUarray handle) {
  return session().memory().images.arrays.find(address_of(handle)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

CUresult check(CUmipmappedArray handle) {
  return session().memory().images.mipmapped_arrays.find(address_of(handle)) != nullptr
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace flyt::client
