// Texture and surface objects: described here, made by the server's driver.
#include "client/hooks_texture.h"

#include <map>
#include <optional>

#include "client/call.h"
#include "client/memory_state.h"
#include "client/transfers/box_copy.h"
#include "commands/texture.h"

namespace flyt::client::hooks {
namespace {

Images& images() { return session().memory().images; }

CUresult refuse_format(const char* name) {
  return refused(name, "block-compressed, planar and packed formats are not remoted yet");
}

// Device memory as kernels address it.
CUresult find_memory(CUdeviceptr address, std::uint64_t bytes, std::uint64_t& out) {
  if (address == 0 || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto placed = session().memory().map().place(address, bytes);
  BoxSide side;
  side.address = address;
  if (!side.place_in(placed, BoxSide::Said::kUnified, BoxSide::Use::kRead) ||
      side.memory != BoxSide::Memory::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out = side.address;
  return CUDA_SUCCESS;
}

// Of a resource, which without an array is none.
template <class Array>
CUresult check_given(Array array) {
  return array == nullptr ? CUDA_ERROR_INVALID_VALUE : client::check(array);
}

CUresult describe(const CUDA_RESOURCE_DESC& resource, commands::CreateTexture& command) {
  command.type = resource.resType;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      command.array = resource.res.array.hArray;
      return check_given(command.array);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      command.mipmapped = resource.res.mipmap.hMipmappedArray;
      return check_given(command.mipmapped);
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      command.format = linear.format;
      command.channels = linear.numChannels;
      command.bytes = linear.sizeInBytes;
      const CUresult bad = cuda::check_format(linear.format, linear.numChannels);
      return bad == CUDA_SUCCESS ? find_memory(linear.devPtr, linear.sizeInBytes, command.address)
                                 : bad;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& rows = resource.res.pitch2D;
      command.format = rows.format;
      command.channels = rows.numChannels;
      command.width = rows.width;
      command.height = rows.height;
      command.pitch = rows.pitchInBytes;
      const auto texel = cuda::texel_of(rows.format, rows.numChannels);
      if (!texel) return cuda::check_format(rows.format, rows.numChannels);
      const auto bytes = cuda::rows_bytes(rows.width, rows.height, rows.pitchInBytes, *texel);
      return bytes ? find_memory(rows.devPtr, *bytes, command.address) : CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult check(const CUDA_TEXTURE_DESC& description) {
  for (const CUaddress_mode mode : description.addressMode) {
    if (mode > CU_TR_ADDRESS_MODE_BORDER) return CUDA_ERROR_INVALID_VALUE;
  }
  const bool good = (description.flags & ~cuda::kTextureFlags) == 0 &&
                    description.filterMode <= CU_TR_FILTER_MODE_LINEAR &&
                    description.mipmapFilterMode <= CU_TR_FILTER_MODE_LINEAR;
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult check(const CUDA_RESOURCE_VIEW_DESC& view, CUresourcetype type) {
  const bool of_array = type == CU_RESOURCE_TYPE_ARRAY || type == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (!of_array || view.format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7) return CUDA_ERROR_INVALID_VALUE;
  return view.format > CU_RES_VIEW_FORMAT_FLOAT_4X32 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// Copies out of the state of a live object; CUDA_ERROR_INVALID_VALUE if it is none.
template <class Object, class Read>
CUresult read(std::map<std::uint64_t, Object>& objects, std::uint64_t value, Read&& out) {
  const Lock lock(images().mutex);
  const auto found = objects.find(value);
  return found == objects.end() ? CUDA_ERROR_INVALID_VALUE : out(found->second);
}

// The value may be another object's as soon as the server has heard of it: forgotten before that.
template <class Object, class Command>
CUresult destroy(std::map<std::uint64_t, Object>& objects, std::uint64_t value,
                 const Command& command) {
  if (value == 0) return CUDA_SUCCESS;
  bool known = true;
  const auto attempt = [&] {
    const auto steady = session().steady();
    std::optional<Object> object;
    {
      const Lock lock(images().mutex);
      const auto found = objects.find(value);
      known = found != objects.end();
      if (!known) return true;
      object = found->second;
      objects.erase(found);
    }
    if (session().post_once(command)) return true;
    // Another process has made it again.
    const Lock lock(images().mutex);
    objects.emplace(value, *object);
    return false;
  };
  const CUresult lost = attempt() ? CUDA_SUCCESS : session().again(attempt);
  if (lost != CUDA_SUCCESS) return lost;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (pResDesc->flags != 0) return CUDA_ERROR_INVALID_VALUE;
  commands::CreateTexture command{.description = *pTexDesc};
  CUresult bad = check(*pTexDesc);
  if (bad == CUDA_SUCCESS) bad = describe(*pResDesc, command);
  if (bad == CUDA_SUCCESS && pResViewDesc != nullptr) {
    bad = check(*pResViewDesc, pResDesc->resType);
    command.view = *pResViewDesc;
  }
  if (bad == CUDA_ERROR_NOT_SUPPORTED) return refuse_format("cuTexObjectCreate");
  if (bad != CUDA_SUCCESS) return bad;
  TextureState state{&owner(), command, *pResDesc, *pTexDesc, {}};
  if (pResViewDesc != nullptr) state.view = *pResViewDesc;
  return ask_and_note(command, [&](const auto& reply) {
    const Lock lock(images().mutex);
    images().textures.insert_or_assign(reply.texture, state);
    *pTexObject = reply.texture;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return destroy(images().textures, texObject, commands::DestroyTexture{.texture = texObject});
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  if (pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read(images().textures, texObject, [&](const TextureState& state) {
    *pResDesc = state.resource;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  if (pTexDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read(images().textures, texObject, [&](const TextureState& state) {
    *pTexDesc = state.description;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  if (pResViewDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read(images().textures, texObject, [&](const TextureState& state) {
    *pResViewDesc = state.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  if (pSurfObject == nullptr || pResDesc == nullptr || pResDesc->flags != 0 ||
      pResDesc->resType != CU_RESOURCE_TYPE_ARRAY) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUarray array = pResDesc->res.array.hArray;
  if (const CUresult bad = check_given(array); bad != CUDA_SUCCESS) return bad;
  return ask_and_note(commands::CreateSurface{.array = array}, [&](const auto& reply) {
    const Lock lock(images().mutex);
    images().surfaces.insert_or_assign(reply.surface, SurfaceState{&owner(), *pResDesc});
    *pSurfObject = reply.surface;
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return destroy(images().surfaces, surfObject, commands::DestroySurface{.surface = surfObject});
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  if (pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return read(images().surfaces, surfObject, [&](const SurfaceState& state) {
    *pResDesc = state.resource;
    return CUDA_SUCCESS;
  });
}

}  // namespace flyt::client::hooks
