// MemoryMap: what an address is, to the byte.
#include "client/memory/memory_map.h"

#include <gtest/gtest.h>

namespace flyt::client {
namespace {

using Place = MemoryMap::Place;

Memory memory(MemoryKind kind, std::uint64_t base, std::uint64_t bytes) {
  Memory made;
  made.kind = kind;
  made.base = base;
  made.bytes = bytes;
  return made;
}

TEST(MemoryMap, FindsARangeFromItsFirstToItsLastByte) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x1000, 1000)));
  EXPECT_FALSE(map.find(0xfff).has_value());
  EXPECT_EQ(map.find(0x1000)->base, 0x1000U);
  EXPECT_EQ(map.find(0x1000 + 999)->base, 0x1000U);
  EXPECT_FALSE(map.find(0x1000 + 1000).has_value());
}

TEST(MemoryMap, RefusesRangesThatOverlapWrapOrAreEmpty) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kRegistered, 0x1000, 0x1000)));
  EXPECT_FALSE(map.add(memory(MemoryKind::kRegistered, 0x1fff, 1)));
  EXPECT_FALSE(map.add(memory(MemoryKind::kRegistered, 0x800, 0x801)));
  EXPECT_FALSE(map.add(memory(MemoryKind::kRegistered, 0x800, 0x8000)));
  EXPECT_FALSE(map.add(memory(MemoryKind::kRegistered, 0x5000, 0)));
  EXPECT_FALSE(map.add(memory(MemoryKind::kRegistered, ~0ULL - 10, 100)));
  EXPECT_TRUE(map.add(memory(MemoryKind::kRegistered, 0x2000, 1)));
  EXPECT_TRUE(map.add(memory(MemoryKind::kRegistered, 0x800, 0x800)));
}

TEST(MemoryMap, RemovesOnlyAtTheStartAndOnlyTheKindsNamed) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kPinned, 0x1000, 64)));
  EXPECT_FALSE(map.remove(0x1001, MemoryKind::kPinned).has_value());
  EXPECT_FALSE(map.remove(0x1000, MemoryKind::kDevice, MemoryKind::kPool).has_value());
  EXPECT_TRUE(map.remove(0x1000, MemoryKind::kDevice, MemoryKind::kPinned).has_value());
  EXPECT_FALSE(map.remove(0x1000, MemoryKind::kPinned).has_value());
}

TEST(MemoryMap, NeverUsesABufferIdTwice) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x1000, 64)));
  const std::uint64_t first = map.find(0x1000)->buffer_id;
  map.remove(0x1000, MemoryKind::kDevice);
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x1000, 64)));
  EXPECT_NE(map.find(0x1000)->buffer_id, first);
}

TEST(MemoryMap, PlacesDeviceRangesToTheByte) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x1000, 1000)));
  EXPECT_EQ(map.place(0x1000, 1000).place, Place::kDevice);
  EXPECT_EQ(map.place(0x1000, 1001).place, Place::kBad);
  EXPECT_EQ(map.place(0x1000 + 990, ~0ULL).place, Place::kBad);
  EXPECT_EQ(map.place(0x100, 8).place, Place::kPageable);
}

TEST(MemoryMap, HostMemoryThatIsPinnedOnlyInPartIsPageableWithinItsPages) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kRegistered, 0x1000, 100)));
  EXPECT_EQ(map.place(0x1000, 100).place, Place::kPinned);
  EXPECT_EQ(map.place(0x1000, 101).place, Place::kPageable);
  EXPECT_EQ(map.place(0x1001, 0xfff).place, Place::kPageable);
  EXPECT_EQ(map.place(0x1001, 0x1000).place, Place::kBeyond);
  EXPECT_EQ(map.place(0x1001, ~0ULL).place, Place::kBeyond);
}

TEST(MemoryMap, AdjacentMappingsCountAsOneAndInaccessibleOnesAreBad) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kMapped, 0x200000, 0x200000)));
  ASSERT_TRUE(map.add(memory(MemoryKind::kMapped, 0x400000, 0x200000)));
  EXPECT_EQ(map.place(0x200000, 0x400000).place, Place::kDevice);
  EXPECT_EQ(map.place(0x200000, 0x400001).place, Place::kBad);
  map.update(0x400000, [](Memory& mapping) { mapping.access = 0; });
  EXPECT_EQ(map.place(0x200000, 0x200001).place, Place::kBad);
  EXPECT_EQ(map.place(0x400000, 1).place, Place::kBad);
  EXPECT_EQ(map.place(0x200000, 0x200000).place, Place::kDevice);
}

TEST(MemoryMap, AdjacentAllocationsStaySeparate) {
  MemoryMap map;
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x1000, 512)));
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x1200, 512)));
  EXPECT_EQ(map.place(0x1000, 513).place, Place::kBad);
}

TEST(MemoryMap, DropsWhatADyingContextOwned) {
  MemoryMap map;
  Memory owned = memory(MemoryKind::kDevice, 0x1000, 64);
  owned.context = 7;
  ASSERT_TRUE(map.add(owned));
  ASSERT_TRUE(map.add(memory(MemoryKind::kDevice, 0x2000, 64)));
  EXPECT_EQ(map.remove_owned_by(7).size(), 1U);
  EXPECT_FALSE(map.find(0x1000).has_value());
  EXPECT_TRUE(map.find(0x2000).has_value());
}

}  // namespace
}  // namespace flyt::client
