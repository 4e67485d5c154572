// Images: arrays, textures and surfaces as the program sees them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/annotations.h"
#include "client/context.h"
#include "client/handle_table.h"
#include "commands/texture.h"
#include "cuda/array_facts.h"
#include "cuda/types.h"

namespace flyt::client {

// Constant once published.
struct ArrayState {
  ContextState* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  cuda::ArrayExtent extent;
  std::uint64_t mipmapped = 0;  // Handle of the mipmapped array that it is a level of.

  void reset() { mipmapped = 0; }
};

struct MipmappedArrayState {
  ContextState* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  unsigned levels = 0;
  // Handles of the levels that were asked for, else 0. Guarded by Images::mutex.
  std::vector<std::uint64_t> arrays;

  void reset() { arrays.clear(); }
};

// Texture and surface objects, by the driver's own values.
struct TextureState {
  const ContextState* context = nullptr;
  commands::CreateTexture command;  // By which it was made.
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};
struct SurfaceState {
  const ContextState* context = nullptr;
  CUDA_RESOURCE_DESC resource{};
};

struct TextureReferenceState {
  ContextState* context = nullptr;
  std::uint64_t module = 0;  // Handle; 0: made by cuTexRefCreate.
  // What is bound, where it is one of these.
  std::atomic<CUarray> array{nullptr};
  std::atomic<CUmipmappedArray> mipmapped{nullptr};

  void reset() {
    module = 0;
    array = nullptr;
    mipmapped = nullptr;
  }
};
struct SurfaceReferenceState {
  ContextState* context = nullptr;
  std::uint64_t module = 0;
  std::atomic<CUarray> array{nullptr};

  void reset() {
    module = 0;
    array = nullptr;
  }
};

using ArrayTable = HandleTable<ArrayState>;

// Safe from any thread.
struct Images {
  Images();

  ArrayTable arrays;
  HandleTable<MipmappedArrayState> mipmapped_arrays;
  HandleTable<TextureReferenceState> texture_references;
  HandleTable<SurfaceReferenceState> surface_references;
  // Held before `mutex`, and while the server answers: there is one handle of a thing.
  Mutex asking;
  Mutex mutex;  // Guards the rest.
  std::map<std::uint64_t, TextureState> textures;
  std::map<std::uint64_t, SurfaceState> surfaces;
  // References by module and name, those of textures and of surfaces.
  using ReferenceName = std::pair<std::uint64_t, std::string>;
  std::map<ReferenceName, std::uint64_t> texture_names;
  std::map<ReferenceName, std::uint64_t> surface_names;

  // Drops what lives in a context.
  void on_context_destroyed(const ContextState& context);
  // Drops the references of a module.
  void on_module_unloaded(std::uint64_t module);
};

}  // namespace flyt::client
