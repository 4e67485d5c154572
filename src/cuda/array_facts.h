// Arrays as CUDA defines them: formats, shapes and levels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda/types.h"

namespace flyt::cuda {

// What a channel of a texel is.
enum class ChannelKind : std::uint8_t { kUnsigned, kSigned, kFloat };

struct Texel {
  ChannelKind kind = ChannelKind::kUnsigned;
  unsigned channel_bytes = 0;
  unsigned channels = 0;
  bool normalized = false;  // Integers that always stand for [0, 1] or [-1, 1].

  unsigned bytes() const { return channel_bytes * channels; }
};

// The flags of a texture that NVIDIA's driver takes; 4 and 8 have no name.
constexpr unsigned kTextureFlags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | 0xc |
                                   CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION |
                                   CU_TRSF_SEAMLESS_CUBEMAP;

// None for what is no format of single texels with so many channels.
std::optional<Texel> texel_of(CUarray_format format, unsigned channels);
// CUDA_SUCCESS where there is a texel; CUDA_ERROR_NOT_SUPPORTED for block-compressed, planar,
// subsampled and packed formats; CUDA_ERROR_INVALID_VALUE for what is no format.
CUresult check_format(CUarray_format format, unsigned channels);

enum class ArrayShape : std::uint8_t {
  k1D,
  k2D,
  k3D,
  k1DLayered,
  k2DLayered,
  kCube,
  kCubeLayered,
};

// Only of a descriptor that check_array() has found to be good.
ArrayShape shape_of(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);

// CUDA_ERROR_INVALID_VALUE where extents and flags make none of the shapes that there are, or the
// format is none; CUDA_ERROR_NOT_SUPPORTED for formats and flags (sparse, mapped later) without
// which Flyt does. The limits of a device are not looked at.
CUresult check_array(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);

CUDA_ARRAY3D_DESCRIPTOR solid(const CUDA_ARRAY_DESCRIPTOR& flat);

// How many levels a chain down to one texel has.
unsigned levels_max(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);
// The descriptor of one level of a mipmapped array.
CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR& whole, unsigned level);

// The bytes and rows of an array as copies count them. 1D arrays have one row; the slices are
// those of depth, the layers or the faces.
struct ArrayExtent {
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t slices = 0;
  unsigned texel_bytes = 1;

  // Whether a box of `width` bytes, `rows` and `slices` at byte x of row y in slice z lies inside
  // and consists of whole texels.
  bool holds(std::uint64_t x, std::uint64_t y, std::uint64_t z, std::uint64_t width,
             std::uint64_t box_rows, std::uint64_t box_slices) const;
  // Bytes of the only row, as flat copies count them: they may begin and end within a texel.
  bool holds_bytes(std::uint64_t x, std::uint64_t bytes) const;
  bool whole_texels(std::uint64_t x, std::uint64_t bytes) const;
};
// From the first byte to behind the last one of rows of texels in memory; none where that is no
// number, rows overlap, or there are none.
std::optional<std::uint64_t> rows_bytes(std::uint64_t width, std::uint64_t height,
                                        std::uint64_t pitch, const Texel& texel);

// Of a good descriptor.
ArrayExtent extent_of(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);
// The texels of an array, or of so many levels of a mipmapped one; what a driver adds to that for
// the sake of alignment is its own affair. Of a good descriptor that a driver took.
std::uint64_t bytes_of_texels(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels = 1);

}  // namespace flyt::cuda
