// Texture and surface objects.
#include "softgpu/texture.h"

#include "softgpu/abi/enter.h"

namespace flyt::softgpu {
namespace {

template <class Body>
CUresult with_texture(CUtexObject handle, Body body) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    const auto object = driver.textures().find(handle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return body(*object);
  });
}

}  // namespace
}  // namespace flyt::softgpu

using namespace flyt;           // NOLINT(google-build-using-namespace)
using namespace flyt::softgpu;  // NOLINT(google-build-using-namespace)

extern "C" {

CUresult cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    auto object = std::make_shared<TextureObject>();
    object->resource = *pResDesc;
    object->description = *pTexDesc;
    if (pResViewDesc != nullptr) object->view = *pResViewDesc;
    object->context = context.handle();
    const CUresult bad =
        make_texture(driver, context.device(), *pResDesc, *pTexDesc, pResViewDesc, object->texture);
    if (bad != CUDA_SUCCESS) return bad;
    *pTexObject = driver.textures().add(std::move(object));
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    const bool gone = texObject == 0 || driver.textures().destroy(driver.contexts(), texObject);
    return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return with_texture(texObject, [&](const TextureObject& object) -> CUresult {
    if (pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = object.resource;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return with_texture(texObject, [&](const TextureObject& object) -> CUresult {
    if (pTexDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pTexDesc = object.description;
    return CUDA_SUCCESS;
  });
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  return with_texture(texObject, [&](const TextureObject& object) -> CUresult {
    if (pResViewDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pResViewDesc = object.view.value_or(CUDA_RESOURCE_VIEW_DESC{});
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  return with_context([&](Driver& driver, Context& context) -> CUresult {
    if (pSurfObject == nullptr || pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto object = std::make_shared<SurfaceObject>();
    object->resource = *pResDesc;
    object->context = context.handle();
    const CUresult bad = make_surface(driver, *pResDesc, object->surface);
    if (bad != CUDA_SUCCESS) return bad;
    *pSurfObject = driver.surfaces().add(std::move(object));
    return CUDA_SUCCESS;
  });
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    const bool gone = surfObject == 0 || driver.surfaces().destroy(driver.contexts(), surfObject);
    return gone ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return with_context([&](Driver& driver, Context&) -> CUresult {
    const auto object = driver.surfaces().find(surfObject);
    if (object == nullptr || pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = object->resource;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
