// Texture and surface references: named by modules, bound by the host.
#include "tests/conformance/images.h"
#include "tests/conformance/texture_kernels.h"

namespace flyt::conformance {
namespace {

using TextureReferenceTest = ContextTest;

constexpr const char* kGlobals =
    ".visible .global .texref picture;\n.visible .global .surfref canvas;\n"
    ".visible .global .u32 number = 3;\n";
constexpr const char* kFetch = "tex.1d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [picture, {%f0}];";

CUtexref reference_of(CUmodule module) {
  const Unrecorded quiet;
  CUtexref reference = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, cu().cuModuleGetTexRef(&reference, module, "picture"));
  return reference;
}

float fetch(CUmodule module, float x) {
  return number(run_image_kernel(module, 0, {floats(x)})[0][0]);
}

TEST_F(TextureReferenceTest, AModulesReferencesAreFoundByName) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  CUtexref texture = nullptr;
  CUsurfref surface = nullptr;
  CU_OK(cu().cuModuleGetTexRef(&texture, module, "picture"));
  EXPECT_NE(nullptr, texture);
  CU_OK(cu().cuModuleGetSurfRef(&surface, module, "canvas"));
  EXPECT_NE(nullptr, surface);
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetTexRef(&texture, module, "missing"));
  CU_IS(CUDA_ERROR_NOT_FOUND, cu().cuModuleGetSurfRef(&surface, module, "missing"));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetTexRef(&texture, module, ""));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuModuleGetSurfRef(&surface, module, ""));
}

TEST_F(TextureReferenceTest, KernelsFetchFromTheArrayThatIsBound) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  const Array first(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const Array second(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const std::vector<float> ones = {1, 2, 3, 4};
  const std::vector<float> tens = {10, 20, 30, 40};
  write_array(first, ones.data(), 16);
  write_array(second, tens.data(), 16);
  CU_OK(cu().cuTexRefSetArray(reference, first, CU_TRSA_OVERRIDE_FORMAT));
  EXPECT_EQ(3.0f, fetch(module, 2.5f));
  CU_OK(cu().cuTexRefSetArray(reference, second, CU_TRSA_OVERRIDE_FORMAT));
  EXPECT_EQ(30.0f, fetch(module, 2.5f));
  CUarray told = nullptr;
  CU_OK(cu().cuTexRefGetArray(&told, reference));
  EXPECT_EQ(static_cast<CUarray>(second), told);
}

TEST_F(TextureReferenceTest, ModesApply) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const std::vector<float> texels = {1, 2, 3, 4};
  write_array(array, texels.data(), 16);
  CU_OK(cu().cuTexRefSetAddressMode(reference, 0, CU_TR_ADDRESS_MODE_WRAP));
  CU_OK(cu().cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR));
  CU_OK(cu().cuTexRefSetFlags(reference, CU_TRSF_NORMALIZED_COORDINATES));
  CU_OK(cu().cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT));
  EXPECT_EQ(1.5f, fetch(module, 0.25f));
  EXPECT_EQ(2.5f, fetch(module, 1.5f));
  CUaddress_mode mode{};
  CUfilter_mode filter{};
  unsigned flags = 0;
  CUarray_format format{};
  int channels = 0;
  CU_OK(cu().cuTexRefGetAddressMode(&mode, reference, 0));
  EXPECT_EQ(CU_TR_ADDRESS_MODE_WRAP, mode);
  CU_OK(cu().cuTexRefGetFilterMode(&filter, reference));
  EXPECT_EQ(CU_TR_FILTER_MODE_LINEAR, filter);
  CU_OK(cu().cuTexRefGetFlags(&flags, reference));
  EXPECT_NE(0u, flags & CU_TRSF_NORMALIZED_COORDINATES);
  CU_OK(cu().cuTexRefGetFormat(&format, &channels, reference));
  EXPECT_EQ(CU_AD_FORMAT_FLOAT, format);
  EXPECT_EQ(1, channels);
}

TEST_F(TextureReferenceTest, DeviceMemoryCanBeBound) {
  const Module module(
      image_kernel("tex.1d.v4.u32.s32 {%r8, %r9, %r10, %r11}, [picture, {%r0}];", true, kGlobals));
  const CUtexref reference = reference_of(module);
  const DeviceMemory memory(2048);
  std::vector<std::uint32_t> words(512);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 3);
  memory.write(words);
  CU_OK(cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  CU_OK(cu().cuTexRefSetFlags(reference, CU_TRSF_READ_AS_INTEGER));
  std::size_t offset = 99;
  CU_OK(cu().cuTexRefSetAddress_v2(&offset, reference, memory, 2048));
  EXPECT_EQ(0u, offset);
  EXPECT_EQ(300u, run_image_kernel(module, 0, {Words{100}})[0][0]);
  CUdeviceptr told = 0;
  CU_OK(cu().cuTexRefGetAddress_v2(&told, reference));
  EXPECT_EQ(static_cast<CUdeviceptr>(memory), told);
}

TEST_F(TextureReferenceTest, ArraysAreBoundWithOrWithoutTheirFormat) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  const Array array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
  const MipmappedArray levels({8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 2);
  CU_OK(cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_FLOAT, 1));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetArray(reference, array, 0));
  CUarray told = nullptr;
  CU_OK(cu().cuTexRefGetArray(&told, reference));
  EXPECT_EQ(static_cast<CUarray>(array), told);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexRefSetArray(reference, array, 2));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetMipmappedArray(reference, levels, 0));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexRefSetMipmappedArray(reference, levels, 2));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuTexRefSetMipmappedArray(reference, nullptr, 0));
}

TEST_F(TextureReferenceTest, WhoAsksForNothingIsToldNothing) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  const DeviceMemory memory(2048);
  CU_OK(cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  CU_OK(cu().cuTexRefSetAddress_v2(nullptr, reference, memory, 2048));
  CUarray_format format{};
  int channels = 0;
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetFormat(nullptr, &channels, reference));
  EXPECT_EQ(1, channels);
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetFormat(&format, nullptr, reference));
  EXPECT_EQ(CU_AD_FORMAT_UNSIGNED_INT32, format);
  CU_IS(CUDA_SUCCESS, cu().cuTexRefGetAddress_v2(nullptr, reference));
}

TEST_F(TextureReferenceTest, WhatIsNoMemoryIsBoundAllTheSame) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  const DeviceMemory memory(2048);
  CU_OK(cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT32, 1));
  for (const std::size_t bytes : {0, 1, 2049}) {
    CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddress_v2(nullptr, reference, memory, bytes));
  }
  for (const CUdeviceptr address : {0, 0x1000}) {
    CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddress_v2(nullptr, reference, address, 2048));
  }
  CUDA_ARRAY_DESCRIPTOR d{8, 4, CU_AD_FORMAT_FLOAT, 1};
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddress2D_v3(reference, &d, 0, 512));
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddress2D_v3(reference, &d, 0x1000, 512));
  d.Height = 0;
  CU_IS(CUDA_SUCCESS, cu().cuTexRefSetAddress2D_v3(reference, &d, memory, 512));
}

TEST_F(TextureReferenceTest, RowsOfDeviceMemoryCanBeBound) {
  const Module module(image_kernel(
      "tex.2d.v4.f32.f32 {%f8, %f9, %f10, %f11}, [picture, {%f0, %f1}];", false, kGlobals));
  const CUtexref reference = reference_of(module);
  const DeviceMemory memory(512 * 4);
  std::vector<float> texels(512);
  for (std::size_t i = 0; i < texels.size(); ++i) texels[i] = static_cast<float>(i);
  memory.write(texels);
  const CUDA_ARRAY_DESCRIPTOR d{8, 4, CU_AD_FORMAT_FLOAT, 1};
  CU_OK(cu().cuTexRefSetAddress2D_v3(reference, &d, memory, 512));
  const auto got = run_image_kernel(module, 0, {floats(3.5f, 2.5f)});
  EXPECT_EQ(2.0f * 128 + 3, number(got[0][0]));
}

TEST_F(TextureReferenceTest, SurfacesAreBoundToo) {
  const Module module(image_kernel("sust.b.1d.b32.trap [canvas, {%r0}], %r1;", true, kGlobals));
  CUsurfref reference = nullptr;
  CU_OK(cu().cuModuleGetSurfRef(&reference, module, "canvas"));
  const Array array(4, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST);
  const std::vector<std::uint32_t> blank(4);
  write_array(array, blank.data(), 16);
  CU_OK(cu().cuSurfRefSetArray(reference, array, 0));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuSurfRefSetArray(reference, nullptr, 0));
  run_image_kernel(module, 0, {Words{8, 77}});
  std::vector<std::uint32_t> texels(4);
  read_array(array, texels.data(), 16);
  EXPECT_EQ(77u, texels[2]);
  CUarray told = nullptr;
  CU_OK(cu().cuSurfRefGetArray(&told, reference));
  EXPECT_EQ(static_cast<CUarray>(array), told);
}

TEST_F(TextureReferenceTest, BadArgumentsAreRefused) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  CU_IS(CUDA_ERROR_INVALID_HANDLE,
        cu().cuTexRefSetArray(reference, nullptr, CU_TRSA_OVERRIDE_FORMAT));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_FLOAT, 3));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexRefGetFlags(nullptr, reference));
  const CUDA_ARRAY_DESCRIPTOR d{8, 4, CU_AD_FORMAT_FLOAT, 1};
  const DeviceMemory memory(512 * 4);
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuTexRefSetAddress2D_v3(reference, &d, memory, 16));
}

// The call is of the time when references were parameters of a function.
TEST_F(TextureReferenceTest, ReferencesAreNoParametersOfAFunctionAnyMore) {
  const Module module(image_kernel(kFetch, false, kGlobals));
  const CUtexref reference = reference_of(module);
  const CUfunction function = module.function("run");
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, reference));
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuParamSetTexRef(function, 0, reference));
  CU_IS(CUDA_ERROR_INVALID_HANDLE, cu().cuParamSetTexRef(function, CU_PARAM_TR_DEFAULT, nullptr));
}

}  // namespace
}  // namespace flyt::conformance
