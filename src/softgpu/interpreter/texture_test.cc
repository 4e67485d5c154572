// Sampling: addressing, weights and conversions, on memory of the test's own.
#include "softgpu/interpreter/texture.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/bytes.h"

namespace flyt::ptx {
namespace {

// A texture over texels of the test's own.
template <class T>
class Picture {
 public:
  Picture(std::vector<T> texels, std::uint32_t width, std::uint32_t height, std::uint32_t slices,
          ImageShape shape, TexelFormat format)
      : texels_(std::move(texels)) {
    texture.shape = shape;
    texture.format = format;
    const std::uint64_t pitch = std::uint64_t{width} * format.bytes();
    texture.levels = {{address_of(texels_.data()), width, height, slices, pitch, pitch * height}};
  }
  float at(float x, float y = 0, float z = 0) {
    TextureRequest request;
    request.at = {x, y, z};
    TexelBits bits{};
    EXPECT_TRUE(sample(texture, memory_, request, bits));
    return std::bit_cast<float>(bits[0]);
  }

  Texture texture;

 private:
  std::vector<T> texels_;
  MemoryMap memory_;
};

constexpr TexelFormat kFloat{TexelKind::kFloat, 4, 1, false};

TEST(Sampling, WrappedAndMirroredNeighboursAreFiltered) {
  Picture<float> row({0, 1, 2, 3}, 4, 1, 1, ImageShape::k1D, kFloat);
  row.texture.sampler.linear = true;
  row.texture.sampler.normalized = true;
  row.texture.sampler.modes[0] = AddressMode::kWrap;
  EXPECT_EQ(1.5f, row.at(0.0f));
  EXPECT_EQ(1.5f, row.at(-1.0f));
  row.texture.sampler.modes[0] = AddressMode::kMirror;
  EXPECT_EQ(0.0f, row.at(0.0f));
  EXPECT_EQ(3.0f, row.at(1.0f));
  EXPECT_EQ(2.5f, row.at(1.25f));
}

TEST(Sampling, WeightsHaveEightBits) {
  Picture<float> row({0, 256}, 2, 1, 1, ImageShape::k1D, kFloat);
  row.texture.sampler.linear = true;
  EXPECT_EQ(1.0f, row.at(0.5f + 1.2f / 256));
  EXPECT_EQ(2.0f, row.at(0.5f + 1.8f / 256));
  EXPECT_EQ(256.0f, row.at(1.4999f));
}

TEST(Sampling, BordersAreFilteredToo) {
  Picture<float> row({8, 8}, 2, 1, 1, ImageShape::k1D, kFloat);
  row.texture.sampler.linear = true;
  row.texture.sampler.modes[0] = AddressMode::kBorder;
  EXPECT_EQ(4.0f, row.at(0.0f));
  row.texture.sampler.border[0] = 4;
  EXPECT_EQ(6.0f, row.at(2.0f));
}

TEST(Sampling, CoordinatesThatAreNoNumbersAreTamed) {
  Picture<float> row({5, 6, 7}, 3, 1, 1, ImageShape::k1D, kFloat);
  EXPECT_EQ(5.0f, row.at(std::nanf("")));
  EXPECT_EQ(7.0f, row.at(INFINITY));
  EXPECT_EQ(5.0f, row.at(-INFINITY));
}

TEST(Sampling, SeamlessCubesFilterAcrossTheirEdges) {
  std::vector<float> texels;
  for (int face = 0; face < 6; ++face) texels.insert(texels.end(), 4, static_cast<float>(face));
  Picture<float> cube(texels, 2, 2, 6, ImageShape::kCube, kFloat);
  cube.texture.sampler.linear = true;
  cube.texture.sampler.normalized = true;
  // Half-way between +x and +z.
  EXPECT_EQ(0.0f, cube.at(1.0f, 0.0f, 0.9999f));
  cube.texture.sampler.seamless = true;
  EXPECT_NEAR(2.0f, cube.at(1.0f, 0.0f, 0.9999f), 0.05);
}

TEST(Sampling, LinearMemoryThatMayNotBeReadFails) {
  Picture<float> row({1, 2}, 2, 1, 1, ImageShape::k1D, kFloat);
  row.texture.place = TexelPlace::kLinear;
  const MemoryMap nothing;
  TextureRequest request;
  request.integer = true;
  TexelBits bits{};
  EXPECT_FALSE(sample(row.texture, nothing, request, bits));
  request.texel[0] = 2;
  EXPECT_TRUE(sample(row.texture, nothing, request, bits));
  EXPECT_EQ(0u, bits[0]);
}

TEST(Sampling, FormattedStoresNarrow) {
  std::byte texel[4] = {};
  encode_texel({TexelKind::kUnsigned, 1, 4, false}, {300, 5, 0, 255}, texel);
  EXPECT_EQ(255, static_cast<int>(texel[0]));
  EXPECT_EQ(5, static_cast<int>(texel[1]));
  const std::uint32_t half = std::bit_cast<std::uint32_t>(0.5f);
  encode_texel({TexelKind::kUnsigned, 1, 1, true}, {half, 0, 0, 0}, texel);
  EXPECT_EQ(128, static_cast<int>(texel[0]));
  encode_texel({TexelKind::kFloat, 2, 1, false}, {half, 0, 0, 0}, texel);
  EXPECT_EQ(0x38, static_cast<int>(texel[1]));
}

}  // namespace
}  // namespace flyt::ptx
