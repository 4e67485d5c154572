// Image: texels in device memory as kernels see them through textures and surfaces.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flyt::ptx {

enum class TexelKind : std::uint8_t { kUnsigned, kSigned, kFloat };

// What one texel is made of. Floats have 2 or 4 bytes, integers 1, 2 or 4.
struct TexelFormat {
  TexelKind kind = TexelKind::kUnsigned;
  std::uint8_t channel_bytes = 4;
  std::uint8_t channels = 1;  // 1, 2 or 4.
  bool normalized = false;    // Integers that always stand for [0, 1] or [-1, 1].

  constexpr unsigned bytes() const { return unsigned{channel_bytes} * channels; }
  friend constexpr bool operator==(const TexelFormat&, const TexelFormat&) = default;
};

enum class ImageShape : std::uint8_t {
  k1D,
  k2D,
  k3D,
  k1DLayered,
  k2DLayered,
  kCube,
  kCubeLayered,
};

constexpr bool is_layered(ImageShape shape) {
  return shape == ImageShape::k1DLayered || shape == ImageShape::k2DLayered ||
         shape == ImageShape::kCubeLayered;
}
constexpr bool is_cube(ImageShape shape) {
  return shape == ImageShape::kCube || shape == ImageShape::kCubeLayered;
}

// One level: `slices` slices (layers, faces or depth) of `height` rows of `width` texels.
struct ImageLevel {
  std::uint64_t address = 0;
  std::uint32_t width = 1;
  std::uint32_t height = 1;
  std::uint32_t slices = 1;
  std::uint64_t pitch = 0;        // Bytes from row to row.
  std::uint64_t slice_pitch = 0;  // And from slice to slice.

  std::uint64_t row(std::uint64_t y, std::uint64_t z) const {
    return address + z * slice_pitch + y * pitch;
  }
};

}  // namespace flyt::ptx
