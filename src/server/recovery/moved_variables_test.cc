#include "server/recovery/moved_variables.h"

#include <gtest/gtest.h>

#include <cstring>

namespace flyt::server {
namespace {

// Two side by side, of which each has gone its own way, and a third one.
MovedVariables three() {
  MovedVariables moved;
  moved.add({.was = 0x1000, .is = 0x9000, .bytes = 0x10, .name = "a"});
  moved.add({.was = 0x1010, .is = 0x8000, .bytes = 0x20, .name = "b"});
  moved.add({.was = 0x2000, .is = 0x7000, .bytes = 4, .name = "c"});
  return moved;
}

std::string name_at(std::uint64_t address) {
  const MovedVariables moved = three();
  const MovedVariable* const found = moved.at(address);
  return found == nullptr ? "" : found->name;
}

std::vector<std::byte> words(const std::vector<std::uint64_t>& values) {
  std::vector<std::byte> bytes(values.size() * 8);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(MovedVariables, KnowTheAddressesThatTheyHad) {
  EXPECT_EQ(name_at(0xfff), "");
  EXPECT_EQ(name_at(0x1000), "a");
  EXPECT_EQ(name_at(0x100f), "a");
  EXPECT_EQ(name_at(0x1010), "b");
  // A pointer behind the last element is one as well.
  EXPECT_EQ(name_at(0x1030), "b");
  EXPECT_EQ(name_at(0x1031), "");
  EXPECT_EQ(name_at(0x2004), "c");
  EXPECT_EQ(name_at(0x2005), "");
  EXPECT_EQ(name_at(~std::uint64_t{0}), "");
  EXPECT_EQ(MovedVariables().at(0), nullptr);
}

TEST(MovedVariables, KnowALargeOneAroundASmallOne) {
  MovedVariables moved;
  moved.add({.was = 0x1000, .is = 0x9000, .bytes = 0x1000, .name = "large"});
  moved.add({.was = 0x1000, .is = 0x9000, .bytes = 8, .name = "alias"});
  moved.add({.was = 0x1800, .is = 0x9800, .bytes = 8, .name = "within"});
  ASSERT_NE(moved.at(0x1f00), nullptr);
  EXPECT_EQ(moved.at(0x1f00)->name, "large");
  EXPECT_EQ(moved.ranges(), (std::vector<AddressRange>{{0x1000, 0x2000}}));
}

TEST(MovedVariables, TellTheirRanges) {
  EXPECT_EQ(three().ranges(), (std::vector<AddressRange>{{0x1000, 0x1030}, {0x2000, 0x2004}}));
  MovedVariables wide;
  wide.add({.was = ~std::uint64_t{0} - 1, .is = 0, .bytes = 64, .name = "end"});
  EXPECT_EQ(wide.ranges(), (std::vector<AddressRange>{{~std::uint64_t{0} - 1, ~std::uint64_t{0}}}));
}

TEST(MovedVariables, AreFoundInWordsThatAreAligned) {
  const MovedVariables moved = three();
  const auto memory = words({1, 0x1018, 3});
  EXPECT_TRUE(moved.any_in(0x5000, memory));
  // The same bytes at an address that aligns other words.
  EXPECT_FALSE(moved.any_in(0x5004, memory));
  EXPECT_FALSE(moved.any_in(0x5000, Bytes(memory).first(15)));
  EXPECT_FALSE(moved.any_in(0x5004, Bytes(memory).first(3)));
}

TEST(MovedVariables, TakeTheLoadersAddressesForTheOldOnes) {
  const MovedVariables moved = three();
  // An end of `a` is also the beginning of `b`: the loader has meant either.
  auto held = words({0x1000, 77, 0x1010, 0x1010, 0x2004});
  const auto loaded = words({0x9000, 0, 0x8000, 0x9010, 0x7004});
  EXPECT_EQ(moved.renew(0x5000, held, loaded), nullptr);
  EXPECT_EQ(held, words({0x9000, 77, 0x8000, 0x9010, 0x7004}));
}

TEST(MovedVariables, TellWhatTheLoaderHasNotPut) {
  const MovedVariables moved = three();
  for (const std::uint64_t loaded : {0x0, 0x1008, 0x9000, 0x9009}) {
    auto held = words({0x1008});
    const MovedVariable* const left = moved.renew(0x5000, held, words({loaded}));
    ASSERT_NE(left, nullptr) << loaded;
    EXPECT_EQ(left->name, "a");
    EXPECT_EQ(held, words({0x1008}));
  }
}

}  // namespace
}  // namespace flyt::server
