#include "softgpu/array.h"

#include <algorithm>
#include <array>

#include "cuda/array_facts.h"
#include "softgpu/context.h"
#include "softgpu/device.h"
#include "softgpu/driver.h"

namespace flyt::softgpu {
namespace {

static_assert(static_cast<int>(ptx::TexelKind::kFloat) ==
              static_cast<int>(cuda::ChannelKind::kFloat));
static_assert(static_cast<int>(ptx::ImageShape::kCubeLayered) ==
              static_cast<int>(cuda::ArrayShape::kCubeLayered));

// The largest extents of one shape, as three attributes of the device.
using Extents = std::array<CUdevice_attribute, 3>;
constexpr CUdevice_attribute kAny = CU_DEVICE_ATTRIBUTE_MAX;

ptx::ImageShape image_shape(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  return static_cast<ptx::ImageShape>(cuda::shape_of(descriptor));
}

Extents texture_extents(ptx::ImageShape shape, bool gather, bool mipmapped) {
  switch (shape) {
    case ptx::ImageShape::k1D:
      return {mipmapped ? CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
                        : CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
              kAny, kAny};
    case ptx::ImageShape::k2D:
      if (gather) {
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, kAny};
      }
      if (mipmapped) {
        return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
                CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, kAny};
      }
      return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, kAny};
    case ptx::ImageShape::k3D:
      return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH};
    case ptx::ImageShape::k1DLayered:
      return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, kAny,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS};
    case ptx::ImageShape::k2DLayered:
      return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS};
    case ptx::ImageShape::kCube:
      return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, kAny, kAny};
    case ptx::ImageShape::kCubeLayered:
      return {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, kAny,
              CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS};
  }
  return {kAny, kAny, kAny};
}

bool fits(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& d, const Extents& most) {
  const std::array<std::size_t, 3> extents = {d.Width, d.Height, d.Depth};
  for (std::size_t i = 0; i < 3; ++i) {
    if (most[i] == kAny) continue;
    const auto limit = device.attribute(most[i]);
    if (limit && extents[i] > static_cast<std::size_t>(*limit)) return false;
  }
  return true;
}

// Memory for `bytes`; what streams are about to give back may suffice.
CUresult take_memory(Driver& driver, Context& context, std::uint64_t bytes,
                     std::shared_ptr<ArrayMemory>& out) {
  Device& device = context.device();
  if (bytes > device.memory().limit()) return CUDA_ERROR_OUT_OF_MEMORY;
  auto address = driver.allocate(device, bytes);
  if (!address) {
    if (const CUresult bad = context.synchronize(); bad != CUDA_SUCCESS) return bad;
    address = driver.allocate(device, bytes);
  }
  if (!address) return CUDA_ERROR_OUT_OF_MEMORY;
  out = std::make_shared<ArrayMemory>(device, *address, bytes);
  return CUDA_SUCCESS;
}

// False where that is no number of bytes.
bool bytes_of(const CUDA_ARRAY3D_DESCRIPTOR& d, std::uint64_t& bytes) {
  bytes = texel_format(d.Format, d.NumChannels)->bytes();
  for (const std::uint64_t extent : {d.Width, d.Height, d.Depth}) {
    if (__builtin_mul_overflow(bytes, std::max<std::uint64_t>(extent, 1), &bytes)) return false;
  }
  return true;
}

}  // namespace

std::optional<ptx::TexelFormat> texel_format(CUarray_format format, unsigned channels) {
  const auto texel = cuda::texel_of(format, channels);
  if (!texel) return std::nullopt;
  return ptx::TexelFormat{static_cast<ptx::TexelKind>(texel->kind),
                          static_cast<std::uint8_t>(texel->channel_bytes),
                          static_cast<std::uint8_t>(channels), texel->normalized};
}

ArrayMemory::~ArrayMemory() { device_.memory().release(address_, bytes_); }

Array::Array(std::shared_ptr<ArrayMemory> memory, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
             std::uint64_t offset, std::uint64_t context, bool of_mipmap)
    : memory_(std::move(memory)),
      descriptor_(descriptor),
      format_(*texel_format(descriptor.Format, descriptor.NumChannels)),
      context_(context),
      of_mipmap_(of_mipmap),
      shape_(image_shape(descriptor)) {
  level_.address = memory_->address() + offset;
  level_.width = static_cast<std::uint32_t>(descriptor.Width);
  level_.height = static_cast<std::uint32_t>(std::max<std::size_t>(descriptor.Height, 1));
  level_.slices = static_cast<std::uint32_t>(std::max<std::size_t>(descriptor.Depth, 1));
  level_.pitch = row_bytes();
  level_.slice_pitch = level_.pitch * level_.height;
}

CUresult check_descriptor(const Device& device, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                          bool mipmapped) {
  const CUDA_ARRAY3D_DESCRIPTOR& d = descriptor;
  if (const CUresult bad = cuda::check_array(d); bad != CUDA_SUCCESS) return bad;
  const bool gather = (d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0;
  const ptx::ImageShape shape = image_shape(d);
  if (!fits(device, d, texture_extents(shape, gather, mipmapped))) return CUDA_ERROR_INVALID_VALUE;
  if ((d.Flags & CUDA_ARRAY3D_SURFACE_LDST) != 0 && shape == ptx::ImageShape::k1D) {
    const Extents most = {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, kAny, kAny};
    if (!fits(device, d, most)) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult make_array(Driver& driver, Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                    std::shared_ptr<Array>& out) {
  std::uint64_t bytes = 0;
  if (!bytes_of(descriptor, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::shared_ptr<ArrayMemory> memory;
  if (const CUresult bad = take_memory(driver, context, bytes, memory); bad != CUDA_SUCCESS) {
    return bad;
  }
  out = std::make_shared<Array>(std::move(memory), descriptor, 0, context.handle(), false);
  return CUDA_SUCCESS;
}

CUresult make_mipmapped_array(Driver& driver, Context& context,
                              const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels,
                              std::shared_ptr<MipmappedArray>& out) {
  levels = std::clamp(levels, 1u, cuda::levels_max(descriptor));
  constexpr std::uint64_t kLevelAlign = 512;
  std::vector<std::uint64_t> offsets;
  std::uint64_t all = 0;
  for (unsigned level = 0; level < levels; ++level) {
    std::uint64_t bytes = 0;
    if (!bytes_of(cuda::level_of(descriptor, level), bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    offsets.push_back(all);
    if (__builtin_add_overflow(all, bytes, &all) ||
        __builtin_add_overflow(all, kLevelAlign - 1, &all)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    all = all / kLevelAlign * kLevelAlign;
  }
  std::shared_ptr<ArrayMemory> memory;
  if (const CUresult bad = take_memory(driver, context, all, memory); bad != CUDA_SUCCESS) {
    return bad;
  }
  std::vector<std::shared_ptr<Array>> arrays;
  for (unsigned level = 0; level < levels; ++level) {
    arrays.push_back(std::make_shared<Array>(memory, cuda::level_of(descriptor, level),
                                             offsets[level], context.handle(), true));
  }
  out = std::make_shared<MipmappedArray>(descriptor, context.handle(), std::move(arrays));
  return CUDA_SUCCESS;
}

}  // namespace flyt::softgpu
