// Arena: exact sizes, exact errors, no memory used twice, and no lock held while the driver maps.
#include "server/memory/arena.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/random.h"

namespace flyt::server {
namespace {

constexpr std::uint64_t kBase = 0x300000000000;

// Memory that is only counted.
class CountingSource final : public BlockSource {
 public:
  explicit CountingSource(std::uint64_t bytes_max, bool fixed = true)
      : bytes_max_(bytes_max), fixed_(fixed) {}

  bool fixed_addresses() const override { return fixed_; }
  CUresult map(Block& block) override {
    if (during_map) during_map();
    const Lock lock(mutex_);
    if (block.bytes > bytes_max_ - mapped_) return CUDA_ERROR_OUT_OF_MEMORY;
    if (!fixed_) {
      block.address = next_;
      next_ += block.bytes + 4096;
    }
    block.handle = fixed_ ? 7 : 0;
    mapped_ += block.bytes;
    ++maps_;
    EXPECT_TRUE(at_.emplace(block.address, block.bytes).second);
    return CUDA_SUCCESS;
  }
  void unmap(const Block& block) override {
    const Lock lock(mutex_);
    EXPECT_EQ(at_.erase(block.address), 1U);
    mapped_ -= block.bytes;
  }

  // What another process had there.
  void adopt(const Block& block) {
    const Lock lock(mutex_);
    mapped_ += block.bytes;
    at_.emplace(block.address, block.bytes);
  }
  // As a dying context does.
  void forget(std::uint64_t address) {
    const Lock lock(mutex_);
    mapped_ -= at_.at(address);
    at_.erase(address);
  }

  std::uint64_t mapped() {
    const Lock lock(mutex_);
    return mapped_;
  }
  int maps() {
    const Lock lock(mutex_);
    return maps_;
  }
  std::function<void()> during_map;

 private:
  const std::uint64_t bytes_max_;
  const bool fixed_;
  Mutex mutex_;
  std::uint64_t mapped_ = 0;
  std::uint64_t next_ = 0x7f0000000000;
  int maps_ = 0;
  std::map<std::uint64_t, std::uint64_t> at_;
};

class ArenaTest : public ::testing::Test {
 protected:
  std::uint64_t allocate(std::uint64_t bytes, CUresult expected = CUDA_SUCCESS) {
    Arena::Allocation allocation;
    EXPECT_EQ(arena.allocate({0, bytes, 1}, allocation), expected);
    return allocation.address;
  }
  void free(std::uint64_t address) {
    const auto retired = arena.retire(address);
    ASSERT_TRUE(retired.has_value());
    arena.recycle(*retired);
  }

  CountingSource source{256 * kMiB};
  Regions regions;
  Arena arena{source, regions, {kBase, 1024 * kGiB}};
};

TEST_F(ArenaTest, StartsAtTheBaseOfItsWindowAndAlignsTo512Bytes) {
  EXPECT_EQ(allocate(1), kBase);
  EXPECT_EQ(allocate(1), kBase + 512);
  EXPECT_EQ(allocate(513), kBase + 1024);
  EXPECT_EQ(allocate(1), kBase + 2048);
  EXPECT_EQ(source.maps(), 1);
}

TEST_F(ArenaTest, RefusesZeroBytes) { allocate(0, CUDA_ERROR_INVALID_VALUE); }

TEST_F(ArenaTest, SizesThatWouldWrapAreOutOfMemory) {
  allocate(~std::uint64_t{0}, CUDA_ERROR_OUT_OF_MEMORY);
  allocate(~std::uint64_t{0} - Arena::kBlockBytes + 1, CUDA_ERROR_OUT_OF_MEMORY);
  allocate(std::uint64_t{1} << 46, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(allocate(16), kBase);
}

TEST_F(ArenaTest, OutOfMemoryLeavesEverythingAsItWas) {
  allocate(200 * kMiB);
  allocate(100 * kMiB, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(source.mapped(), 200 * kMiB);
  EXPECT_EQ(allocate(50 * kMiB), kBase + 200 * kMiB);
}

TEST_F(ArenaTest, AnAddressCanBeRetiredOnceAndOnlyAtItsStart) {
  const std::uint64_t address = allocate(1000);
  EXPECT_FALSE(arena.retire(address + 1).has_value());
  EXPECT_TRUE(arena.retire(address).has_value());
  EXPECT_FALSE(arena.retire(address).has_value());
  EXPECT_FALSE(arena.retire(0x1234).has_value());
}

TEST_F(ArenaTest, FindsTheAllocationAroundAnAddressToTheByte) {
  const std::uint64_t address = allocate(1000);
  EXPECT_EQ(arena.find(address + 999)->address, address);
  EXPECT_FALSE(arena.find(address + 1000).has_value());
  EXPECT_FALSE(arena.find(address - 1).has_value());
  EXPECT_FALSE(arena.find(0).has_value());
}

TEST_F(ArenaTest, RetiredMemoryIsNotGivenOutBeforeItIsRecycled) {
  const std::uint64_t address = allocate(4096);
  const auto retired = arena.retire(address);
  EXPECT_NE(allocate(4096), address);
  arena.recycle(*retired);
  EXPECT_EQ(allocate(4096), address);
}

TEST_F(ArenaTest, IdleBlocksServeTheNextAllocationWithoutTheDriver) {
  const std::uint64_t address = allocate(8 * kMiB);
  free(address);
  EXPECT_EQ(arena.take({0, 8 * kMiB - 5, 1})->address, address);
  EXPECT_EQ(source.maps(), 1);
}

TEST_F(ArenaTest, KeepsNoMoreIdleMemoryThanItsLimitAndTrimsIt) {
  const std::uint64_t large = allocate(100 * kMiB);
  const std::uint64_t small = allocate(10 * kMiB);
  free(large);
  EXPECT_EQ(source.mapped(), 10 * kMiB);
  free(small);
  EXPECT_EQ(source.mapped(), 10 * kMiB);
  EXPECT_EQ(arena.usage(0).idle_bytes, 10 * kMiB);
  EXPECT_EQ(arena.trim(0), 10 * kMiB);
  EXPECT_EQ(source.mapped(), 0U);
  EXPECT_EQ(arena.usage(0).mapped_bytes, 0U);
}

TEST_F(ArenaTest, MemoryThatWaitsForTheGpuCountsAsIdle) {
  const std::uint64_t address = allocate(6 * kMiB);
  EXPECT_EQ(arena.usage(0).idle_bytes, 0U);
  EXPECT_EQ(arena.usage(0).allocated_bytes, 6 * kMiB);
  ASSERT_TRUE(arena.retire(address).has_value());
  EXPECT_EQ(arena.usage(0).idle_bytes, 6 * kMiB);
  EXPECT_EQ(arena.usage(0).allocated_bytes, 0U);
}

TEST_F(ArenaTest, RegionsCoverMappedBlocksAndNothingElse) {
  const std::uint64_t address = allocate(3 * kMiB);
  EXPECT_TRUE(regions.allowed(address, 4 * kMiB));
  EXPECT_FALSE(regions.allowed(address, 4 * kMiB + 1));
  free(address);
  arena.trim(0);
  EXPECT_FALSE(regions.allowed(address, 1));
}

TEST_F(ArenaTest, AContextsMemoryDiesWithItAndItsBlocksStay) {
  Arena::Allocation allocation;
  ASSERT_EQ(arena.allocate({0, 16, 5, 5}, allocation), CUDA_SUCCESS);
  const std::uint64_t other = allocate(16);
  EXPECT_TRUE(arena.drop_context(5).empty());
  EXPECT_FALSE(arena.find(allocation.address).has_value());
  EXPECT_TRUE(arena.find(other).has_value());
  EXPECT_EQ(allocate(16), allocation.address);
}

TEST_F(ArenaTest, DevicesShareNoBlocks) {
  Arena::Allocation first;
  Arena::Allocation second;
  ASSERT_EQ(arena.allocate({0, 16, 1}, first), CUDA_SUCCESS);
  ASSERT_EQ(arena.allocate({1, 16, 1}, second), CUDA_SUCCESS);
  EXPECT_NE(first.block_address, second.block_address);
  EXPECT_EQ(arena.usage(1).mapped_bytes, Arena::kBlockBytes);
}

TEST_F(ArenaTest, AnswersOthersWhileTheDriverMaps) {
  const std::uint64_t address = allocate(64);
  std::optional<Arena::Allocation> taken;
  bool found = false;
  source.during_map = [&] {
    std::thread other([&] {
      taken = arena.take({0, 64, 1});
      found = arena.find(address).has_value();
    });
    other.join();
  };
  allocate(4 * kMiB);
  EXPECT_TRUE(taken.has_value());
  EXPECT_TRUE(found);
}

TEST(Arena, TakesWhateverAddressesADriverWithoutVmmChooses) {
  CountingSource source(64 * kMiB, false);
  Regions regions;
  Arena arena(source, regions, {});
  Arena::Allocation first;
  Arena::Allocation second;
  ASSERT_EQ(arena.allocate({0, 100, 1}, first), CUDA_SUCCESS);
  ASSERT_EQ(arena.allocate({0, 5 * kMiB, 1}, second), CUDA_SUCCESS);
  EXPECT_TRUE(regions.allowed(first.address, 100));
  EXPECT_TRUE(regions.allowed(second.address, 5 * kMiB));
  EXPECT_EQ(arena.find(second.address + 5)->address, second.address);
}

TEST(Arena, BlocksThatTheDriverTakesBackWithAContextAreForgotten) {
  CountingSource source(256 * kMiB, false);
  Regions regions;
  Arena arena(source, regions, {});
  Arena::Allocation small;
  Arena::Allocation chunk;
  Arena::Allocation other;
  ASSERT_EQ(arena.allocate({0, 100, 5, 5}, small), CUDA_SUCCESS);
  ASSERT_EQ(arena.allocate({0, 4 * kMiB, Arena::kPoolOwner, 5}, chunk), CUDA_SUCCESS);
  ASSERT_EQ(arena.allocate({0, 100, 6, 6}, other), CUDA_SUCCESS);
  EXPECT_NE(other.block_address, small.block_address);
  const auto retired = arena.retire(small.address);
  const auto lost = arena.drop_context(5);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].address, chunk.address);
  EXPECT_FALSE(regions.allowed(small.address, 1));
  arena.recycle(*retired);
  EXPECT_TRUE(arena.find(other.address).has_value());
  source.forget(small.block_address);
  source.forget(chunk.block_address);
}

TEST(Arena, RandomUseNeverOverlapsAndGivesEverythingBack) {
  constexpr std::uint64_t kSeed = 42;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  CountingSource source(128 * kMiB);
  Regions regions;
  Arena arena(source, regions, {kBase, 256 * kMiB});
  std::map<std::uint64_t, Arena::Allocation> held;
  for (int step = 0; step < 20000; ++step) {
    if (!held.empty() && random.one_in(2)) {
      const auto at = std::next(held.begin(), static_cast<long>(random.below(held.size())));
      arena.recycle(*arena.retire(at->first));
      held.erase(at);
      continue;
    }
    const std::uint64_t bytes = 1 + random.below(random.one_in(10) ? 9 * kMiB : 40 * kKiB);
    Arena::Allocation allocation;
    if (arena.allocate({0, bytes, 1}, allocation) != CUDA_SUCCESS) continue;
    const auto after = held.lower_bound(allocation.address);
    if (after != held.end()) {
      ASSERT_LE(allocation.address + bytes, after->first);
    }
    if (after != held.begin()) {
      const Arena::Allocation& before = std::prev(after)->second;
      ASSERT_LE(before.address + before.bytes, allocation.address);
    }
    held.emplace(allocation.address, allocation);
  }
  for (const auto& [address, allocation] : held) arena.recycle(*arena.retire(address));
  EXPECT_LE(source.mapped(), Arena::kIdleBytesMax);
  arena.trim(0);
  EXPECT_EQ(source.mapped(), 0U);
}

// Memory of another process of the session.
TEST_F(ArenaTest, RestoresAllocationsWhereTheyWere) {
  Block slab{.address = kBase + 4 * kMiB, .bytes = 2 * kMiB, .handle = 7, .slab = true};
  Block large{.address = kBase + 10 * kMiB, .bytes = 6 * kMiB, .handle = 8};
  source.adopt(slab);
  source.adopt(large);
  ASSERT_TRUE(arena.adopt(slab));
  ASSERT_TRUE(arena.adopt(large));
  EXPECT_FALSE(arena.adopt(slab));
  EXPECT_FALSE(arena.adopt({.address = kBase + 14 * kMiB, .bytes = 4 * kMiB}));
  const auto second = arena.restore(slab.address + 1024, {0, 1000, 1});
  const auto first = arena.restore(slab.address, {0, 512, 1});
  const auto whole = arena.restore(large.address, {0, 5 * kMiB, 1});
  ASSERT_TRUE(first && second && whole);
  EXPECT_EQ(second->address, slab.address + 1024);
  EXPECT_EQ(second->block_address, slab.address);
  EXPECT_EQ(whole->block_bytes, large.bytes);
  EXPECT_EQ(arena.mapped_around(slab.address + slab.bytes - 1)->address, slab.address);
  EXPECT_FALSE(arena.mapped_around(kBase - 1));
  // What is in use, or was never there, is not restored.
  for (const std::uint64_t bad :
       {slab.address, slab.address + 512 + 8, slab.address + 1536, slab.address + 2 * kMiB - 512,
        large.address, large.address + 512, kBase, kBase + 7 * kMiB}) {
    EXPECT_FALSE(arena.restore(bad, {0, 1024, 1})) << bad - kBase;
  }
  EXPECT_FALSE(arena.restore(slab.address + 512, {1, 512, 1}));
  EXPECT_FALSE(arena.restore(slab.address + 512, {0, 0, 1}));
  EXPECT_FALSE(arena.restore(slab.address + 512, {0, ~std::uint64_t{0} - 100, 1}));
  EXPECT_TRUE(arena.restore(slab.address + 512, {0, 512, 1}));
  // New memory lies beside it.
  EXPECT_EQ(allocate(3 * kMiB), kBase);
}

// A session that goes on may be slow to ask for what it had, and its lease short of memory.
TEST_F(ArenaTest, WhatMayStillBeRestoredIsNotIdle) {
  Block slab{.address = kBase + 4 * kMiB, .bytes = 2 * kMiB, .handle = 7, .slab = true};
  Block large{.address = kBase + 10 * kMiB, .bytes = 6 * kMiB, .handle = 8};
  Block never{.address = kBase + 20 * kMiB, .bytes = 6 * kMiB, .handle = 9};
  for (const Block& block : {slab, large, never}) {
    source.adopt(block);
    ASSERT_TRUE(arena.adopt(block));
  }
  EXPECT_EQ(arena.trim(0), 0u);
  EXPECT_NE(allocate(512), slab.address);
  EXPECT_NE(allocate(6 * kMiB), large.address);
  EXPECT_TRUE(arena.restore(slab.address, {0, 512, 1}));
  EXPECT_TRUE(arena.restore(large.address, {0, 6 * kMiB, 1}));
  arena.end_restoring();
  EXPECT_EQ(arena.trim(0), never.bytes);
}

}  // namespace
}  // namespace flyt::server
