// Texture and surface references.
#include <algorithm>
#include <iterator>

#include "cuda/array_facts.h"
#include "softgpu/abi/enter.h"
#include "softgpu/array.h"
#include "softgpu/texture.h"

namespace flyt::softgpu {
namespace {

template <class Body>
CUresult with_reference(CUtexref handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto reference = driver.texture_references().find(from_handle(handle));
    if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, reference->context());
    if (bad != CUDA_SUCCESS) return bad;
    const auto context = driver.contexts().find(reference->context());
    return context == nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                              : body(driver, context->device(), *reference);
  });
}

template <class Body>
CUresult with_surface_reference(CUsurfref handle, Body body) {
  return with_driver([&](Driver& driver) -> CUresult {
    const auto reference = driver.surface_references().find(from_handle(handle));
    if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult bad = check_home(driver, reference->context());
    return bad != CUDA_SUCCESS ? bad : body(driver, *reference);
  });
}

// Calls body(state), and shows kernels what it made of the reference.
template <class Body>
CUresult change(CUtexref handle, Body body) {
  return with_reference(
      handle, [&](Driver& driver, const Device& device, TextureReference& reference) -> CUresult {
        TextureReference::State state = reference.state();
        if (const CUresult bad = body(driver, device, state); bad != CUDA_SUCCESS) return bad;
        std::shared_ptr<const ptx::Texture> texture;
        if (state.resource) {
          // What does not fit together may still be put right before a kernel runs.
          static_cast<void>(
              make_texture(driver, device, *state.resource, state.description, nullptr, texture));
        }
        reference.set(state, std::move(texture));
        return CUDA_SUCCESS;
      });
}

template <class Read>
CUresult read(CUtexref handle, bool complete, Read out) {
  return with_reference(handle,
                        [&](Driver&, const Device&, TextureReference& reference) -> CUresult {
                          if (!complete) return CUDA_ERROR_INVALID_VALUE;
                          return out(reference.state());
                        });
}

// Arrays have their own format; the reference tells it where that is wanted.
CUresult override_format(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned flags,
                         TextureReference::State& state) {
  if ((flags & ~unsigned{CU_TRSA_OVERRIDE_FORMAT}) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_TRSA_OVERRIDE_FORMAT) == 0) return CUDA_SUCCESS;
  state.format = array.Format;
  state.channels = static_cast<int>(array.NumChannels);
  return CUDA_SUCCESS;
}

CUresult find_in_module(CUmodule hmod, const char* name, ptx::Opaque kind,
                        std::shared_ptr<Module>& module, std::uint32_t& variable) {
  return with_driver([&](Driver& driver) -> CUresult {
    module = driver.modules().find(from_handle(hmod));
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (const CUresult bad = check_home(driver, module->context()); bad != CUDA_SUCCESS) return bad;
    if (name == nullptr || *name == '\0') return CUDA_ERROR_INVALID_VALUE;
    const auto index = module->program().module().find_variable(name);
    if (!index || module->program().module().variables()[*index].opaque != kind) {
      return CUDA_ERROR_NOT_FOUND;
    }
    variable = *index;
    return CUDA_SUCCESS;
  });
}

CUresult bind_rows(CUtexref handle, const CUDA_ARRAY_DESCRIPTOR* desc, CUdeviceptr dptr,
                   std::size_t pitch) {
  return change(
      handle,
      [&](Driver& driver, const Device& device, TextureReference::State& state) -> CUresult {
        if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
        CUresult bad = cuda::check_format(desc->Format, desc->NumChannels);
        if (bad != CUDA_SUCCESS) return bad;
        if (dptr == 0 || desc->Width == 0 || desc->Height == 0) {
          state.resource.reset();
          return CUDA_SUCCESS;
        }
        CUDA_RESOURCE_DESC resource{};
        resource.resType = CU_RESOURCE_TYPE_PITCH2D;
        resource.res.pitch2D = {dptr,        desc->Format, desc->NumChannels,
                                desc->Width, desc->Height, pitch};
        CUDA_TEXTURE_DESC plain{};
        plain.flags = CU_TRSF_READ_AS_INTEGER;
        std::shared_ptr<const ptx::Texture> texture;
        bad = make_texture(driver, device, resource, plain, nullptr, texture);
        if (bad != CUDA_SUCCESS) return bad;
        state.format = desc->Format;
        state.channels = static_cast<int>(desc->NumChannels);
        state.resource = resource;
        return CUDA_SUCCESS;
      });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuModuleGetTexRef(CUtexref* pTexRef, CUmodule hmod, const char* name) {
  std::shared_ptr<Module> module;
  std::uint32_t variable = 0;
  const CUresult bad = find_in_module(hmod, name, ptx::Opaque::kTexture, module, variable);
  if (bad != CUDA_SUCCESS) return bad;
  if (pTexRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_driver([&](Driver& driver) -> CUresult {
    *pTexRef = to_handle<CUtexref>(module->reference(variable, [&](std::uint64_t address) {
      return driver.texture_references().add(
          std::make_shared<TextureReference>(module->context(), address));
    }));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetSurfRef(CUsurfref* pSurfRef, CUmodule hmod, const char* name) {
  std::shared_ptr<Module> module;
  std::uint32_t variable = 0;
  const CUresult bad = find_in_module(hmod, name, ptx::Opaque::kSurface, module, variable);
  if (bad != CUDA_SUCCESS) return bad;
  if (pSurfRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return with_driver([&](Driver& driver) -> CUresult {
    *pSurfRef = to_handle<CUsurfref>(module->reference(variable, [&](std::uint64_t address) {
      return driver.surface_references().add(
          std::make_shared<SurfaceReference>(module->context(), address));
    }));
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefCreate(CUtexref* pTexRef) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (pTexRef == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pTexRef = to_handle<CUtexref>(
        driver.texture_references().add(std::make_shared<TextureReference>(context.handle(), 0)));
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefDestroy(CUtexref hTexRef) {
  return with_reference(
      hTexRef, [&](Driver& driver, const Device&, TextureReference& reference) -> CUresult {
        // Those of modules go with them.
        if (reference.address() != 0) return CUDA_ERROR_INVALID_VALUE;
        driver.texture_references().take(from_handle(hTexRef));
        return CUDA_SUCCESS;
      });
}

CUresult cuTexRefSetArray(CUtexref hTexRef, CUarray hArray, unsigned int Flags) {
  return change(hTexRef,
                [&](Driver& driver, const Device&, TextureReference::State& state) -> CUresult {
                  const auto array = driver.arrays().find(from_handle(hArray));
                  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                  state.resource = CUDA_RESOURCE_DESC{};
                  state.resource->resType = CU_RESOURCE_TYPE_ARRAY;
                  state.resource->res.array.hArray = hArray;
                  return override_format(array->descriptor(), Flags, state);
                });
}

CUresult cuTexRefSetMipmappedArray(CUtexref hTexRef, CUmipmappedArray hMipmappedArray,
                                   unsigned int Flags) {
  return change(hTexRef,
                [&](Driver& driver, const Device&, TextureReference::State& state) -> CUresult {
                  const auto array = driver.mipmapped_arrays().find(from_handle(hMipmappedArray));
                  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
                  state.resource = CUDA_RESOURCE_DESC{};
                  state.resource->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
                  state.resource->res.mipmap.hMipmappedArray = hMipmappedArray;
                  return override_format(array->descriptor(), Flags, state);
                });
}

CUresult cuTexRefSetAddress_v2(size_t* ByteOffset, CUtexref hTexRef, CUdeviceptr dptr,
                               size_t bytes) {
  return change(
      hTexRef,
      [&](Driver& driver, const Device& device, TextureReference::State& state) -> CUresult {
        const auto texel = cuda::texel_of(state.format, static_cast<unsigned>(state.channels));
        if (dptr == 0 || !texel || bytes < texel->bytes()) {
          state.resource.reset();
          if (ByteOffset != nullptr) *ByteOffset = 0;
          return CUDA_SUCCESS;
        }
        const auto align = static_cast<std::size_t>(
            device.attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT).value_or(1));
        const std::size_t offset = dptr % align;
        std::size_t size = 0;
        if ((offset != 0 && ByteOffset == nullptr) ||
            __builtin_add_overflow(bytes, offset, &size)) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        CUDA_RESOURCE_DESC resource{};
        resource.resType = CU_RESOURCE_TYPE_LINEAR;
        resource.res.linear = {dptr - offset, state.format, static_cast<unsigned>(state.channels),
                               size};
        std::shared_ptr<const ptx::Texture> texture;
        const CUresult bad = make_texture(driver, device, resource, {}, nullptr, texture);
        if (bad != CUDA_SUCCESS) return bad;
        state.resource = resource;
        if (ByteOffset != nullptr) *ByteOffset = offset;
        return CUDA_SUCCESS;
      });
}

CUresult cuTexRefSetAddress2D_v3(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                 CUdeviceptr dptr, size_t Pitch) {
  return bind_rows(hTexRef, desc, dptr, Pitch);
}

CUresult cuTexRefSetAddress2D_v2(CUtexref hTexRef, const CUDA_ARRAY_DESCRIPTOR* desc,
                                 CUdeviceptr dptr, size_t Pitch) {
  return bind_rows(hTexRef, desc, dptr, Pitch);
}

CUresult cuTexRefSetFormat(CUtexref hTexRef, CUarray_format fmt, int NumPackedComponents) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    const CUresult bad = cuda::check_format(fmt, static_cast<unsigned>(NumPackedComponents));
    if (bad != CUDA_SUCCESS) return bad;
    state.format = fmt;
    state.channels = NumPackedComponents;
    if (state.resource && state.resource->resType == CU_RESOURCE_TYPE_LINEAR) {
      state.resource->res.linear.format = fmt;
      state.resource->res.linear.numChannels = static_cast<unsigned>(NumPackedComponents);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetAddressMode(CUtexref hTexRef, int dim, CUaddress_mode am) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    if (dim < 0 || dim > 2 || am > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
    state.description.addressMode[dim] = am;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    if (fm > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
    state.description.filterMode = fm;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapFilterMode(CUtexref hTexRef, CUfilter_mode fm) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    if (fm > CU_TR_FILTER_MODE_LINEAR) return CUDA_ERROR_INVALID_VALUE;
    state.description.mipmapFilterMode = fm;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelBias(CUtexref hTexRef, float bias) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    state.description.mipmapLevelBias = bias;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMipmapLevelClamp(CUtexref hTexRef, float minMipmapLevelClamp,
                                     float maxMipmapLevelClamp) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    state.description.minMipmapLevelClamp = minMipmapLevelClamp;
    state.description.maxMipmapLevelClamp = maxMipmapLevelClamp;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetMaxAnisotropy(CUtexref hTexRef, unsigned int maxAniso) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    state.description.maxAnisotropy = maxAniso;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetBorderColor(CUtexref hTexRef, float* pBorderColor) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    if (pBorderColor == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::copy(pBorderColor, pBorderColor + 4, state.description.borderColor);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefSetFlags(CUtexref hTexRef, unsigned int Flags) {
  return change(hTexRef, [&](Driver&, const Device&, TextureReference::State& state) -> CUresult {
    if ((Flags & ~cuda::kTextureFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
    state.description.flags = Flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetAddress_v2(CUdeviceptr* pdptr, CUtexref hTexRef) {
  return read(hTexRef, true, [&](const TextureReference::State& state) -> CUresult {
    if (!state.resource) return CUDA_ERROR_INVALID_VALUE;
    const CUDA_RESOURCE_DESC& resource = *state.resource;
    const bool linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
    if (!linear && resource.resType != CU_RESOURCE_TYPE_PITCH2D) return CUDA_ERROR_INVALID_VALUE;
    const CUdeviceptr address = linear ? resource.res.linear.devPtr : resource.res.pitch2D.devPtr;
    if (pdptr != nullptr) *pdptr = address;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetArray(CUarray* phArray, CUtexref hTexRef) {
  return read(hTexRef, phArray != nullptr, [&](const TextureReference::State& state) -> CUresult {
    if (!state.resource || state.resource->resType != CU_RESOURCE_TYPE_ARRAY) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *phArray = state.resource->res.array.hArray;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmappedArray(CUmipmappedArray* phMipmappedArray, CUtexref hTexRef) {
  return read(
      hTexRef, phMipmappedArray != nullptr, [&](const TextureReference::State& state) -> CUresult {
        if (!state.resource || state.resource->resType != CU_RESOURCE_TYPE_MIPMAPPED_ARRAY) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        *phMipmappedArray = state.resource->res.mipmap.hMipmappedArray;
        return CUDA_SUCCESS;
      });
}

CUresult cuTexRefGetAddressMode(CUaddress_mode* pam, CUtexref hTexRef, int dim) {
  return read(hTexRef, pam != nullptr && dim >= 0 && dim <= 2,
              [&](const TextureReference::State& state) {
                *pam = state.description.addressMode[dim];
                return CUDA_SUCCESS;
              });
}

CUresult cuTexRefGetFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return read(hTexRef, pfm != nullptr, [&](const TextureReference::State& state) {
    *pfm = state.description.filterMode;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFormat(CUarray_format* pFormat, int* pNumChannels, CUtexref hTexRef) {
  return read(hTexRef, true, [&](const TextureReference::State& state) {
    if (pFormat != nullptr) *pFormat = state.format;
    if (pNumChannels != nullptr) *pNumChannels = state.channels;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapFilterMode(CUfilter_mode* pfm, CUtexref hTexRef) {
  return read(hTexRef, pfm != nullptr, [&](const TextureReference::State& state) {
    *pfm = state.description.mipmapFilterMode;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapLevelBias(float* pbias, CUtexref hTexRef) {
  return read(hTexRef, pbias != nullptr, [&](const TextureReference::State& state) {
    *pbias = state.description.mipmapLevelBias;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetMipmapLevelClamp(float* pminMipmapLevelClamp, float* pmaxMipmapLevelClamp,
                                     CUtexref hTexRef) {
  return read(hTexRef, pminMipmapLevelClamp != nullptr && pmaxMipmapLevelClamp != nullptr,
              [&](const TextureReference::State& state) {
                *pminMipmapLevelClamp = state.description.minMipmapLevelClamp;
                *pmaxMipmapLevelClamp = state.description.maxMipmapLevelClamp;
                return CUDA_SUCCESS;
              });
}

CUresult cuTexRefGetMaxAnisotropy(int* pmaxAniso, CUtexref hTexRef) {
  return read(hTexRef, pmaxAniso != nullptr, [&](const TextureReference::State& state) {
    *pmaxAniso = static_cast<int>(state.description.maxAnisotropy);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetBorderColor(float* pBorderColor, CUtexref hTexRef) {
  return read(hTexRef, pBorderColor != nullptr, [&](const TextureReference::State& state) {
    std::copy(std::begin(state.description.borderColor), std::end(state.description.borderColor),
              pBorderColor);
    return CUDA_SUCCESS;
  });
}

CUresult cuTexRefGetFlags(unsigned int* pFlags, CUtexref hTexRef) {
  return read(hTexRef, pFlags != nullptr, [&](const TextureReference::State& state) {
    *pFlags = state.description.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfRefSetArray(CUsurfref hSurfRef, CUarray hArray, unsigned int Flags) {
  return with_surface_reference(hSurfRef,
                                [&](Driver& driver, SurfaceReference& reference) -> CUresult {
                                  if (driver.arrays().find(from_handle(hArray)) == nullptr) {
                                    return CUDA_ERROR_INVALID_HANDLE;
                                  }
                                  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
                                  CUDA_RESOURCE_DESC resource{};
                                  resource.resType = CU_RESOURCE_TYPE_ARRAY;
                                  resource.res.array.hArray = hArray;
                                  std::shared_ptr<const ptx::Surface> surface;
                                  const CUresult bad = make_surface(driver, resource, surface);
                                  if (bad != CUDA_SUCCESS) return bad;
                                  reference.set(hArray, std::move(surface));
                                  return CUDA_SUCCESS;
                                });
}

CUresult cuSurfRefGetArray(CUarray* phArray, CUsurfref hSurfRef) {
  return with_surface_reference(hSurfRef, [&](Driver&, SurfaceReference& reference) -> CUresult {
    if (phArray == nullptr || reference.array() == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *phArray = reference.array();
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
