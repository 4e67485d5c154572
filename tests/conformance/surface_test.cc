// Surface objects: what kernels read and write through them.
#include "tests/conformance/images.h"
#include "tests/conformance/texture_kernels.h"

namespace flyt::conformance {
namespace {

using SurfaceTest = ContextTest;

constexpr unsigned kSurface = CUDA_ARRAY3D_SURFACE_LDST;

// A surface object, destroyed at the end of its scope.
class Surface {
 public:
  explicit Surface(CUarray array) {
    const Unrecorded quiet;
    CUDA_RESOURCE_DESC resource{};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    EXPECT_EQ(CUDA_SUCCESS, cu().cuSurfObjectCreate(&surface_, &resource));
  }
  ~Surface() {
    const Unrecorded quiet;
    cu().cuSurfObjectDestroy(surface_);
  }
  Surface(const Surface&) = delete;
  Surface& operator=(const Surface&) = delete;
  operator CUsurfObject() const { return surface_; }

 private:
  CUsurfObject surface_ = 0;
};

std::vector<std::uint32_t> counted(std::size_t words) {
  std::vector<std::uint32_t> values(words);
  for (std::size_t i = 0; i < words; ++i) values[i] = static_cast<std::uint32_t>(i + 1);
  return values;
}

TEST_F(SurfaceTest, LoadsCountBytesAlongTheRow) {
  const Array array(8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, kSurface);
  write_array(array, counted(32).data(), 32, 4);
  const Surface surface(array);
  const auto got = run_image_kernel("suld.b.2d.b32.trap %r8, [%rd1, {%r0, %r1}];", true, surface,
                                    {Words{0, 0}, Words{12, 2}, Words{28, 3}});
  EXPECT_EQ(1u, got[0][0]);
  EXPECT_EQ(20u, got[1][0]);
  EXPECT_EQ(32u, got[2][0]);
}

TEST_F(SurfaceTest, StoresReachTheArray) {
  const Array array(8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, kSurface);
  const std::vector<std::uint32_t> blank(32);
  write_array(array, blank.data(), 32, 4);
  const Surface surface(array);
  run_image_kernel("sust.b.2d.b32.trap [%rd1, {%r0, %r1}], %r2;", true, surface,
                   {Words{0, 0, 111}, Words{16, 3, 222}});
  std::vector<std::uint32_t> texels(32);
  read_array(array, texels.data(), 32, 4);
  EXPECT_EQ(111u, texels[0]);
  EXPECT_EQ(222u, texels[3 * 8 + 4]);
  EXPECT_EQ(0u, texels[1]);
}

TEST_F(SurfaceTest, VectorsAndSmallElementsMove) {
  const Array wide(4, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 4, kSurface);
  write_array(wide, counted(16).data(), 64);
  const Surface surface(wide);
  const auto got = run_image_kernel(
      "suld.b.1d.v4.b32.trap {%r8, %r9, %r10, %r11}, [%rd1, {%r0}];\n"
      "  sust.b.1d.v2.b32.trap [%rd1, {%r1}], {%r11, %r10};",
      true, surface, {Words{16, 48}});
  EXPECT_EQ((Answer{5, 6, 7, 8}), got[0]);
  std::vector<std::uint32_t> texels(16);
  read_array(wide, texels.data(), 64);
  EXPECT_EQ(8u, texels[12]);
  EXPECT_EQ(7u, texels[13]);
  EXPECT_EQ(15u, texels[14]);
  const Array bytes(8, 2, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, kSurface);
  const std::vector<std::uint8_t> raw = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  write_array(bytes, raw.data(), 8, 2);
  const Surface small(bytes);
  const auto byte =
      run_image_kernel("suld.b.2d.b8.trap %h0, [%rd1, {%r0, %r1}];\n  cvt.u32.u8 %r8, %h0;", true,
                       small, {Words{5, 1}});
  EXPECT_EQ(14u, byte[0][0]);
}

TEST_F(SurfaceTest, AccessesBeyondTheEdgeAreZeroOrClamped) {
  const Array array(4, 2, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, kSurface);
  write_array(array, counted(8).data(), 16, 2);
  const Surface surface(array);
  const std::vector<Words> at = {Words{16, 0}, Words{0xfffffffc, 1}, Words{0, 5}, Words{4, 1}};
  auto got = run_image_kernel("suld.b.2d.b32.zero %r8, [%rd1, {%r0, %r1}];", true, surface, at);
  EXPECT_EQ(0u, got[0][0]);
  EXPECT_EQ(0u, got[1][0]);
  EXPECT_EQ(0u, got[2][0]);
  EXPECT_EQ(6u, got[3][0]);
  got = run_image_kernel("suld.b.2d.b32.clamp %r8, [%rd1, {%r0, %r1}];", true, surface, at);
  EXPECT_EQ(4u, got[0][0]);
  EXPECT_EQ(5u, got[1][0]);
  EXPECT_EQ(5u, got[2][0]);
  run_image_kernel("sust.b.2d.b32.zero [%rd1, {%r0, %r1}], %r0;", true, surface,
                   {Words{16, 0}, Words{0, 2}});
  std::vector<std::uint32_t> texels(8);
  read_array(array, texels.data(), 16, 2);
  EXPECT_EQ(counted(8), texels);
}

TEST_F(SurfaceTest, LayersAndSlicesAreReached) {
  const Array layers(4, 4, 3, CU_AD_FORMAT_UNSIGNED_INT32, 1, kSurface | CUDA_ARRAY3D_LAYERED);
  write_array(layers, counted(48).data(), 16, 4, 3);
  auto got = run_image_kernel("suld.b.a2d.b32.trap %r8, [%rd1, {%r0, %r1, %r2, %r2}];", true,
                              Surface(layers), {Words{2, 4, 1}});
  EXPECT_EQ(2u * 16 + 4 + 1 + 1, got[0][0]);
  const Array deep(4, 4, 3, CU_AD_FORMAT_UNSIGNED_INT32, 1, kSurface);
  write_array(deep, counted(48).data(), 16, 4, 3);
  got = run_image_kernel("suld.b.3d.b32.trap %r8, [%rd1, {%r0, %r1, %r2, %r2}];", true,
                         Surface(deep), {Words{12, 3, 1}});
  EXPECT_EQ(1u * 16 + 12 + 3 + 1, got[0][0]);
}

TEST_F(SurfaceTest, ReductionsAreAtomic) {
  const Array array(4, 1, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, kSurface);
  const std::vector<std::uint32_t> start = {100, 100, 100, 100};
  write_array(array, start.data(), 16, 1);
  const Surface surface(array);
  const std::vector<Words> all(64, Words{4, 0, 3});
  run_image_kernel("sured.b.add.2d.u32.trap [%rd1, {%r0, %r1}], %r2;", true, surface, all);
  run_image_kernel("sured.b.min.2d.s32.trap [%rd1, {%r0, %r1}], %r2;", true, surface,
                   {Words{8, 0, static_cast<std::uint32_t>(-5)}});
  std::vector<std::uint32_t> texels(4);
  read_array(array, texels.data(), 16, 1);
  EXPECT_EQ(100u + 64 * 3, texels[1]);
  EXPECT_EQ(static_cast<std::uint32_t>(-5), texels[2]);
}

TEST_F(SurfaceTest, WhatIsStoredIsFetchedByTheNextKernel) {
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1, kSurface);
  const Surface surface(array);
  run_image_kernel(
      "sust.b.1d.b32.trap [%rd1, {%r0}], %r1;", true, surface,
      {Words{0, bits(1.5f)}, Words{4, bits(2.5f)}, Words{8, bits(3.5f)}, Words{12, bits(4.5f)}});
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC description{};
  description.addressMode[0] = CU_TR_ADDRESS_MODE_CLAMP;
  CUtexObject texture = 0;
  CU_OK(cu().cuTexObjectCreate(&texture, &resource, &description, nullptr));
  const auto got = run_image_kernel("tex.1d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [%rd1, {%f0}];",
                                    false, texture, {floats(2.5f)});
  EXPECT_EQ(3.5f, number(got[0][0]));
  CU_OK(cu().cuTexObjectDestroy(texture));
}

TEST_F(SurfaceTest, KernelsCanAskForExtents) {
  const Array array(16, 6, 0, CU_AD_FORMAT_FLOAT, 1, kSurface);
  const auto got = run_image_kernel("suq.width.b32 %r8, [%rd1];\n  suq.height.b32 %r9, [%rd1];",
                                    true, Surface(array), {Words{}});
  EXPECT_EQ(16u, got[0][0]);
  EXPECT_EQ(6u, got[0][1]);
}

TEST_F(SurfaceTest, DescriptionsComeBackAndBadOnesAreRefused) {
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1, kSurface);
  const Surface surface(array);
  CUDA_RESOURCE_DESC told{};
  CU_OK(cu().cuSurfObjectGetResourceDesc(&told, surface));
  EXPECT_EQ(CU_RESOURCE_TYPE_ARRAY, told.resType);
  EXPECT_EQ(static_cast<CUarray>(array), told.res.array.hArray);
  CUsurfObject other = 0;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuSurfObjectCreate(&other, nullptr));
  CUDA_RESOURCE_DESC linear{};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuSurfObjectCreate(&other, &linear));
  CUDA_RESOURCE_DESC nothing{};
  nothing.resType = CU_RESOURCE_TYPE_ARRAY;
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuSurfObjectCreate(&other, &nothing));
}

TEST_F(SurfaceTest, NoneIsDestroyed) { CU_IS(CUDA_SUCCESS, cu().cuSurfObjectDestroy(0)); }

TEST_F(SurfaceTest, ArraysThatWereNotMadeForItWillDo) {
  const Array plain(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const Surface surface(plain);
  CUDA_RESOURCE_DESC told{};
  CU_OK(cu().cuSurfObjectGetResourceDesc(&told, surface));
  EXPECT_EQ(static_cast<CUarray>(plain), told.res.array.hArray);
}

}  // namespace
}  // namespace flyt::conformance
