// What a server looks for in device memory is found, and nothing else.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "driver/load.h"
#include "server/memory/memory_search.h"
#include "server/memory/virtual_memory.h"
#include "wire/handle.h"

#include "tests/support/server_process.h"

namespace flyt::tests {
namespace {

const driver::Table& soft() {
  static const auto loaded = driver::load(built_library("libflyt-softgpu.so"));
  return loaded->table;
}

class SearchTest : public ::testing::Test {
 protected:
  SearchTest() {
    CUcontext context = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, soft().cuInit(0));
    EXPECT_EQ(CUDA_SUCCESS, soft().cuDevicePrimaryCtxRetain(&context, 0));
    EXPECT_EQ(CUDA_SUCCESS, soft().cuCtxSetCurrent(context));
    EXPECT_EQ(CUDA_SUCCESS, soft().cuMemAlloc_v2(&memory_, kBytes));
    EXPECT_EQ(CUDA_SUCCESS, soft().cuMemsetD8_v2(memory_, 0, kBytes));
  }
  ~SearchTest() override {
    soft().cuMemFree_v2(memory_);
    soft().cuDevicePrimaryCtxRelease_v2(0);
  }
  void put(std::uint64_t offset, std::uint64_t word) const {
    ASSERT_EQ(CUDA_SUCCESS, soft().cuMemcpyHtoD_v2(memory_ + offset, &word, sizeof word));
  }
  std::uint64_t found(const std::vector<server::AddressRange>& ranges, std::uint64_t offset,
                      std::uint64_t bytes) const {
    server::MemorySearch search(soft());
    EXPECT_TRUE(search.begin(ranges).ok());
    EXPECT_TRUE(search.look(memory_ + offset, bytes).ok());
    const auto word = search.end();
    EXPECT_TRUE(word.ok());
    return word ? *word : ~std::uint64_t{0};
  }

  static constexpr std::uint64_t kBytes = 1 * kMiB;
  CUdeviceptr memory_ = 0;
};

TEST_F(SearchTest, FindsAWordWhereverItIs) {
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{8 * 4711}, kBytes - 8}) {
    put(offset, 0x7f0000001234);
    EXPECT_EQ(0x7f0000001234U, found({{0x7f0000001000, 0x7f0000002000}}, 0, kBytes)) << offset;
    put(offset, 0);
  }
  EXPECT_EQ(0U, found({{0x7f0000001000, 0x7f0000002000}}, 0, kBytes));
}

TEST_F(SearchTest, LooksAtNothingElse) {
  const std::vector<server::AddressRange> ranges = {{0x7f0000001000, 0x7f0000002000}};
  put(64, 0x7f0000001000);
  put(128, 0x7f0000001000);
  EXPECT_EQ(0U, found(ranges, 72, 128 - 72));
  // Part of a word at either end.
  EXPECT_EQ(0U, found(ranges, 65, 128 - 65));
  EXPECT_EQ(0U, found(ranges, 72, 135 - 72));
  EXPECT_EQ(0U, found(ranges, 65, 3));
  EXPECT_EQ(0U, found(ranges, 64, 0));
  EXPECT_EQ(0x7f0000001000U, found(ranges, 64, 8));
  // Not aligned, as no address in memory is.
  put(64, 0);
  put(128, 0);
  put(65, 0x7f0000001000);
  EXPECT_EQ(0U, found(ranges, 0, kBytes));
}

TEST_F(SearchTest, KnowsManyRangesWithBothEnds) {
  std::vector<server::AddressRange> ranges;
  for (std::uint64_t i = 1; i <= 1001; ++i) ranges.push_back({i * 0x1000, i * 0x1000 + i});
  for (const std::uint64_t i : {1, 2, 500, 777, 1000, 1001}) {
    for (const std::uint64_t word : {i * 0x1000, i * 0x1000 + i}) {
      put(800, word);
      EXPECT_EQ(word, found(ranges, 0, 4096));
    }
    for (const std::uint64_t word : {i * 0x1000 - 1, i * 0x1000 + i + 1}) {
      put(800, word);
      EXPECT_EQ(0U, found(ranges, 0, 4096)) << word;
    }
  }
  put(800, ~std::uint64_t{0});
  EXPECT_EQ(0U, found(ranges, 0, 4096));
}

TEST_F(SearchTest, LooksThroughMoreThanOneLaunchDoes) {
  const std::uint64_t bytes = server::MemorySearch::kLaunchBytes + 8;
  CUdeviceptr large = 0;
  ASSERT_EQ(CUDA_SUCCESS, soft().cuMemAlloc_v2(&large, bytes));
  ASSERT_EQ(CUDA_SUCCESS, soft().cuMemsetD8_v2(large, 0, bytes));
  const std::uint64_t word = 0x7f0000001000;
  ASSERT_EQ(CUDA_SUCCESS, soft().cuMemcpyHtoD_v2(large + bytes - 8, &word, sizeof word));
  EXPECT_EQ(word, found({{word, word}}, large - memory_, bytes));
  soft().cuMemFree_v2(large);
}

TEST_F(SearchTest, SaysSoWhereMemoryIsNone) {
  server::MemorySearch search(soft());
  const std::vector<server::AddressRange> ranges = {{1, 2}};
  ASSERT_TRUE(search.begin(ranges).ok());
  // The fault leaves its process no GPU.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(search.look(64, 8).ok() && !search.end().ok() ? 0 : 1),
              ::testing::ExitedWithCode(0), "");
}

std::uint64_t access_of(CUdeviceptr address) {
  unsigned long long flags = 0;
  const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_EQ(CUDA_SUCCESS, soft().cuMemGetAccess(&flags, &device, address));
  return flags;
}

TEST_F(SearchTest, ReachesMemoryThatTheProgramDoesNotForThatTimeOnly) {
  constexpr std::uint64_t kBlock = server::Arena::kBlockBytes;
  const auto handle = [](std::uint32_t index) {
    return wire::Handle::make(wire::HandleKind::kMemAllocation, index, 1).value;
  };
  CUdeviceptr window = 0;
  ASSERT_EQ(CUDA_SUCCESS, soft().cuMemAddressReserve(&window, 4 * kBlock, kBlock, 0, 0));
  server::Regions regions;
  server::VirtualMemory memory(soft(), regions, {window, 4 * kBlock});
  std::uint64_t id = 0;
  // Opened, closed, mapped nowhere, and closed without a handle.
  for (std::uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(CUDA_SUCCESS, memory.create(handle(i + 1), kBlock, 0, id));
    if (i == 2) continue;
    ASSERT_EQ(CUDA_SUCCESS, memory.map(window + i * kBlock, kBlock, handle(i + 1)));
  }
  const auto open = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  ASSERT_EQ(CUDA_SUCCESS, memory.set_access(window, kBlock, 0, open));
  ASSERT_EQ(CUDA_SUCCESS, memory.release(handle(4)));
  std::size_t free = 0;
  std::size_t free_then = 0;
  std::size_t total = 0;
  ASSERT_EQ(CUDA_SUCCESS, soft().cuMemGetInfo_v2(&free, &total));
  CUdeviceptr elsewhere = 0;
  {
    const server::VirtualMemory::Reached reached(memory);
    EXPECT_TRUE(reached.all());
    ASSERT_EQ(4U, reached.places().size());
    for (const auto& place : reached.places()) {
      EXPECT_EQ(kBlock, place.bytes);
      EXPECT_EQ(static_cast<std::uint64_t>(open), access_of(place.address));
      EXPECT_EQ(CUDA_SUCCESS, soft().cuMemsetD8_v2(place.address, 1, place.bytes));
      const bool own = place.address >= window && place.address < window + 4 * kBlock;
      if (!own) elsewhere = place.address;
    }
    EXPECT_NE(0U, elsewhere);
    // Nobody waits for a memset of device memory.
    EXPECT_EQ(CUDA_SUCCESS, soft().cuCtxSynchronize());
  }
  EXPECT_EQ(static_cast<std::uint64_t>(open), access_of(window));
  EXPECT_EQ(0U, access_of(window + kBlock));
  EXPECT_EQ(0U, access_of(window + 3 * kBlock));
  EXPECT_NE(CUDA_SUCCESS, soft().cuMemsetD8_v2(elsewhere, 1, kBlock));
  ASSERT_EQ(CUDA_SUCCESS, soft().cuMemGetInfo_v2(&free_then, &total));
  EXPECT_EQ(free, free_then);
  // What is mapped nowhere can be mapped by the program as before.
  EXPECT_EQ(CUDA_SUCCESS, memory.map(window + 2 * kBlock, kBlock, handle(3)));
}

TEST_F(SearchTest, SaysSoWhereMemoryCannotBeReached) {
  driver::Table refuses = soft();
  refuses.cuMemAddressReserve = [](CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr,
                                   unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  server::Regions regions;
  server::VirtualMemory memory(refuses, regions, {0x340000000000, 4 * server::Arena::kBlockBytes});
  std::uint64_t id = 0;
  const auto handle = wire::Handle::make(wire::HandleKind::kMemAllocation, 1, 1).value;
  ASSERT_EQ(CUDA_SUCCESS, memory.create(handle, server::Arena::kBlockBytes, 0, id));
  const server::VirtualMemory::Reached reached(memory);
  EXPECT_FALSE(reached.all());
  EXPECT_TRUE(reached.places().empty());
}

}  // namespace
}  // namespace flyt::tests
