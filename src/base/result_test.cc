#include "base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace flyt {
namespace {

TEST(Result, CarriesAMoveOnlyValue) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 5);
}

TEST(Result, CarriesAnErrorAndStopsWhoAsksItForAValue) {
  const Result<int> result = Error{ErrorCode::kLimit, "too many"};
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "too many");
  EXPECT_DEATH(static_cast<void>(result.value()), "assertion failed");
}

TEST(SystemError, NamesTheSystemsReason) {
  EXPECT_EQ(system_error("open x", ENOENT).message, "open x: No such file or directory");
}

}  // namespace
}  // namespace flyt
