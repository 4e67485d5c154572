// Texture and surface objects.
#include "server/hooks_texture.h"

#include <utility>
#include <vector>

#include "server/memory/images.h"
#include "server/memory_subjects.h"
#include "server/recovery/recovery.h"
#include "server/session.h"

namespace flyt::server::hooks {
namespace {

// The driver's description of a resource, checked; and what it must not outlive.
struct Resource {
  CUDA_RESOURCE_DESC description{};
  std::shared_ptr<Attachment> kept;
};

CUresult find(Session& session, wire::HandleKind kind, std::uint64_t handle, void*& native,
              std::shared_ptr<Attachment>& kept) {
  Handles::Entry entry = session.handles().entry(kind, handle);
  if (!entry) return CUDA_ERROR_INVALID_HANDLE;
  native = entry.native;
  kept = std::move(entry.attachment);
  return CUDA_SUCCESS;
}

CUresult find_array(Session& session, CUarray array, Resource& out) {
  void* native = nullptr;
  const CUresult result =
      find(session, wire::HandleKind::kArray, address_of(array), native, out.kept);
  out.description.resType = CU_RESOURCE_TYPE_ARRAY;
  out.description.res.array.hArray = static_cast<CUarray>(native);
  return result;
}

CUresult read(Session& session, const commands::CreateTexture& command, Resource& out) {
  out.description.resType = command.type;
  const auto texel = cuda::texel_of(command.format, command.channels);
  switch (command.type) {
    case CU_RESOURCE_TYPE_ARRAY:
      return find_array(session, command.array, out);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      void* native = nullptr;
      const CUresult result = find(session, wire::HandleKind::kMipmappedArray,
                                   address_of(command.mipmapped), native, out.kept);
      out.description.res.mipmap.hMipmappedArray = static_cast<CUmipmappedArray>(native);
      return result;
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      auto& linear = out.description.res.linear;
      linear.devPtr = command.address;
      linear.format = command.format;
      linear.numChannels = command.channels;
      linear.sizeInBytes = command.bytes;
      const bool good =
          texel && command.bytes != 0 && session.regions().allowed(command.address, command.bytes);
      return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      auto& rows = out.description.res.pitch2D;
      rows.devPtr = command.address;
      rows.format = command.format;
      rows.numChannels = command.channels;
      rows.width = command.width;
      rows.height = command.height;
      rows.pitchInBytes = command.pitch;
      if (!texel) return CUDA_ERROR_INVALID_VALUE;
      const auto bytes = cuda::rows_bytes(command.width, command.height, command.pitch, *texel);
      return bytes && session.regions().allowed(command.address, *bytes) ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// A driver gives out values in an order of its own. In a session that goes on here an object has to
// have the value that it had: kernels' parameters and memory hold it. So others are made until one
// has it; they go again.
constexpr std::size_t kAimsMax = 16 * 1024;

template <class Make, class Destroy>
CUresult make_aimed(Session& session, std::uint64_t& value, Make make, Destroy destroy) {
  const std::uint64_t aim = session.memory().images->take_aim();
  CUresult result = make(value);
  std::vector<std::uint64_t> others;
  while (aim != 0 && result == CUDA_SUCCESS && value != aim) {
    others.push_back(value);
    result = others.size() < kAimsMax ? make(value) : CUDA_ERROR_NOT_FOUND;
  }
  for (const std::uint64_t other : others) destroy(other);
  return result;
}

}  // namespace

CUresult aim_image(Request& request, const commands::AimImage& command) {
  Session& session = request.session();
  if (session.recovery() == nullptr || !session.recovery()->restoring()) {
    session.end("a session that is new has no images to make again");
    return CUDA_ERROR_INVALID_VALUE;
  }
  session.memory().images->aim(command.value);
  return CUDA_SUCCESS;
}

CUresult create_texture(Request& request, const commands::CreateTexture& command,
                        commands::CreateTexture::Reply& reply) {
  Session& session = request.session();
  if (session.memory().images->full()) return CUDA_ERROR_OUT_OF_MEMORY;
  Resource resource;
  const CUresult bad = read(session, command, resource);
  if (bad != CUDA_SUCCESS) return bad;
  if (command.view && command.view->format > CU_RES_VIEW_FORMAT_FLOAT_4X32) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const driver::Table& driver = request.driver();
  std::uint64_t texture = 0;
  const auto make = [&](std::uint64_t& value) {
    CUtexObject made = 0;
    const CUresult result =
        driver.cuTexObjectCreate(&made, &resource.description, &command.description,
                                 command.view ? &*command.view : nullptr);
    value = made;
    return result;
  };
  const CUresult result = make_aimed(session, texture, make, driver.cuTexObjectDestroy);
  if (result != CUDA_SUCCESS) return result;
  session.memory().images->add_texture(texture, request.home(), std::move(resource.kept));
  reply.texture = texture;
  return CUDA_SUCCESS;
}

CUresult destroy_texture(Request& request, const commands::DestroyTexture& command) {
  return request.session().memory().images->drop_texture(command.texture)
             ? CUDA_SUCCESS
             : request.session().ended_before(CUDA_ERROR_INVALID_VALUE);
}

CUresult create_surface(Request& request, const commands::CreateSurface& command,
                        commands::CreateSurface::Reply& reply) {
  Session& session = request.session();
  if (session.memory().images->full()) return CUDA_ERROR_OUT_OF_MEMORY;
  Resource resource;
  const CUresult bad = find_array(session, command.array, resource);
  if (bad != CUDA_SUCCESS) return bad;
  const driver::Table& driver = request.driver();
  std::uint64_t surface = 0;
  const auto make = [&](std::uint64_t& value) {
    CUsurfObject made = 0;
    const CUresult result = driver.cuSurfObjectCreate(&made, &resource.description);
    value = made;
    return result;
  };
  const CUresult result = make_aimed(session, surface, make, driver.cuSurfObjectDestroy);
  if (result != CUDA_SUCCESS) return result;
  session.memory().images->add_surface(surface, request.home(), std::move(resource.kept));
  reply.surface = surface;
  return CUDA_SUCCESS;
}

CUresult destroy_surface(Request& request, const commands::DestroySurface& command) {
  return request.session().memory().images->drop_surface(command.surface)
             ? CUDA_SUCCESS
             : request.session().ended_before(CUDA_ERROR_INVALID_VALUE);
}

}  // namespace flyt::server::hooks
