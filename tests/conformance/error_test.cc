// Error names and texts.
#include "tests/conformance/fixture.h"

namespace flyt::conformance {
namespace {

using ErrorTest = DriverTest;

constexpr CUresult kKnown[] = {
    CUDA_SUCCESS,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_DEINITIALIZED,
    CUDA_ERROR_NO_DEVICE,
    CUDA_ERROR_INVALID_DEVICE,
    CUDA_ERROR_INVALID_IMAGE,
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_INVALID_SOURCE,
    CUDA_ERROR_FILE_NOT_FOUND,
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    CUDA_ERROR_NOT_PERMITTED,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    CUDA_ERROR_UNKNOWN,
};

TEST_F(ErrorTest, EveryKnownResultHasItsName) {
  for (const CUresult result : kKnown) {
    const char* name = nullptr;
    CU_IS(CUDA_SUCCESS, cu().cuGetErrorName(result, &name));
    ASSERT_NE(nullptr, name) << name_of(result);
    EXPECT_EQ(name_of(result), name);
  }
}

TEST_F(ErrorTest, EveryKnownResultHasAText) {
  for (const CUresult result : kKnown) {
    const char* text = nullptr;
    CU_IS(CUDA_SUCCESS, cu().cuGetErrorString(result, &text));
    ASSERT_NE(nullptr, text) << name_of(result);
    EXPECT_NE('\0', *text) << name_of(result);
  }
}

TEST_F(ErrorTest, WellKnownTextsReadAsPeopleKnowThem) {
  const char* text = nullptr;
  CU_IS(CUDA_SUCCESS, cu().cuGetErrorString(CUDA_SUCCESS, &text));
  EXPECT_STREQ("no error", text);
  CU_IS(CUDA_SUCCESS, cu().cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text));
  EXPECT_STREQ("invalid argument", text);
  CU_IS(CUDA_SUCCESS, cu().cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  EXPECT_STREQ("out of memory", text);
}

TEST_F(ErrorTest, AnUnknownResultGivesInvalidValueAndNull) {
  const char* text = "untouched";
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetErrorName(static_cast<CUresult>(123456), &text));
  EXPECT_EQ(nullptr, text);
  text = "untouched";
  CU_IS(CUDA_ERROR_INVALID_VALUE, cu().cuGetErrorString(static_cast<CUresult>(123456), &text));
  EXPECT_EQ(nullptr, text);
}

}  // namespace
}  // namespace flyt::conformance
