// Texture and Surface: an image with the way that kernels look at it. PTX ISA, "Texture
// Instructions" and "Surface Instructions"; CUDA programming guide, "Texture Fetching".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/interpreter/image.h"
#include "softgpu/interpreter/memory_map.h"

namespace flyt::ptx {

enum class AddressMode : std::uint8_t { kWrap, kClamp, kMirror, kBorder };

struct Sampler {
  std::array<AddressMode, 3> modes = {AddressMode::kClamp, AddressMode::kClamp,
                                      AddressMode::kClamp};
  bool linear = false;      // Filters between texels, else the nearest one is read.
  bool normalized = false;  // Coordinates are in [0, 1), else in texels.
  bool integers = false;    // Integers stay integers, else those of 8 and 16 bits become floats.
  bool srgb = false;        // 8-bit colours are sRGB and become linear.
  bool seamless = false;    // Filters across the faces of a cube.
  bool mip_linear = false;  // Filters between levels.
  float mip_bias = 0;
  float mip_min = 0;
  float mip_max = 0;
  std::array<float, 4> border = {0, 0, 0, 0};
};

// Where a texture's texels are.
enum class TexelPlace : std::uint8_t {
  kArray,   // Memory that nothing else reaches; it stays as long as the texture.
  kLinear,  // Device memory, 1D: integer coordinates; zero outside of it.
  kPitch,   // Device memory, 2D.
};

// Immutable. Integer coordinates of 32-bit registers, layers and texels fit into 32 bits.
struct Texture {
  ImageShape shape = ImageShape::k2D;
  TexelPlace place = TexelPlace::kArray;
  TexelFormat format;
  Sampler sampler;
  std::vector<ImageLevel> levels;  // At least one.
  std::shared_ptr<const void> owner;

  // What reads give: integers, or floats.
  bool gives_integers() const {
    return format.kind != TexelKind::kFloat && !format.normalized &&
           (sampler.integers || format.channel_bytes == 4);
  }
  std::uint32_t layers() const {
    if (!is_layered(shape)) return 1;
    return shape == ImageShape::kCubeLayered ? levels[0].slices / 6 : levels[0].slices;
  }
};

struct Surface {
  ImageShape shape = ImageShape::k2D;
  TexelFormat format;
  ImageLevel level;
  std::shared_ptr<const void> owner;
};

// One thread's request. Coordinates along x, y and z; those of a cube are a direction.
struct TextureRequest {
  std::array<float, 3> at = {0, 0, 0};
  std::array<std::int32_t, 3> texel = {0, 0, 0};  // In place of `at` where `integer`.
  bool integer = false;
  std::uint32_t layer = 0;
  std::array<std::int32_t, 3> offset = {0, 0, 0};
  enum class Mip : std::uint8_t { kBase, kLevel, kGradient } mip = Mip::kBase;
  float level = 0;
  std::array<float, 3> dx = {0, 0, 0};
  std::array<float, 3> dy = {0, 0, 0};
};

// Four floats, as bits, or integers. Channels that the format lacks are 0, the fourth one 1.
using TexelBits = std::array<std::uint32_t, 4>;

// False where texels lie in device memory that may not be read.
bool sample(const Texture& texture, const MemoryMap& memory, const TextureRequest& request,
            TexelBits& out);
// tld4: one component of the four texels that linear filtering would take, in the order of the ISA.
bool gather(const Texture& texture, const MemoryMap& memory, const TextureRequest& request,
            unsigned component, TexelBits& out);

// What one texel's memory holds: floats, as bits, or integers.
TexelBits decode_texel(const TexelFormat& format, const std::byte* texel, bool integers, bool srgb);
// The reverse, for sust.p: 32-bit integers, or floats, are narrowed to the format.
void encode_texel(const TexelFormat& format, const TexelBits& bits, std::byte* texel);

}  // namespace flyt::ptx
