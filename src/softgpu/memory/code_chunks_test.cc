#include "softgpu/memory/code_chunks.h"

#include <gtest/gtest.h>

#include <cstring>

namespace flyt::softgpu {
namespace {

constexpr std::uint64_t kChunk = CodeChunks::kBytes;

TEST(CodeChunks, VariablesShareOneAndLargeOnesHaveTheirOwn) {
  DeviceMemory memory(32 * kMiB);
  CodeChunks chunks(memory, 16);
  ASSERT_TRUE(chunks.usable());
  const auto first = chunks.allocate(1000);
  const auto second = chunks.allocate(10);
  const auto large = chunks.allocate(kChunk + 1);
  const auto third = chunks.allocate(kChunk - 1280);
  ASSERT_TRUE(first && second && large && third);
  EXPECT_EQ(*first % kChunk, 0u);
  EXPECT_EQ(*second, *first + 1024);
  EXPECT_EQ(*large % kChunk, 0u);
  EXPECT_EQ(*third, *second + 256);
  EXPECT_EQ(memory.used(), 3 * kChunk);
  chunks.release(*large);
  EXPECT_EQ(memory.used(), kChunk);
}

TEST(CodeChunks, AnEmptyOneIsFreeAndZeroAgain) {
  DeviceMemory memory(32 * kMiB);
  CodeChunks chunks(memory, 4);
  const auto first = chunks.allocate(1000);
  const auto second = chunks.allocate(1000);
  ASSERT_TRUE(first && second);
  std::memset(pointer_at(*first), 1, 1000);
  chunks.release(*first);
  EXPECT_EQ(memory.used(), kChunk);
  chunks.release(*second);
  EXPECT_EQ(memory.used(), 0u);
  const auto again = chunks.allocate(kChunk);
  ASSERT_EQ(again, first);
  EXPECT_EQ(*static_cast<const char*>(pointer_at(*again)), 0);
}

TEST(CodeChunks, AreBounded) {
  DeviceMemory memory(32 * kMiB);
  CodeChunks chunks(memory, 2);
  EXPECT_FALSE(chunks.allocate(0));
  EXPECT_FALSE(chunks.allocate(~std::uint64_t{0}));
  EXPECT_FALSE(chunks.allocate(2 * kChunk + 1));
  ASSERT_TRUE(chunks.allocate(kChunk));
  ASSERT_TRUE(chunks.allocate(kChunk));
  EXPECT_FALSE(chunks.allocate(1));
  EXPECT_EQ(memory.used(), 2 * kChunk);

  DeviceMemory small(kChunk);
  CodeChunks more(small, 4);
  ASSERT_TRUE(more.allocate(1));
  EXPECT_FALSE(more.allocate(kChunk));
  EXPECT_EQ(small.used(), kChunk);
  EXPECT_FALSE(CodeChunks(memory, 0).usable());
}

}  // namespace
}  // namespace flyt::softgpu
