#include "softgpu/texture.h"

#include <algorithm>
#include <iterator>

#include "cuda/array_facts.h"
#include "softgpu/array.h"
#include "softgpu/device.h"
#include "softgpu/driver.h"

namespace flyt::softgpu {
namespace {

// A resource without an array is none.
template <class Handle>
CUresult no_array(Handle handle) {
  return handle == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

constexpr std::uint32_t kFacesOfCube = 6;

std::size_t limit(const Device& device, CUdevice_attribute attribute) {
  return static_cast<std::size_t>(device.attribute(attribute).value_or(0));
}

bool good(CUaddress_mode mode) { return mode <= CU_TR_ADDRESS_MODE_BORDER; }
bool good(CUfilter_mode mode) { return mode <= CU_TR_FILTER_MODE_LINEAR; }

CUresult read_description(const CUDA_TEXTURE_DESC& description, ptx::Sampler& sampler) {
  if ((description.flags & ~cuda::kTextureFlags) != 0 || !good(description.filterMode) ||
      !good(description.mipmapFilterMode)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    if (!good(description.addressMode[i])) return CUDA_ERROR_INVALID_VALUE;
    sampler.modes[i] = static_cast<ptx::AddressMode>(description.addressMode[i]);
  }
  sampler.linear = description.filterMode == CU_TR_FILTER_MODE_LINEAR;
  sampler.normalized = (description.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  sampler.integers = (description.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  sampler.srgb = (description.flags & CU_TRSF_SRGB) != 0;
  sampler.seamless = (description.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
  sampler.mip_linear = description.mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR;
  sampler.mip_bias = description.mipmapLevelBias;
  sampler.mip_min = description.minMipmapLevelClamp;
  sampler.mip_max = description.maxMipmapLevelClamp;
  std::copy(std::begin(description.borderColor), std::end(description.borderColor),
            sampler.border.begin());
  return CUDA_SUCCESS;
}

struct ViewFormat {
  CUarray_format format;
  unsigned channels;
};

// By CUresourceViewFormat, from 1 on; block-compressed ones come behind.
constexpr ViewFormat kViewFormats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, 1},  {CU_AD_FORMAT_UNSIGNED_INT8, 2},
    {CU_AD_FORMAT_UNSIGNED_INT8, 4},  {CU_AD_FORMAT_SIGNED_INT8, 1},
    {CU_AD_FORMAT_SIGNED_INT8, 2},    {CU_AD_FORMAT_SIGNED_INT8, 4},
    {CU_AD_FORMAT_UNSIGNED_INT16, 1}, {CU_AD_FORMAT_UNSIGNED_INT16, 2},
    {CU_AD_FORMAT_UNSIGNED_INT16, 4}, {CU_AD_FORMAT_SIGNED_INT16, 1},
    {CU_AD_FORMAT_SIGNED_INT16, 2},   {CU_AD_FORMAT_SIGNED_INT16, 4},
    {CU_AD_FORMAT_UNSIGNED_INT32, 1}, {CU_AD_FORMAT_UNSIGNED_INT32, 2},
    {CU_AD_FORMAT_UNSIGNED_INT32, 4}, {CU_AD_FORMAT_SIGNED_INT32, 1},
    {CU_AD_FORMAT_SIGNED_INT32, 2},   {CU_AD_FORMAT_SIGNED_INT32, 4},
    {CU_AD_FORMAT_HALF, 1},           {CU_AD_FORMAT_HALF, 2},
    {CU_AD_FORMAT_HALF, 4},           {CU_AD_FORMAT_FLOAT, 1},
    {CU_AD_FORMAT_FLOAT, 2},          {CU_AD_FORMAT_FLOAT, 4},
};
static_assert(std::size(kViewFormats) == CU_RES_VIEW_FORMAT_FLOAT_4X32);

// Narrows a texture to the part that a view shows, in the view's format.
CUresult apply_view(const CUDA_RESOURCE_VIEW_DESC& view, ptx::Texture& texture) {
  const ptx::ImageLevel& base = texture.levels[0];
  if (view.format > CU_RES_VIEW_FORMAT_FLOAT_4X32) {
    return view.format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7 ? CUDA_ERROR_INVALID_VALUE
                                                         : CUDA_ERROR_NOT_SUPPORTED;
  }
  if (view.format != CU_RES_VIEW_FORMAT_NONE) {
    const ViewFormat& wanted = kViewFormats[view.format - 1];
    const auto format = texel_format(wanted.format, wanted.channels);
    if (!format || format->bytes() != texture.format.bytes()) return CUDA_ERROR_INVALID_VALUE;
    texture.format = *format;
  }
  const bool rows =
      texture.shape != ptx::ImageShape::k1D && texture.shape != ptx::ImageShape::k1DLayered;
  if (view.width != base.width || (rows && view.height != base.height)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (view.lastMipmapLevel < view.firstMipmapLevel ||
      view.lastMipmapLevel >= texture.levels.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  texture.levels.erase(texture.levels.begin() + view.lastMipmapLevel + 1, texture.levels.end());
  texture.levels.erase(texture.levels.begin(), texture.levels.begin() + view.firstMipmapLevel);
  if (!ptx::is_layered(texture.shape)) return CUDA_SUCCESS;
  if (view.lastLayer < view.firstLayer || view.lastLayer >= texture.layers()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::uint32_t unit = ptx::is_cube(texture.shape) ? kFacesOfCube : 1;
  for (ptx::ImageLevel& level : texture.levels) {
    level.address += std::uint64_t{view.firstLayer} * unit * level.slice_pitch;
    level.slices = (view.lastLayer - view.firstLayer + 1) * unit;
  }
  return CUDA_SUCCESS;
}

CUresult from_linear(const Device& device, const CUDA_RESOURCE_DESC& resource,
                     ptx::Texture& texture) {
  const auto& linear = resource.res.linear;
  const auto format = texel_format(linear.format, linear.numChannels);
  const std::size_t align = limit(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  if (!format) return cuda::check_format(linear.format, linear.numChannels);
  const std::size_t texels = linear.sizeInBytes / format->bytes();
  if (linear.devPtr == 0 || linear.devPtr % align != 0 || texels == 0 ||
      texels > limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  texture.place = ptx::TexelPlace::kLinear;
  texture.shape = ptx::ImageShape::k1D;
  texture.format = *format;
  texture.levels = {{linear.devPtr, static_cast<std::uint32_t>(texels), 1, 1,
                     texels * format->bytes(), texels * format->bytes()}};
  return CUDA_SUCCESS;
}

CUresult from_pitch(const Device& device, const CUDA_RESOURCE_DESC& resource,
                    ptx::Texture& texture) {
  const auto& flat = resource.res.pitch2D;
  const auto format = texel_format(flat.format, flat.numChannels);
  if (!format) return cuda::check_format(flat.format, flat.numChannels);
  const bool aligned =
      flat.devPtr % limit(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT) == 0 &&
      flat.pitchInBytes % limit(device, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT) == 0;
  const bool fits =
      flat.width <= limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) &&
      flat.height <= limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) &&
      flat.pitchInBytes <= limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH);
  if (flat.devPtr == 0 || flat.width == 0 || flat.height == 0 || !aligned || !fits ||
      flat.pitchInBytes < flat.width * format->bytes()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  texture.place = ptx::TexelPlace::kPitch;
  texture.shape = ptx::ImageShape::k2D;
  texture.format = *format;
  texture.levels = {{flat.devPtr, static_cast<std::uint32_t>(flat.width),
                     static_cast<std::uint32_t>(flat.height), 1, flat.pitchInBytes,
                     flat.pitchInBytes * flat.height}};
  return CUDA_SUCCESS;
}

CUresult read_resource(Driver& driver, const Device& device, const CUDA_RESOURCE_DESC& resource,
                       ptx::Texture& texture) {
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      const auto array = driver.arrays().find(from_handle(resource.res.array.hArray));
      if (array == nullptr) return no_array(resource.res.array.hArray);
      texture.shape = array->shape();
      texture.format = array->format();
      texture.levels = {array->level()};
      texture.owner = array->memory();
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      const auto array =
          driver.mipmapped_arrays().find(from_handle(resource.res.mipmap.hMipmappedArray));
      if (array == nullptr) return no_array(resource.res.mipmap.hMipmappedArray);
      const auto& first = array->levels().front();
      texture.shape = first->shape();
      texture.format = first->format();
      for (const auto& level : array->levels()) texture.levels.push_back(level->level());
      texture.owner = first->memory();
      return CUDA_SUCCESS;
    }
    case CU_RESOURCE_TYPE_LINEAR:
      return from_linear(device, resource, texture);
    case CU_RESOURCE_TYPE_PITCH2D:
      return from_pitch(device, resource, texture);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult make_texture(Driver& driver, const Device& device, const CUDA_RESOURCE_DESC& resource,
                      const CUDA_TEXTURE_DESC& description, const CUDA_RESOURCE_VIEW_DESC* view,
                      std::shared_ptr<const ptx::Texture>& out) {
  auto texture = std::make_shared<ptx::Texture>();
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult bad = read_description(description, texture->sampler);
  if (bad == CUDA_SUCCESS) bad = read_resource(driver, device, resource, *texture);
  if (bad != CUDA_SUCCESS) return bad;
  if (view != nullptr) {
    if (texture->place != ptx::TexelPlace::kArray) return CUDA_ERROR_INVALID_VALUE;
    bad = apply_view(*view, *texture);
    if (bad != CUDA_SUCCESS) return bad;
  }
  out = std::move(texture);
  return CUDA_SUCCESS;
}

CUresult make_surface(Driver& driver, const CUDA_RESOURCE_DESC& resource,
                      std::shared_ptr<const ptx::Surface>& out) {
  if (resource.resType != CU_RESOURCE_TYPE_ARRAY || resource.flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto array = driver.arrays().find(from_handle(resource.res.array.hArray));
  if (array == nullptr) return no_array(resource.res.array.hArray);
  // Any array will do, whatever it was made for, as on NVIDIA's driver.
  out = std::make_shared<ptx::Surface>(
      ptx::Surface{array->shape(), array->format(), array->level(), array->memory()});
  return CUDA_SUCCESS;
}

TextureReference::TextureReference(std::uint64_t context, std::uint64_t address)
    : context_(context), address_(address) {
  for (CUaddress_mode& mode : state_.description.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
}

}  // namespace flyt::softgpu
