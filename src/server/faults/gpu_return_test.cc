#include "server/faults/gpu_return.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

TEST(GpuReturn, WaitsForTheMemoryOfWhoHasEnded) {
  const auto board = UsageBoard::create(2);
  ASSERT_TRUE(board.ok());
  const std::size_t leaving = (*board)->claim();
  take_usage_slot((*board)->slot((*board)->claim()));
  ASSERT_TRUE((*board)->slot(leaving).reserve(0, 100));
  int asked = 0;
  const auto make = [&] {
    if (++asked == 3) (*board)->release(leaving);
    return asked > 3 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  // It has all of it, and stays.
  EXPECT_EQ(once_gpu_is_back(make), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(asked, 1);
  (*board)->slot(leaving).leave();
  EXPECT_EQ(once_gpu_is_back(make), CUDA_SUCCESS);
  EXPECT_EQ(asked, 4);
  take_usage_slot(UsageSlot());
}

}  // namespace
}  // namespace flyt::server
