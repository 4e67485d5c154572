// VirtualMemory: what a hostile client may name is refused before the driver sees it.
#include "server/memory/virtual_memory.h"

#include <gtest/gtest.h>

#include "wire/handle.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kBase = 0x340000000000;
constexpr std::uint64_t kBlock = Arena::kBlockBytes;
constexpr std::uint64_t kGood = wire::Handle::make(wire::HandleKind::kMemAllocation, 1, 1).value;

// The table is empty: a call that reached the driver would end the test.
class VirtualMemoryTest : public ::testing::Test {
 protected:
  driver::Table driver;
  Regions regions;
  VirtualMemory memory{driver, regions, {kBase, 64 * kBlock}};
  std::uint64_t block_id = 0;
};

TEST_F(VirtualMemoryTest, RefusesHandlesOfOtherKindsAndGarbage) {
  const auto stream = wire::Handle::make(wire::HandleKind::kStream, 1, 1).value;
  for (const std::uint64_t handle : {std::uint64_t{0}, std::uint64_t{12345}, stream}) {
    EXPECT_EQ(memory.create(handle, kBlock, 0, block_id), CUDA_ERROR_INVALID_HANDLE);
  }
}

TEST_F(VirtualMemoryTest, RefusesSizesThatAreNoBlocks) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, kBlock + 1, ~std::uint64_t{0}}) {
    EXPECT_EQ(memory.create(kGood, bytes, 0, block_id), CUDA_ERROR_INVALID_VALUE);
  }
}

TEST_F(VirtualMemoryTest, RefusesWhatWasNeverCreatedOrMapped) {
  EXPECT_EQ(memory.release(kGood), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory.map(kBase, kBlock, kGood), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory.unmap(kBase, kBlock), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory.unmap(0, ~std::uint64_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(memory.set_access(kBase, kBlock, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemoryTest, WithoutAWindowNothingIsSupported) {
  VirtualMemory none(driver, regions, {});
  EXPECT_FALSE(none.supported());
  EXPECT_EQ(none.create(kGood, kBlock, 0, block_id), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace flyt::server
