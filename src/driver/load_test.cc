#include "driver/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace flyt::driver {
namespace {

TEST(Load, FindsEveryFunctionThatTheLibraryHas) {
  Result<Driver> driver = load(FLYT_TEST_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  int version = 0;
  EXPECT_EQ(driver->table.cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, 4711);
}

TEST(Load, RefusesAFunctionThatTheLibraryLacksWhenItIsCalled) {
  Result<Driver> driver = load(FLYT_TEST_DRIVER);
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  EXPECT_EQ(driver->table.cuGraphLaunch(nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_NE(std::find(driver->missing.begin(), driver->missing.end(), "cuGraphLaunch"),
            driver->missing.end());
}

TEST(Load, SaysWhichFunctionMakesALibraryNoDriver) {
  const Result<Driver> driver = load("libm.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(driver.error().message.find("cuInit"), std::string::npos) << driver.error().message;
}

TEST(Load, RefusesFlytsOwnClientLibrary) {
  const Result<Driver> driver = load(FLYT_TEST_CLIENT);
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kDenied);
}

TEST(Load, KnowsTheSoftwareGpuWhateverItsPath) {
  const Result<Driver> other = load(FLYT_TEST_DRIVER);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_FALSE(other->soft);
  const Result<Driver> soft = load(FLYT_TEST_SOFT);
  ASSERT_TRUE(soft.ok()) << soft.error().message;
  EXPECT_TRUE(soft->soft);
}

TEST(Load, PassesOnTheLoadersReason) {
  const Result<Driver> driver = load("/nonexistent/libcuda.so.1");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
  EXPECT_NE(driver.error().message.find("/nonexistent/libcuda.so.1"), std::string::npos);
}

TEST(Load, AutoTriesTheLoadersOwnSearchLast) {
  EXPECT_EQ(default_driver_paths().back(), "libcuda.so.1");
}

}  // namespace
}  // namespace flyt::driver
