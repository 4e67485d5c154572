// Texture and surface objects, and the references of before: what the program describes becomes
// what kernels see.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/annotations.h"
#include "cuda/types.h"
#include "softgpu/interpreter/texture.h"

namespace flyt::softgpu {

class Context;
class Device;
class Driver;

// Behind a CUtexObject. Immutable.
struct TextureObject {
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC description{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> view;
  std::uint64_t context = 0;
  std::shared_ptr<const ptx::Texture> texture;
};

// Behind a CUsurfObject. Immutable.
struct SurfaceObject {
  CUDA_RESOURCE_DESC resource{};
  std::uint64_t context = 0;
  std::shared_ptr<const ptx::Surface> surface;
};

// CUDA_ERROR_INVALID_VALUE for what cuTexObjectCreate refuses, CUDA_ERROR_INVALID_HANDLE for arrays
// that are none.
CUresult make_texture(Driver& driver, const Device& device, const CUDA_RESOURCE_DESC& resource,
                      const CUDA_TEXTURE_DESC& description, const CUDA_RESOURCE_VIEW_DESC* view,
                      std::shared_ptr<const ptx::Texture>& out);
CUresult make_surface(Driver& driver, const CUDA_RESOURCE_DESC& resource,
                      std::shared_ptr<const ptx::Surface>& out);

// Behind a CUtexref. Safe from any thread.
class TextureReference {
 public:
  struct State {
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    int channels = 1;
    CUDA_TEXTURE_DESC description{};
    std::optional<CUDA_RESOURCE_DESC> resource;  // None: nothing is bound.
  };

  // `address`: of the module's variable; 0: of no module.
  TextureReference(std::uint64_t context, std::uint64_t address);

  std::uint64_t context() const { return context_; }
  std::uint64_t address() const { return address_; }
  State state() const {
    const Lock lock(mutex_);
    return state_;
  }
  // `texture`: what kernels see through the changed state; null where nothing is bound.
  void set(const State& state, std::shared_ptr<const ptx::Texture> texture) {
    const Lock lock(mutex_);
    state_ = state;
    texture_ = std::move(texture);
  }
  std::shared_ptr<const ptx::Texture> texture() const {
    const Lock lock(mutex_);
    return texture_;
  }

 private:
  const std::uint64_t context_;
  const std::uint64_t address_;
  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_);
  std::shared_ptr<const ptx::Texture> texture_ GUARDED_BY(mutex_);
};

// What kernels find under the addresses of a module's references. Immutable.
struct ImageBindings {
  std::map<std::uint64_t, std::shared_ptr<const ptx::Texture>> textures;
  std::map<std::uint64_t, std::shared_ptr<const ptx::Surface>> surfaces;
};

// Behind a CUsurfref. Safe from any thread.
class SurfaceReference {
 public:
  SurfaceReference(std::uint64_t context, std::uint64_t address)
      : context_(context), address_(address) {}

  std::uint64_t context() const { return context_; }
  std::uint64_t address() const { return address_; }
  void set(CUarray array, std::shared_ptr<const ptx::Surface> surface) {
    const Lock lock(mutex_);
    array_ = array;
    surface_ = std::move(surface);
  }
  CUarray array() const {
    const Lock lock(mutex_);
    return array_;
  }
  std::shared_ptr<const ptx::Surface> surface() const {
    const Lock lock(mutex_);
    return surface_;
  }

 private:
  const std::uint64_t context_;
  const std::uint64_t address_;
  mutable Mutex mutex_;
  CUarray array_ GUARDED_BY(mutex_) = nullptr;
  std::shared_ptr<const ptx::Surface> surface_ GUARDED_BY(mutex_);
};

}  // namespace flyt::softgpu
