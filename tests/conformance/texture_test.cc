// Texture objects: what kernels read through them, as the CUDA programming guide defines it.

#include "tests/conformance/images.h"
#include "tests/conformance/texture_kernels.h"

namespace flyt::conformance {
namespace {

using TextureTest = ContextTest;

constexpr const char* kFetch1d = "tex.1d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0}];";
constexpr const char* kFetch2d = "tex.2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1}];";
constexpr const char* kFetch3d =
    "tex.3d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1, %f2, %f2}];";

CUDA_RESOURCE_DESC of(CUarray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  return resource;
}

CUDA_RESOURCE_DESC of(CUmipmappedArray array) {
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = array;
  return resource;
}

CUDA_TEXTURE_DESC described(CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
  CUDA_TEXTURE_DESC description{};
  for (CUaddress_mode& each : description.addressMode) each = mode;
  description.filterMode = filter;
  description.flags = flags;
  return description;
}

constexpr unsigned kNormalized = CU_TRSF_NORMALIZED_COORDINATES;
constexpr unsigned kIntegers = CU_TRSF_READ_AS_INTEGER;

// A texture object, destroyed at the end of its scope.
class Texture {
 public:
  Texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& description,
          const CUDA_RESOURCE_VIEW_DESC* view = nullptr) {
    const Unrecorded quiet;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuTexObjectCreate(&texture_, &resource, &description, view));
  }
  ~Texture() {
    const Unrecorded quiet;
    cu().cuTexObjectDestroy(texture_);
  }
  Texture(const Texture&) = delete;
  Texture& operator=(const Texture&) = delete;
  operator CUtexObject() const { return texture_; }

 private:
  CUtexObject texture_ = 0;
};

float first(const Answer& answer) { return number(answer[0]); }

// 100 * z + 10 * y + x, where it is asked for.
std::vector<float> ramp(std::size_t width, std::size_t height, std::size_t depth = 1) {
  std::vector<float> texels;
  for (std::size_t z = 0; z < depth; ++z) {
    for (std::size_t y = 0; y < height; ++y) {
      for (std::size_t x = 0; x < width; ++x) {
        texels.push_back(static_cast<float>(100 * z + 10 * y + x));
      }
    }
  }
  return texels;
}

TEST_F(TextureTest, PointsAreTheTexelsAroundThem) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  write_array(array, ramp(8, 4).data(), 32, 4);
  const Texture texture(of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const auto got = run_image_kernel(
      kFetch2d, false, texture,
      {floats(0.5f, 0.5f), floats(3.1f, 2.9f), floats(7.9f, 3.9f), floats(5.0f, 1.0f)});
  EXPECT_EQ(0.0f, first(got[0]));
  EXPECT_EQ(23.0f, first(got[1]));
  EXPECT_EQ(37.0f, first(got[2]));
  EXPECT_EQ(15.0f, first(got[3]));
}

TEST_F(TextureTest, CoordinatesBeyondTheEdgeAreClamped) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  write_array(array, ramp(8, 4).data(), 32, 4);
  const Texture texture(of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const auto got = run_image_kernel(
      kFetch2d, false, texture,
      {floats(-5.0f, 1.5f), floats(99.0f, 1.5f), floats(2.5f, -3.0f), floats(2.5f, 50.0f)});
  EXPECT_EQ(10.0f, first(got[0]));
  EXPECT_EQ(17.0f, first(got[1]));
  EXPECT_EQ(2.0f, first(got[2]));
  EXPECT_EQ(32.0f, first(got[3]));
}

TEST_F(TextureTest, BordersHaveTheirColor) {
  const Array array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  write_array(array, ramp(4, 4).data(), 16, 4);
  CUDA_TEXTURE_DESC description = described(CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_POINT, 0);
  const Texture zero(of(array), description);
  description.borderColor[0] = 7.5f;
  const Texture colored(of(array), description);
  const std::vector<Words> at = {floats(-1.0f, 1.5f), floats(1.5f, 1.5f), floats(1.5f, 4.5f)};
  auto got = run_image_kernel(kFetch2d, false, zero, at);
  EXPECT_EQ(0.0f, first(got[0]));
  EXPECT_EQ(11.0f, first(got[1]));
  EXPECT_EQ(0.0f, first(got[2]));
  got = run_image_kernel(kFetch2d, false, colored, at);
  EXPECT_EQ(7.5f, first(got[0]));
  EXPECT_EQ(11.0f, first(got[1]));
}

TEST_F(TextureTest, NormalizedCoordinatesWrapAndMirror) {
  const Array array(8, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  write_array(array, ramp(8, 1).data(), 32);
  const std::vector<Words> at = {floats(0.3125f), floats(1.3125f), floats(-0.1875f)};
  const Texture wraps(of(array),
                      described(CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, kNormalized));
  auto got = run_image_kernel(kFetch1d, false, wraps, at);
  EXPECT_EQ(2.0f, first(got[0]));
  EXPECT_EQ(2.0f, first(got[1]));
  EXPECT_EQ(6.0f, first(got[2]));
  const Texture mirrors(of(array),
                        described(CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, kNormalized));
  got = run_image_kernel(kFetch1d, false, mirrors, at);
  EXPECT_EQ(2.0f, first(got[0]));
  EXPECT_EQ(5.0f, first(got[1]));
  EXPECT_EQ(1.0f, first(got[2]));
}

TEST_F(TextureTest, LinearFiltersWeighInSteps) {
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const std::vector<float> texels = {0, 256, 512, 0};
  write_array(array, texels.data(), 16);
  const Texture texture(of(array),
                        described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0));
  std::vector<Words> at;
  for (int step = 0; step <= 256; step += 16) {
    at.push_back(floats(0.5f + static_cast<float>(step) / 256.0f));
  }
  const auto got = run_image_kernel(kFetch1d, false, texture, at);
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_EQ(16.0f * static_cast<float>(i), first(got[i])) << i;
  }
  // Beyond the last texel's middle there is only it.
  const auto edge = run_image_kernel(kFetch1d, false, texture, {floats(0.1f), floats(2.5f)});
  EXPECT_EQ(0.0f, first(edge[0]));
  EXPECT_EQ(512.0f, first(edge[1]));
}

TEST_F(TextureTest, LinearFiltersWorkInTwoAndThreeDimensions) {
  const Array flat(4, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  write_array(flat, ramp(4, 4).data(), 16, 4);
  const CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
  const Texture texture(of(flat), description);
  const auto got = run_image_kernel(kFetch2d, false, texture,
                                    {floats(2.0f, 1.5f), floats(2.0f, 2.0f), floats(2.75f, 1.25f)});
  EXPECT_FLOAT_EQ(11.5f, first(got[0]));
  EXPECT_FLOAT_EQ(16.5f, first(got[1]));
  EXPECT_NEAR(2.25f + 7.5f, first(got[2]), 1e-4);
  const Array deep(4, 4, 4, CU_AD_FORMAT_FLOAT, 1);
  write_array(deep, ramp(4, 4, 4).data(), 16, 4, 4);
  const Texture volume(of(deep), description);
  const auto inside = run_image_kernel(kFetch3d, false, volume,
                                       {floats(1.5f, 1.5f, 2.0f), floats(2.0f, 2.0f, 2.0f)});
  EXPECT_FLOAT_EQ(161.0f, first(inside[0]));
  EXPECT_FLOAT_EQ(166.5f, first(inside[1]));
}

TEST_F(TextureTest, SmallIntegersBecomeFractions) {
  const CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  const Array bytes(4, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  const std::vector<std::uint8_t> raw = {0, 51, 128, 255};
  write_array(bytes, raw.data(), 4);
  const std::vector<Words> at = {floats(0.5f), floats(1.5f), floats(2.5f), floats(3.5f)};
  auto got = run_image_kernel(kFetch1d, false, Texture(of(bytes), description), at);
  EXPECT_EQ(0.0f, first(got[0]));
  EXPECT_NEAR(0.2f, first(got[1]), 1e-6);
  EXPECT_NEAR(128.0f / 255, first(got[2]), 1e-6);
  EXPECT_EQ(1.0f, first(got[3]));
  const Array shorts(4, 0, 0, CU_AD_FORMAT_SIGNED_INT16, 1);
  const std::vector<std::int16_t> wide = {-32768, -32767, 16384, 32767};
  write_array(shorts, wide.data(), 8);
  got = run_image_kernel(kFetch1d, false, Texture(of(shorts), description), at);
  EXPECT_EQ(-1.0f, first(got[0]));
  EXPECT_EQ(-1.0f, first(got[1]));
  EXPECT_NEAR(16384.0f / 32767, first(got[2]), 1e-6);
  EXPECT_EQ(1.0f, first(got[3]));
}

TEST_F(TextureTest, IntegersCanStayIntegers) {
  const CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kIntegers);
  const Array bytes(4, 0, 0, CU_AD_FORMAT_SIGNED_INT8, 4);
  const std::vector<std::int8_t> raw = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12, 0, 0, 0, 0};
  write_array(bytes, raw.data(), 16);
  const auto got = run_image_kernel("tex.1d.v4.s32.f32 {%r8, %r9, %r10, %r11}, [%rd1, {%f0}];",
                                    true, Texture(of(bytes), description), {floats(1.5f)});
  EXPECT_EQ((Answer{5, static_cast<std::uint32_t>(-6), 7, static_cast<std::uint32_t>(-8)}), got[0]);
  // Those of 32 bits are never anything else.
  const Array words(2, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
  const std::vector<std::uint32_t> large = {0xdeadbeef, 17};
  write_array(words, large.data(), 8);
  const auto whole = run_image_kernel(
      "tex.1d.v4.u32.f32 {%r8, %r9, %r10, %r11}, [%rd1, {%f0}];", true,
      Texture(of(words), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0)),
      {floats(0.5f)});
  EXPECT_EQ(0xdeadbeef, whole[0][0]);
}

TEST_F(TextureTest, HalvesAndChannelsAreRead) {
  const Array halves(2, 0, 0, CU_AD_FORMAT_HALF, 2);
  const std::vector<std::uint16_t> raw = {0x3c00, 0xc000, 0x3800, 0x7bff};
  write_array(halves, raw.data(), 8);
  const auto got = run_image_kernel(
      kFetch1d, false,
      Texture(of(halves), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0)),
      {floats(0.5f), floats(1.5f)});
  EXPECT_EQ(1.0f, number(got[0][0]));
  EXPECT_EQ(-2.0f, number(got[0][1]));
  EXPECT_EQ(0.5f, number(got[1][0]));
  EXPECT_EQ(65504.0f, number(got[1][1]));
}

TEST_F(TextureTest, ColorsCanBeSrgb) {
  const Array array(1, 1, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4);
  const std::vector<std::uint8_t> color = {188, 0, 255, 128};
  write_array(array, color.data(), 4);
  const auto got = run_image_kernel(
      kFetch2d, false,
      Texture(of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT,
                                   CU_TRSF_SRGB | kNormalized)),
      {floats(0.5f, 0.5f)});
  EXPECT_NEAR(0.5029f, number(got[0][0]), 0.003);
  EXPECT_EQ(0.0f, number(got[0][1]));
  EXPECT_NEAR(1.0f, number(got[0][2]), 1e-6);
  EXPECT_NEAR(128.0f / 255, number(got[0][3]), 1e-6);
}

TEST_F(TextureTest, LayersAreApart) {
  const CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
  const Array rows(4, 0, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
  write_array(rows, ramp(4, 1, 3).data(), 16, 1, 3);
  auto got = run_image_kernel("tex.a1d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%r0, %f1}];",
                              false, Texture(of(rows), description),
                              {Words{0, bits(2.5f)}, Words{2, bits(1.0f)}, Words{9, bits(0.5f)}});
  EXPECT_EQ(2.0f, first(got[0]));
  EXPECT_EQ(200.5f, first(got[1]));
  EXPECT_EQ(200.0f, first(got[2]));
  const Array pictures(4, 4, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
  write_array(pictures, ramp(4, 4, 3).data(), 16, 4, 3);
  got = run_image_kernel("tex.a2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%r0, %f1, %f2, %f2}];",
                         false, Texture(of(pictures), description),
                         {Words{1, bits(2.5f), bits(3.5f)}});
  EXPECT_EQ(132.0f, first(got[0]));
}

TEST_F(TextureTest, DirectionsMeetTheFacesOfACube) {
  const Array cube(4, 4, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
  std::vector<float> texels;
  for (int face = 0; face < 6; ++face) texels.insert(texels.end(), 16, static_cast<float>(face));
  write_array(cube, texels.data(), 16, 4, 6);
  const CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kNormalized);
  const Texture texture(of(cube), description);
  const char* body = "tex.cube.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1, %f2, %f2}];";
  const auto got =
      run_image_kernel(body, false, texture,
                       {floats(2, 0.5f, 0.1f), floats(-2, 0.5f, 0.1f), floats(0.1f, 1, 0.2f),
                        floats(0.1f, -1, 0.2f), floats(0.3f, 0.1f, 5), floats(0.3f, 0.1f, -5)});
  for (std::size_t face = 0; face < 6; ++face) {
    EXPECT_EQ(static_cast<float>(face), first(got[face])) << face;
  }
}

TEST_F(TextureTest, FacesOfACubeLieAsDocumented) {
  const Array cube(2, 2, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP);
  write_array(cube, ramp(2, 2, 6).data(), 8, 2, 6);
  const Texture texture(of(cube),
                        described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kNormalized));
  const char* body = "tex.cube.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1, %f2, %f2}];";
  // s and t by face: (-z,-y) (z,-y) (x,z) (x,-z) (x,-y) (-x,-y).
  const auto got =
      run_image_kernel(body, false, texture,
                       {floats(1, 0.5f, -0.5f), floats(-1, 0.5f, -0.5f), floats(0.5f, 1, -0.5f),
                        floats(0.5f, -1, -0.5f), floats(0.5f, 0.5f, 1), floats(0.5f, 0.5f, -1)});
  const float wanted[] = {1, 100, 201, 311, 401, 500};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(wanted[i], first(got[i])) << i;
}

TEST_F(TextureTest, CubesHaveLayersToo) {
  const Array cubes(2, 2, 12, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED);
  write_array(cubes, ramp(2, 2, 12).data(), 8, 2, 12);
  const Texture texture(of(cubes),
                        described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kNormalized));
  const auto got =
      run_image_kernel("tex.acube.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%r0, %f1, %f2, %f3}];",
                       false, texture, {Words{1, bits(0.5f), bits(0.5f), bits(1.0f)}});
  EXPECT_EQ(1001.0f, first(got[0]));
}

// Three levels of 8x8, 4x4 and 2x2 texels, each of one value.
class MipmappedTextureTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    const CUDA_ARRAY3D_DESCRIPTOR d{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    levels_ = std::make_unique<MipmappedArray>(d, 3);
    for (unsigned i = 0; i < 3; ++i) {
      const std::size_t edge = 8u >> i;
      const std::vector<float> texels(edge * edge, 10.0f * static_cast<float>(i + 1));
      write_array(levels_->level(i), texels.data(), edge * 4, edge);
    }
    description_ = described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, kNormalized);
    description_.maxMipmapLevelClamp = 2;
  }
  void TearDown() override { levels_.reset(); }

  std::unique_ptr<MipmappedArray> levels_;
  CUDA_TEXTURE_DESC description_{};
};

constexpr const char* kLevel2d =
    "tex.level.2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1}], %f2;";

TEST_F(MipmappedTextureTest, LevelsAreChosen) {
  const Texture texture(of(*levels_), description_);
  const auto got =
      run_image_kernel(kLevel2d, false, texture,
                       {floats(0.5f, 0.5f, 0), floats(0.5f, 0.5f, 1.2f), floats(0.5f, 0.5f, 2),
                        floats(0.5f, 0.5f, 9), floats(0.5f, 0.5f, -3)});
  EXPECT_EQ(10.0f, first(got[0]));
  EXPECT_EQ(20.0f, first(got[1]));
  EXPECT_EQ(30.0f, first(got[2]));
  EXPECT_EQ(30.0f, first(got[3]));
  EXPECT_EQ(10.0f, first(got[4]));
  // The one that is not named is the finest.
  EXPECT_EQ(10.0f, first(run_image_kernel(kFetch2d, false, texture, {floats(0.5f, 0.5f)})[0]));
}

TEST_F(MipmappedTextureTest, LevelsBlend) {
  description_.mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR;
  const Texture texture(of(*levels_), description_);
  const auto got = run_image_kernel(
      kLevel2d, false, texture,
      {floats(0.5f, 0.5f, 0.5f), floats(0.5f, 0.5f, 1.25f), floats(0.5f, 0.5f, 2)});
  EXPECT_NEAR(15.0f, first(got[0]), 0.05);
  EXPECT_NEAR(22.5f, first(got[1]), 0.05);
  EXPECT_EQ(30.0f, first(got[2]));
}

TEST_F(MipmappedTextureTest, LevelsAreClamped) {
  description_.minMipmapLevelClamp = 1;
  description_.maxMipmapLevelClamp = 1;
  const Texture texture(of(*levels_), description_);
  const auto got =
      run_image_kernel(kLevel2d, false, texture, {floats(0.5f, 0.5f, 0), floats(0.5f, 0.5f, 2)});
  EXPECT_EQ(20.0f, first(got[0]));
  EXPECT_EQ(20.0f, first(got[1]));
}

TEST_F(MipmappedTextureTest, GradientsChooseLevels) {
  const Texture texture(of(*levels_), description_);
  // Two texels of the finest level in each step: the second one.
  const auto got = run_image_kernel(
      "tex.grad.2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1}], {%f2, %f3}, {%f4, %f5};",
      false, texture,
      {floats(0.5f, 0.5f, 0.125f, 0, 0, 0.125f), floats(0.5f, 0.5f, 0.25f, 0, 0, 0.25f),
       floats(0.5f, 0.5f, 0.5f, 0, 0, 0.5f)});
  EXPECT_EQ(10.0f, first(got[0]));
  EXPECT_EQ(20.0f, first(got[1]));
  EXPECT_EQ(30.0f, first(got[2]));
}

TEST_F(MipmappedTextureTest, ViewsShowSomeLevels) {
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
  view.width = 8;
  view.height = 8;
  view.firstMipmapLevel = 1;
  view.lastMipmapLevel = 2;
  const Texture texture(of(*levels_), description_, &view);
  const auto got =
      run_image_kernel(kLevel2d, false, texture, {floats(0.5f, 0.5f, 0), floats(0.5f, 0.5f, 1)});
  EXPECT_EQ(20.0f, first(got[0]));
  EXPECT_EQ(30.0f, first(got[1]));
  CUDA_RESOURCE_VIEW_DESC told{};
  CU_OK(cu().cuTexObjectGetResourceViewDesc(&told, texture));
  EXPECT_EQ(1u, told.firstMipmapLevel);
}

TEST_F(TextureTest, GathersTakeFourTexels) {
  const Array array(4, 4, 0, CU_AD_FORMAT_FLOAT, 2, CUDA_ARRAY3D_TEXTURE_GATHER);
  std::vector<float> texels;
  for (int i = 0; i < 16; ++i) {
    texels.push_back(static_cast<float>(i / 4 * 10 + i % 4));
    texels.push_back(static_cast<float>(1000 + i));
  }
  write_array(array, texels.data(), 32, 4);
  const Texture texture(of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const auto red =
      run_image_kernel("tld4.r.2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1}];", false,
                       texture, {floats(2.0f, 1.0f)});
  EXPECT_EQ((Answer{bits(11), bits(12), bits(2), bits(1)}), red[0]);
  const auto green =
      run_image_kernel("tld4.g.2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0, %f1}];", false,
                       texture, {floats(1.0f, 1.0f)});
  EXPECT_EQ((Answer{bits(1004), bits(1005), bits(1001), bits(1000)}), green[0]);
}

TEST_F(TextureTest, DeviceMemoryCanBeATexture) {
  const DeviceMemory memory(64 * 4);
  std::vector<float> texels(64);
  for (std::size_t i = 0; i < 64; ++i) texels[i] = static_cast<float>(i) + 0.25f;
  memory.write(texels);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = memory;
  resource.res.linear.format = CU_AD_FORMAT_FLOAT;
  resource.res.linear.numChannels = 2;
  resource.res.linear.sizeInBytes = 48 * 4;
  const Texture texture(resource, described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const auto got =
      run_image_kernel("tex.1d.v4.f32.s32 {%f8, %f9, %f10, %f11}, [%rd1, {%r0}];", false, texture,
                       {Words{0}, Words{23}, Words{24}, Words{0xffffffff}});
  EXPECT_EQ(0.25f, number(got[0][0]));
  EXPECT_EQ(1.25f, number(got[0][1]));
  EXPECT_EQ(47.25f, number(got[1][1]));
  EXPECT_EQ(0.0f, number(got[2][0]));
  EXPECT_EQ(0.0f, number(got[3][0]));
}

TEST_F(TextureTest, RowsOfDeviceMemoryCanBeATexture) {
  constexpr std::size_t kPitch = 512;
  const DeviceMemory memory(kPitch * 4);
  std::vector<std::uint8_t> bytes(kPitch * 4);
  for (std::size_t y = 0; y < 4; ++y) {
    for (std::size_t x = 0; x < 16; ++x)
      bytes[y * kPitch + x] = static_cast<std::uint8_t>(16 * y + x);
  }
  memory.write(bytes);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_PITCH2D;
  resource.res.pitch2D.devPtr = memory;
  resource.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8;
  resource.res.pitch2D.numChannels = 1;
  resource.res.pitch2D.width = 16;
  resource.res.pitch2D.height = 4;
  resource.res.pitch2D.pitchInBytes = kPitch;
  const Texture whole(resource,
                      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kIntegers));
  const auto got = run_image_kernel("tex.2d.v4.u32.f32 {%r8, %r9, %r10, %r11}, [%rd1, {%f0, %f1}];",
                                    true, whole, {floats(3.5f, 2.5f), floats(99, 99)});
  EXPECT_EQ(35u, got[0][0]);
  EXPECT_EQ(63u, got[1][0]);
  const Texture filtered(resource,
                         described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0));
  const auto half = run_image_kernel(kFetch2d, false, filtered, {floats(4.0f, 1.0f)});
  EXPECT_NEAR(11.5f / 255, first(half[0]), 1e-4);
}

TEST_F(TextureTest, ViewsReadOtherFormats) {
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const std::vector<float> texels = {1.0f, -2.0f, 0.5f, 3.0f};
  write_array(array, texels.data(), 16);
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = CU_RES_VIEW_FORMAT_UINT_1X32;
  view.width = 4;
  const Texture texture(
      of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kIntegers), &view);
  const auto got = run_image_kernel("tex.1d.v4.u32.f32 {%r8, %r9, %r10, %r11}, [%rd1, {%f0}];",
                                    true, texture, {floats(1.5f)});
  EXPECT_EQ(bits(-2.0f), got[0][0]);
}

TEST_F(TextureTest, LaterWritesAreSeenByLaterKernels) {
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const Texture texture(of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const Module module(image_kernel(kFetch1d, false));
  for (float value = 1; value < 5; ++value) {
    const std::vector<float> texels(4, value);
    write_array(array, texels.data(), 16);
    EXPECT_EQ(value, first(run_image_kernel(module, texture, {floats(2.5f)})[0]));
  }
}

TEST_F(TextureTest, ManyTexturesAreKeptApart) {
  constexpr int kCount = 20;
  std::vector<std::unique_ptr<Array>> arrays;
  std::vector<std::unique_ptr<Texture>> textures;
  for (int i = 0; i < kCount; ++i) {
    arrays.push_back(std::make_unique<Array>(4, 0, 0, CU_AD_FORMAT_FLOAT, 1));
    const std::vector<float> texels(4, static_cast<float>(i));
    write_array(*arrays.back(), texels.data(), 16);
    textures.push_back(std::make_unique<Texture>(
        of(*arrays.back()), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0)));
  }
  const Module module(image_kernel(kFetch1d, false));
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(
        static_cast<float>(i),
        first(run_image_kernel(module, *textures[static_cast<std::size_t>(i)], {floats(1.5f)})[0]));
  }
}

TEST_F(TextureTest, KernelsCanAskForExtents) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  const Texture texture(of(array), described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  const auto got = run_image_kernel("txq.width.b32 %r8, [%rd1];\n  txq.height.b32 %r9, [%rd1];",
                                    true, texture, {Words{}});
  EXPECT_EQ(8u, got[0][0]);
  EXPECT_EQ(4u, got[0][1]);
}

TEST_F(TextureTest, DescriptionsComeBack) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_LINEAR, kNormalized);
  description.addressMode[1] = CU_TR_ADDRESS_MODE_CLAMP;
  description.borderColor[0] = 0.5f;
  const Texture texture(of(array), description);
  CUDA_RESOURCE_DESC resource{};
  CU_OK(cu().cuTexObjectGetResourceDesc(&resource, texture));
  EXPECT_EQ(CU_RESOURCE_TYPE_ARRAY, resource.resType);
  EXPECT_EQ(static_cast<CUarray>(array), resource.res.array.hArray);
  CUDA_TEXTURE_DESC told{};
  CU_OK(cu().cuTexObjectGetTextureDesc(&told, texture));
  EXPECT_EQ(CU_TR_ADDRESS_MODE_BORDER, told.addressMode[0]);
  EXPECT_EQ(CU_TR_ADDRESS_MODE_CLAMP, told.addressMode[1]);
  EXPECT_EQ(CU_TR_FILTER_MODE_LINEAR, told.filterMode);
  EXPECT_EQ(kNormalized, told.flags & kNormalized);
  // NVIDIA's driver tells no colour, and no view where none was given.
  CUDA_RESOURCE_VIEW_DESC view{};
  CU_OK(cu().cuTexObjectGetResourceViewDesc(&view, texture));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectGetTextureDesc(nullptr, texture));
}

TEST_F(TextureTest, BadDescriptionsAreRefused) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  const DeviceMemory memory(1024);
  const CUDA_RESOURCE_DESC good = of(array);
  const CUDA_TEXTURE_DESC plain = described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  CUtexObject texture = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(nullptr, &good, &plain, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(&texture, nullptr, &plain, nullptr));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(&texture, &good, nullptr, nullptr));
  CUDA_RESOURCE_DESC bad = good;
  bad.resType = static_cast<CUresourcetype>(9);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(&texture, &bad, &plain, nullptr));
  bad = {};
  bad.resType = CU_RESOURCE_TYPE_LINEAR;
  bad.res.linear.devPtr = static_cast<CUdeviceptr>(memory) + 4;
  bad.res.linear.format = CU_AD_FORMAT_FLOAT;
  bad.res.linear.numChannels = 1;
  bad.res.linear.sizeInBytes = 512;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(&texture, &bad, &plain, nullptr));
  bad.res.linear.devPtr = memory;
  bad.res.linear.numChannels = 3;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(&texture, &bad, &plain, nullptr));
  bad = good;
  bad.res.array.hArray = nullptr;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectCreate(&texture, &bad, &plain, nullptr));
}

TEST_F(TextureTest, FlagsWithoutANameAreTaken) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  const CUDA_RESOURCE_DESC resource = of(array);
  for (const unsigned flag : {4u, 8u}) {
    const CUDA_TEXTURE_DESC description =
        described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, flag);
    CUtexObject texture = 0;
    CU_IS(CUDA_SUCCESS, cu().cuTexObjectCreate(&texture, &resource, &description, nullptr));
    CU_OK(cu().cuTexObjectDestroy(texture));
  }
}

TEST_F(TextureTest, NoneIsDestroyed) { CU_IS(CUDA_SUCCESS, cu().cuTexObjectDestroy(0)); }

TEST_F(TextureTest, TexturesDieWithTheirContext) {
  CUcontext other = nullptr;
  CU_OK(cu().cuCtxCreate_v2(&other, 0, device));
  CUarray array = nullptr;
  CUtexObject texture = 0;
  const CUDA_ARRAY3D_DESCRIPTOR d{16, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CU_OK(cu().cuArray3DCreate_v2(&array, &d));
  const CUDA_RESOURCE_DESC resource = of(array);
  const CUDA_TEXTURE_DESC plain = described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  CU_OK(cu().cuTexObjectCreate(&texture, &resource, &plain, nullptr));
  CU_OK(cu().cuCtxDestroy_v2(other));
  CU_OK(cu().cuCtxSetCurrent(context));
  const Array still(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const std::vector<float> texels(4, 6.0f);
  write_array(still, texels.data(), 16);
  const Texture again(of(still), plain);
  EXPECT_EQ(6.0f, first(run_image_kernel(kFetch1d, false, again, {floats(1.5f)})[0]));
}

// FFmpeg asks for that.
TEST_F(TextureTest, LinearFiltersMakeIntegersOfIntegers) {
  const std::vector<std::uint32_t> words = {10, 200, 30, 70000};
  const std::vector<std::uint8_t> bytes = {10, 200, 30, 77};
  const Array large(4, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
  const Array small(4, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
  write_array(large, words.data(), 16);
  write_array(small, bytes.data(), 4);
  const char* const fetch = "tex.1d.v4.u32.f32 {%r8, %r9, %r10, %r11}, [%rd1, {%f0}];";
  const std::vector<Words> at = {floats(0.9f), floats(1.1f), floats(1.9f), floats(3.9f)};
  const Texture of_large(of(large),
                         described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0));
  auto got = run_image_kernel(fetch, true, of_large, at);
  EXPECT_EQ(85u, got[0][0]);
  EXPECT_EQ(124u, got[1][0]);
  EXPECT_EQ(132u, got[2][0]);
  EXPECT_EQ(70000u, got[3][0]);
  const Texture of_small(of(small),
                         described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, kIntegers));
  got = run_image_kernel(fetch, true, of_small, at);
  EXPECT_EQ(86u, got[0][0]);
  EXPECT_EQ(124u, got[1][0]);
  EXPECT_EQ(132u, got[2][0]);
  EXPECT_EQ(77u, got[3][0]);
}

// As programs do that make one for each launch.
TEST_F(TextureTest, AKernelReadsOneThatIsDestroyedBehindItsLaunch) {
  const Array array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1);
  write_array(array, ramp(8, 4).data(), 32, 4);
  const CUDA_RESOURCE_DESC resource = of(array);
  const CUDA_TEXTURE_DESC description =
      described(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
  const Module module(image_kernel(kFetch2d, false));
  const Stream stream(CU_STREAM_NON_BLOCKING);
  const std::vector<Words> inputs = {floats(3.1f, 2.9f), floats(5.0f, 1.0f)};
  const DeviceMemory in(inputs.size() * sizeof(Words));
  const DeviceMemory out(inputs.size() * sizeof(Answer));
  in.write(inputs);
  CUtexObject texture = 0;
  CU_OK(cu().cuTexObjectCreate(&texture, &resource, &description, nullptr));
  Gate gate;
  gate.close(stream);
  CU_OK(launch(module.function("run"), 1, 2, stream, static_cast<CUdeviceptr>(out), texture,
               static_cast<CUdeviceptr>(in)));
  CU_OK(cu().cuTexObjectDestroy(texture));
  CUDA_RESOURCE_DESC described_as{};
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexObjectGetResourceDesc(&described_as, texture));
  CU_IS(CUDA_ERROR_NOT_READY, cu().cuStreamQuery(stream));
  gate.open();
  CU_OK(cu().cuStreamSynchronize(stream));
  const auto got = out.read<Answer>();
  EXPECT_EQ(23.0f, first(got[0]));
  EXPECT_EQ(15.0f, first(got[1]));
}

}  // namespace
}  // namespace flyt::conformance
