#include "softgpu/memory/device_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/bytes.h"

namespace flyt::softgpu {
namespace {

TEST(DeviceMemory, IsBoundedAndComesBack) {
  DeviceMemory memory(1 * kMiB);
  ASSERT_TRUE(memory.usable());
  const auto first = memory.allocate(600 * kKiB);
  ASSERT_TRUE(first);
  EXPECT_EQ(*first % kAllocationAlign, 0u);
  std::memset(pointer_at(*first), 1, 600 * kKiB);
  EXPECT_FALSE(memory.allocate(600 * kKiB));
  memory.release(*first, 600 * kKiB);
  EXPECT_EQ(memory.used(), 0u);
  EXPECT_TRUE(memory.allocate(1 * kMiB));
}

TEST(DeviceMemory, RefusesSizesThatOverflow) {
  DeviceMemory memory(1 * kMiB);
  EXPECT_FALSE(memory.allocate(~std::uint64_t{0}));
  EXPECT_FALSE(memory.allocate(0));
  EXPECT_EQ(allocation_bytes(1), kAllocationAlign);
  EXPECT_EQ(memory.used(), 0u);
}

TEST(DeviceMemory, ChargesWithoutAddresses) {
  DeviceMemory memory(1 * kMiB);
  EXPECT_TRUE(memory.charge(1 * kMiB));
  EXPECT_FALSE(memory.allocate(1));
  memory.uncharge(1 * kMiB);
  EXPECT_TRUE(memory.allocate(1));
}

}  // namespace
}  // namespace flyt::softgpu
