#include "cuda/array_facts.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace flyt::cuda {
namespace {

struct FormatRow {
  CUarray_format format;
  ChannelKind kind;
  std::uint8_t bytes;
  std::uint8_t channels;  // 0: as many as the descriptor says.
};

constexpr FormatRow kFormats[] = {
    {CU_AD_FORMAT_UNSIGNED_INT8, ChannelKind::kUnsigned, 1, 0},
    {CU_AD_FORMAT_UNSIGNED_INT16, ChannelKind::kUnsigned, 2, 0},
    {CU_AD_FORMAT_UNSIGNED_INT32, ChannelKind::kUnsigned, 4, 0},
    {CU_AD_FORMAT_SIGNED_INT8, ChannelKind::kSigned, 1, 0},
    {CU_AD_FORMAT_SIGNED_INT16, ChannelKind::kSigned, 2, 0},
    {CU_AD_FORMAT_SIGNED_INT32, ChannelKind::kSigned, 4, 0},
    {CU_AD_FORMAT_HALF, ChannelKind::kFloat, 2, 0},
    {CU_AD_FORMAT_FLOAT, ChannelKind::kFloat, 4, 0},
    {CU_AD_FORMAT_UNORM_INT8X1, ChannelKind::kUnsigned, 1, 1},
    {CU_AD_FORMAT_UNORM_INT8X2, ChannelKind::kUnsigned, 1, 2},
    {CU_AD_FORMAT_UNORM_INT8X4, ChannelKind::kUnsigned, 1, 4},
    {CU_AD_FORMAT_UNORM_INT16X1, ChannelKind::kUnsigned, 2, 1},
    {CU_AD_FORMAT_UNORM_INT16X2, ChannelKind::kUnsigned, 2, 2},
    {CU_AD_FORMAT_UNORM_INT16X4, ChannelKind::kUnsigned, 2, 4},
    {CU_AD_FORMAT_SNORM_INT8X1, ChannelKind::kSigned, 1, 1},
    {CU_AD_FORMAT_SNORM_INT8X2, ChannelKind::kSigned, 1, 2},
    {CU_AD_FORMAT_SNORM_INT8X4, ChannelKind::kSigned, 1, 4},
    {CU_AD_FORMAT_SNORM_INT16X1, ChannelKind::kSigned, 2, 1},
    {CU_AD_FORMAT_SNORM_INT16X2, ChannelKind::kSigned, 2, 2},
    {CU_AD_FORMAT_SNORM_INT16X4, ChannelKind::kSigned, 2, 4},
};

// Formats that CUDA has and Flyt does without.
constexpr CUarray_format kOtherFormats[] = {
    CU_AD_FORMAT_NV12,
    CU_AD_FORMAT_BC1_UNORM,
    CU_AD_FORMAT_BC1_UNORM_SRGB,
    CU_AD_FORMAT_BC2_UNORM,
    CU_AD_FORMAT_BC2_UNORM_SRGB,
    CU_AD_FORMAT_BC3_UNORM,
    CU_AD_FORMAT_BC3_UNORM_SRGB,
    CU_AD_FORMAT_BC4_UNORM,
    CU_AD_FORMAT_BC4_SNORM,
    CU_AD_FORMAT_BC5_UNORM,
    CU_AD_FORMAT_BC5_SNORM,
    CU_AD_FORMAT_BC6H_UF16,
    CU_AD_FORMAT_BC6H_SF16,
    CU_AD_FORMAT_BC7_UNORM,
    CU_AD_FORMAT_BC7_UNORM_SRGB,
    CU_AD_FORMAT_P010,
    CU_AD_FORMAT_P016,
    CU_AD_FORMAT_NV16,
    CU_AD_FORMAT_P210,
    CU_AD_FORMAT_P216,
    CU_AD_FORMAT_YUY2,
    CU_AD_FORMAT_Y210,
    CU_AD_FORMAT_Y216,
    CU_AD_FORMAT_AYUV,
    CU_AD_FORMAT_Y410,
    CU_AD_FORMAT_Y416,
    CU_AD_FORMAT_Y444_PLANAR8,
    CU_AD_FORMAT_Y444_PLANAR10,
    CU_AD_FORMAT_YUV444_8bit_SemiPlanar,
    CU_AD_FORMAT_YUV444_16bit_SemiPlanar,
    CU_AD_FORMAT_UNORM_INT_101010_2,
};

constexpr unsigned kFlagsHere = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
constexpr unsigned kFlagsElsewhere =
    CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
constexpr std::size_t kFacesOfCube = 6;

bool layered(const CUDA_ARRAY3D_DESCRIPTOR& d) { return (d.Flags & CUDA_ARRAY3D_LAYERED) != 0; }
bool cube(const CUDA_ARRAY3D_DESCRIPTOR& d) { return (d.Flags & CUDA_ARRAY3D_CUBEMAP) != 0; }

// Whether extents and flags make one of the shapes that there are.
bool well_shaped(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (d.Width == 0) return false;
  if (cube(d)) {
    if (d.Height != d.Width || d.Depth == 0 || d.Depth % kFacesOfCube != 0) return false;
    if (!layered(d) && d.Depth != kFacesOfCube) return false;
  }
  if (layered(d) && d.Depth == 0) return false;
  if (!layered(d) && d.Height == 0 && d.Depth != 0) return false;
  const bool flat = d.Height != 0 && !cube(d) && (d.Depth == 0 || layered(d));
  return (d.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) == 0 || flat;
}

bool within(std::uint64_t begin, std::uint64_t count, std::uint64_t all) {
  return begin <= all && count <= all - begin;
}

}  // namespace

std::optional<Texel> texel_of(CUarray_format format, unsigned channels) {
  if (channels != 1 && channels != 2 && channels != 4) return std::nullopt;
  const auto* row = std::find_if(std::begin(kFormats), std::end(kFormats),
                                 [format](const FormatRow& each) { return each.format == format; });
  if (row == std::end(kFormats)) return std::nullopt;
  if (row->channels != 0 && row->channels != channels) return std::nullopt;
  return Texel{row->kind, row->bytes, channels, row->channels != 0};
}

CUresult check_format(CUarray_format format, unsigned channels) {
  if (texel_of(format, channels)) return CUDA_SUCCESS;
  const auto* end = std::end(kOtherFormats);
  return std::find(std::begin(kOtherFormats), end, format) != end ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

ArrayShape shape_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if (cube(d)) return layered(d) ? ArrayShape::kCubeLayered : ArrayShape::kCube;
  if (layered(d)) return d.Height == 0 ? ArrayShape::k1DLayered : ArrayShape::k2DLayered;
  if (d.Depth != 0) return ArrayShape::k3D;
  return d.Height != 0 ? ArrayShape::k2D : ArrayShape::k1D;
}

CUresult check_array(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  if ((d.Flags & ~(kFlagsHere | kFlagsElsewhere)) != 0 || !well_shaped(d)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult bad = check_format(d.Format, d.NumChannels); bad != CUDA_SUCCESS) return bad;
  return (d.Flags & kFlagsElsewhere) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUDA_ARRAY3D_DESCRIPTOR solid(const CUDA_ARRAY_DESCRIPTOR& flat) {
  return {flat.Width, flat.Height, 0, flat.Format, flat.NumChannels, 0};
}

unsigned levels_max(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  std::size_t largest = std::max(d.Width, d.Height);
  if (!layered(d) && !cube(d)) largest = std::max(largest, d.Depth);
  return static_cast<unsigned>(std::bit_width(largest));
}

CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& whole, unsigned level) {
  const auto shrunk = [level](std::size_t extent) {
    return extent == 0 ? 0 : std::max<std::size_t>(extent >> level, 1);
  };
  CUDA_ARRAY3D_DESCRIPTOR d = whole;
  d.Width = shrunk(whole.Width);
  d.Height = shrunk(whole.Height);
  if (!layered(d) && !cube(d)) d.Depth = shrunk(whole.Depth);
  return d;
}

bool ArrayExtent::holds(std::uint64_t x, std::uint64_t y, std::uint64_t z, std::uint64_t width,
                        std::uint64_t box_rows, std::uint64_t box_slices) const {
  return whole_texels(x, width) && within(x, width, row_bytes) && within(y, box_rows, rows) &&
         within(z, box_slices, slices);
}

bool ArrayExtent::holds_bytes(std::uint64_t x, std::uint64_t bytes) const {
  return rows == 1 && slices == 1 && within(x, bytes, row_bytes);
}

bool ArrayExtent::whole_texels(std::uint64_t x, std::uint64_t bytes) const {
  return x % texel_bytes == 0 && bytes % texel_bytes == 0;
}

std::optional<std::uint64_t> rows_bytes(std::uint64_t width, std::uint64_t height,
                                        std::uint64_t pitch, const Texel& texel) {
  std::uint64_t row = 0;
  std::uint64_t bytes = 0;
  if (width == 0 || height == 0 || __builtin_mul_overflow(width, texel.bytes(), &row) ||
      pitch < row || __builtin_mul_overflow(height - 1, pitch, &bytes) ||
      __builtin_add_overflow(bytes, row, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

ArrayExtent extent_of(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  const auto texel = texel_of(d.Format, d.NumChannels);
  const unsigned bytes = texel ? texel->bytes() : 1;
  return {d.Width * bytes, std::max<std::size_t>(d.Height, 1), std::max<std::size_t>(d.Depth, 1),
          bytes};
}

std::uint64_t bytes_of_texels(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) {
  std::uint64_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    const ArrayExtent extent = extent_of(level_of(descriptor, level));
    bytes += extent.row_bytes * extent.rows * extent.slices;
  }
  return bytes;
}

}  // namespace flyt::cuda
