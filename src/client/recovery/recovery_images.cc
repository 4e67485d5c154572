// How a session that goes on gets its arrays, textures and surfaces again.
#include <map>
#include <vector>

#include "client/memory_state.h"
#include "client/recovery/recovery_replay.h"
#include "commands/array.h"
#include "commands/texture.h"

namespace flyt::client {
namespace {

CUarray as_array(std::uint64_t handle) { return static_cast<CUarray>(pointer_at(handle)); }
CUmipmappedArray as_mipmapped(std::uint64_t handle) {
  return static_cast<CUmipmappedArray>(pointer_at(handle));
}

// Whether what it looks at is there. A program may keep an object whose array or memory it has
// given back: it must not use it any more, natively either.
bool usable(MemoryState& memory, const TextureState& texture) {
  const CUDA_RESOURCE_DESC& resource = texture.resource;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return memory.images.arrays.find(address_of(resource.res.array.hArray)) != nullptr;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return memory.images.mipmapped_arrays.find(address_of(resource.res.mipmap.hMipmappedArray)) !=
             nullptr;
    case CU_RESOURCE_TYPE_LINEAR:
      return memory.map().find(resource.res.linear.devPtr).has_value();
    case CU_RESOURCE_TYPE_PITCH2D:
      return memory.map().find(resource.res.pitch2D.devPtr).has_value();
  }
  return false;
}

}  // namespace

Status Replay::arrays() {
  Images& images = session_.memory().images;
  Status status;
  images.arrays.for_each([&](std::uint64_t handle, const ArrayState& state) {
    if (status && state.mipmapped == 0) status = array(handle, state);
  });
  images.mipmapped_arrays.for_each([&](std::uint64_t handle, const MipmappedArrayState& state) {
    if (status) status = mipmapped_array(handle, state);
  });
  return status;
}

Status Replay::array(std::uint64_t handle, const ArrayState& array) {
  if (array.context->live.load() == 0) return {};
  return ask(array.context,
             commands::CreateArray{.array = as_array(handle), .descriptor = array.descriptor});
}

Status Replay::mipmapped_array(std::uint64_t handle, const MipmappedArrayState& whole) {
  if (whole.context->live.load() == 0) return {};
  const commands::CreateMipmappedArray create{
      .array = as_mipmapped(handle), .descriptor = whole.descriptor, .levels = whole.levels};
  if (Status made = ask(whole.context, create); !made) return made;
  std::vector<std::uint64_t> levels;
  {
    const Lock lock(session_.memory().images.mutex);
    levels = whole.arrays;
  }
  for (unsigned level = 0; level < levels.size(); ++level) {
    if (levels[level] == 0) continue;
    const commands::GetArrayLevel get{
        .mipmapped = as_mipmapped(handle), .level = level, .array = as_array(levels[level])};
    if (Status got = ask(whole.context, get); !got) return got;
  }
  return {};
}

// In the order of their values, in which a driver gives them out as a rule.
Status Replay::textures() {
  MemoryState& memory = session_.memory();
  std::map<std::uint64_t, TextureState> textures;
  std::map<std::uint64_t, SurfaceState> surfaces;
  {
    const Lock lock(memory.images.mutex);
    textures = memory.images.textures;
    surfaces = memory.images.surfaces;
  }
  const auto make = [&](const ContextState& context, std::uint64_t value, const auto& command) {
    if (Status aimed = ask(&context, commands::AimImage{.value = value}); !aimed) return aimed;
    return ask(&context, command);
  };
  for (const auto& [value, texture] : textures) {
    if (texture.context->live.load() == 0 || !usable(memory, texture)) continue;
    if (Status made = make(*texture.context, value, texture.command); !made) return made;
  }
  for (const auto& [value, surface] : surfaces) {
    const CUarray array = surface.resource.res.array.hArray;
    if (surface.context->live.load() == 0 ||
        memory.images.arrays.find(address_of(array)) == nullptr) {
      continue;
    }
    Status made = make(*surface.context, value, commands::CreateSurface{.array = array});
    if (!made) return made;
  }
  return {};
}

}  // namespace flyt::client
