// Formats, shapes and levels of arrays.
#include "cuda/array_facts.h"

#include <gtest/gtest.h>

namespace flyt::cuda {
namespace {

CUDA_ARRAY3D_DESCRIPTOR bytes(std::size_t width, std::size_t height, std::size_t depth,
                              unsigned flags) {
  return {width, height, depth, CU_AD_FORMAT_UNSIGNED_INT8, 1, flags};
}

TEST(ArrayFacts, TheChannelsOfNormFormatsAreFixed) {
  EXPECT_TRUE(texel_of(CU_AD_FORMAT_UNORM_INT8X2, 2)->normalized);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_format(CU_AD_FORMAT_UNORM_INT8X2, 1));
  EXPECT_EQ(16U, texel_of(CU_AD_FORMAT_FLOAT, 4)->bytes());
  EXPECT_FALSE(texel_of(CU_AD_FORMAT_FLOAT, 3));
}

TEST(ArrayFacts, OtherFormatsAreKnownButNotSupported) {
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, check_format(CU_AD_FORMAT_BC7_UNORM, 4));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_format(static_cast<CUarray_format>(0xa0), 1));
}

TEST(ArrayFacts, ExtentsAndFlagsMakeAShape) {
  EXPECT_EQ(ArrayShape::k1D, shape_of(bytes(4, 0, 0, 0)));
  EXPECT_EQ(ArrayShape::k1DLayered, shape_of(bytes(4, 0, 2, CUDA_ARRAY3D_LAYERED)));
  EXPECT_EQ(ArrayShape::k3D, shape_of(bytes(4, 4, 2, 0)));
  EXPECT_EQ(CUDA_SUCCESS, check_array(bytes(4, 4, 6, CUDA_ARRAY3D_CUBEMAP)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_array(bytes(4, 2, 6, CUDA_ARRAY3D_CUBEMAP)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_array(bytes(4, 4, 12, CUDA_ARRAY3D_CUBEMAP)));
  EXPECT_EQ(CUDA_SUCCESS,
            check_array(bytes(4, 4, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_array(bytes(4, 0, 2, 0)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_array(bytes(0, 0, 0, 0)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, check_array(bytes(4, 4, 0, 0x8000)));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, check_array(bytes(4, 4, 0, CUDA_ARRAY3D_SPARSE)));
}

TEST(ArrayFacts, LevelsShrinkToOneAndLayersStay) {
  EXPECT_EQ(4U, levels_max(bytes(8, 3, 0, 0)));
  EXPECT_EQ(5U, levels_max(bytes(8, 3, 16, 0)));
  EXPECT_EQ(4U, levels_max(bytes(8, 3, 16, CUDA_ARRAY3D_LAYERED)));
  const auto level = level_of(bytes(8, 3, 16, CUDA_ARRAY3D_LAYERED), 2);
  EXPECT_EQ(2U, level.Width);
  EXPECT_EQ(1U, level.Height);
  EXPECT_EQ(16U, level.Depth);
}

TEST(ArrayFacts, BoxesMustLieInsideAndHoldWholeTexels) {
  CUDA_ARRAY3D_DESCRIPTOR d = bytes(8, 4, 0, 0);
  d.Format = CU_AD_FORMAT_FLOAT;
  const ArrayExtent extent = extent_of(d);
  EXPECT_TRUE(extent.holds(0, 0, 0, 32, 4, 1));
  EXPECT_FALSE(extent.holds(2, 0, 0, 8, 1, 1));
  EXPECT_FALSE(extent.holds(4, 0, 0, 32, 1, 1));
  EXPECT_FALSE(extent.holds(0, 0, 1, 4, 1, 1));
  EXPECT_FALSE(extent.holds(0, ~std::uint64_t{0}, 0, 4, 2, 1));
}

TEST(ArrayFacts, CountTheTexelsOfAllLevels) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = 8;
  descriptor.Height = 4;
  descriptor.Format = CU_AD_FORMAT_FLOAT;
  descriptor.NumChannels = 2;
  EXPECT_EQ(bytes_of_texels(descriptor), 8U * 4 * 8);
  EXPECT_EQ(bytes_of_texels(descriptor, 4), (8U * 4 + 4 * 2 + 2 * 1 + 1 * 1) * 8);
  descriptor.Height = 0;
  EXPECT_EQ(bytes_of_texels(descriptor), 8U * 8);
  descriptor.Height = 4;
  descriptor.Depth = 3;
  EXPECT_EQ(bytes_of_texels(descriptor), 8U * 4 * 3 * 8);
}

}  // namespace
}  // namespace flyt::cuda
