#include "cuda/error_text.h"

#include <gtest/gtest.h>

namespace flyt::cuda {
namespace {

TEST(ErrorText, KnowsTheResultsByNameAndText) {
  EXPECT_STREQ(error_name(CUDA_SUCCESS), "CUDA_SUCCESS");
  EXPECT_STREQ(error_name(CUDA_ERROR_ILLEGAL_ADDRESS), "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_STREQ(error_text(CUDA_ERROR_OUT_OF_MEMORY), "out of memory");
  EXPECT_STREQ(error_name(CUDA_ERROR_UNKNOWN), "CUDA_ERROR_UNKNOWN");
}

TEST(ErrorText, HasNoneForOtherNumbers) {
  EXPECT_EQ(error_name(static_cast<CUresult>(12345)), nullptr);
  EXPECT_EQ(error_text(static_cast<CUresult>(6000)), nullptr);
}

}  // namespace
}  // namespace flyt::cuda
