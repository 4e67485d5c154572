#include "wire/memory_changes.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace flyt::wire {
namespace {

constexpr std::uint64_t kAddress = 0x380000000000;

using Memory = std::vector<std::byte>;

Memory random_memory(Random& random, std::size_t bytes) {
  Memory memory(bytes);
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random.next());
  return memory;
}

// Applies all of `bytes` to what stands for kAddress; false if it is malformed or beyond it.
bool apply(Bytes bytes, Memory& memory) {
  MemoryChangesReader reader(bytes);
  MemoryChange change;
  while (reader.next(change)) {
    const std::uint64_t offset = change.address - kAddress;
    if (offset >= memory.size() || change.bytes > memory.size() - offset) return false;
    change.apply(memory.data() + offset);
  }
  return reader.ok();
}

// Sends what differs until nothing does.
void transfer(Memory& live, Memory& shadow, Memory& other) {
  MemoryChanges changes;
  std::uint64_t at = 0;
  while (at < live.size()) {
    changes.clear();
    at += changes.collect(kAddress + at, live.data() + at, shadow.data() + at, live.size() - at);
    ASSERT_LE(changes.bytes().size(), kMemoryChangesBytesMax);
    ASSERT_TRUE(apply(changes.bytes(), other));
  }
}

TEST(MemoryChanges, EqualMemoryHasNone) {
  Memory live(10'000);
  Memory shadow(10'000);
  MemoryChanges changes;
  EXPECT_EQ(10'000u, changes.collect(kAddress, live.data(), shadow.data(), live.size()));
  EXPECT_TRUE(changes.empty());
}

TEST(MemoryChanges, MakeTheOtherSideEqualHoweverMuchHasChanged) {
  const std::uint64_t seed = random_seed();
  SCOPED_TRACE(seed);
  Random random(seed);
  for (const std::uint64_t one_in : {1u, 2u, 7u, 100u, 5000u}) {
    Memory live = random_memory(random, 700'001);
    Memory shadow = live;
    Memory other = live;
    for (std::byte& byte : live) {
      if (random.one_in(one_in)) byte = static_cast<std::byte>(random.next());
    }
    transfer(live, shadow, other);
    EXPECT_TRUE(other == live) << one_in;
    EXPECT_TRUE(shadow == live) << one_in;
  }
}

TEST(MemoryChanges, LeaveBytesAloneThatOnlyTheOtherSideHasWritten) {
  Memory live(8192);
  Memory shadow(8192);
  Memory other(8192);
  for (std::size_t i = 0; i < live.size(); ++i) {
    (i % 2 == 0 ? live : other)[i] = std::byte{7};
  }
  transfer(live, shadow, other);
  EXPECT_TRUE(other == Memory(8192, std::byte{7}));
}

TEST(MemoryChanges, AreOneWhereFewEqualBytesAreBetweenThem) {
  for (const std::size_t begin : {0u, 1u, 62u, 63u, 64u, 100u, 1000u}) {
    for (const std::size_t equal : {1u, 63u, 127u, 128u, 129u, 200u}) {
      Memory live(4096);
      Memory shadow(4096);
      live[begin] = live[begin + 1 + equal] = std::byte{1};
      MemoryChanges changes;
      changes.collect(kAddress, live.data(), shadow.data(), live.size());
      MemoryChangesReader reader(changes.bytes());
      MemoryChange change;
      ASSERT_TRUE(reader.next(change));
      EXPECT_EQ(change.address, kAddress + begin);
      EXPECT_EQ(change.bytes, equal < 128 ? equal + 2 : 1u) << begin << " " << equal;
      EXPECT_EQ(reader.next(change), equal >= 128);
      EXPECT_TRUE(reader.ok());
    }
  }
}

TEST(MemoryChanges, AreRefusedWhenTheyAreTruncated) {
  Memory live(64, std::byte{1});
  Memory shadow(64);
  shadow[3] = std::byte{1};
  MemoryChanges changes;
  changes.collect(kAddress, live.data(), shadow.data(), live.size());
  const Bytes whole = changes.bytes();
  for (std::size_t size = 1; size < whole.size(); ++size) {
    Memory other(64);
    EXPECT_FALSE(apply(whole.first(size), other)) << size;
  }
}

TEST(MemoryChanges, AreRefusedWithASizeAKindOrAMaskThatCannotBe) {
  const auto refused = [](std::uint64_t address, std::uint32_t bytes, std::uint32_t kind,
                          std::vector<std::uint8_t> rest) {
    Memory message(16 + rest.size());
    Writer writer(message);
    writer.write(address);
    writer.write(bytes);
    writer.write(kind);
    for (const std::uint8_t byte : rest) writer.write(byte);
    MemoryChangesReader reader(message);
    MemoryChange change;
    return !reader.next(change) && !reader.ok();
  };
  EXPECT_FALSE(refused(kAddress, 1, 0, {5}));
  EXPECT_FALSE(refused(kAddress, 3, 1, {0b101, 5, 6}));
  EXPECT_TRUE(refused(kAddress, 0, 0, {}));
  EXPECT_TRUE(refused(kAddress, 4097, 0, std::vector<std::uint8_t>(4097)));
  EXPECT_TRUE(refused(~std::uint64_t{0}, 2, 0, {5, 6}));
  EXPECT_TRUE(refused(kAddress, 1, 2, {5}));
  EXPECT_TRUE(refused(kAddress, 3, 1, {0b1001, 5, 6}));
}

}  // namespace
}  // namespace flyt::wire
