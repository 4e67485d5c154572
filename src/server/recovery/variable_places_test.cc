// VariablePlaces: places are held, found and let go, whatever the driver does.
#include "server/recovery/variable_places.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace flyt::server {
namespace {

constexpr std::uint64_t kChunk = VariablePlaces::kChunkBytes;
constexpr std::uint64_t kBase = 0x7f0000000000;
constexpr std::uint64_t kModule = 0x10;  // Of code that has variables.

std::uint64_t chunk(std::uint64_t number) { return kBase + number * kChunk; }

// A driver that takes the lowest free range.
struct Ranges {
  std::map<std::uint64_t, std::uint64_t> taken;                              // Bytes by address.
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> modules;  // Address, context.
  std::uint64_t free_bytes = 100 * kGiB;
  std::uint64_t shift = 0;  // From multiples of chunks.
  std::uint32_t context = 0;
  std::uint32_t gone = 0;  // A context that cannot be entered.
  std::uint64_t loads = 0;
  std::uint64_t loads_max = ~std::uint64_t{0};
  std::uint64_t wrong_context = 0;  // Modules that were unloaded in another one than their own.

  std::uint64_t take(std::uint64_t bytes) {
    std::uint64_t at = kBase;
    for (const auto& [address, size] : taken) {
      if (address >= at + bytes) break;
      at = address + size;
    }
    taken[at] = bytes;
    return at;
  }
};

// Tables hold plain functions; each test starts with its own record.
Ranges& ranges() {
  static Ranges record;
  return record;
}

CUresult load(CUmodule* module, const void* code) {
  Ranges& all = ranges();
  if (all.loads == all.loads_max) return CUDA_ERROR_INVALID_PTX;
  ++all.loads;
  const std::string text(static_cast<const char*>(code));
  const std::uint64_t bytes = std::stoull(text.substr(text.find("filler[") + 7));
  const std::uint64_t handle = 0x1000 + all.loads;
  all.modules[handle] = {all.take(bytes), all.context};
  *module = static_cast<CUmodule>(pointer_at(handle));
  return CUDA_SUCCESS;
}

CUresult unload(CUmodule module) {
  Ranges& all = ranges();
  const auto found = all.modules.find(address_of(module));
  if (found == all.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (found->second.second != all.context) ++all.wrong_context;
  all.taken.erase(found->second.first);
  all.modules.erase(found);
  return CUDA_SUCCESS;
}

CUresult get_global(CUdeviceptr* address, std::size_t*, CUmodule module, const char*) {
  *address = ranges().modules.at(address_of(module)).first + ranges().shift;
  return CUDA_SUCCESS;
}

CUresult memory_info(std::size_t* free, std::size_t* total) {
  *free = *total = ranges().free_bytes;
  return CUDA_SUCCESS;
}

class VariablePlacesTest : public ::testing::Test {
 protected:
  VariablePlacesTest() {
    ranges() = {};
    driver.cuModuleLoadData = &load;
    driver.cuModuleUnload = &unload;
    driver.cuModuleGetGlobal_v2 = &get_global;
    driver.cuMemGetInfo_v2 = &memory_info;
    places = std::make_unique<VariablePlaces>(driver, [](std::uint32_t context) {
      if (context == ranges().gone) return CUDA_ERROR_INVALID_CONTEXT;
      ranges().context = context;
      return CUDA_SUCCESS;
    });
  }
  ~VariablePlacesTest() override {
    places.reset();
    EXPECT_TRUE(ranges().modules.empty());
    EXPECT_EQ(ranges().wrong_context, 0u);
  }
  static SavedVariable variable(std::uint64_t address, std::uint64_t bytes,
                                std::uint64_t owner = kModule, std::uint32_t context = 1) {
    return {owner, false, true, context, address, bytes, "it", {}};
  }

  driver::Table driver;
  std::unique_ptr<VariablePlaces> places;
};

TEST_F(VariablePlacesTest, APlaceIsTheNextThatTheDriverTakes) {
  places->hold(1, {variable(chunk(5) + 512, 64), variable(chunk(5) + 1024, 8)});
  EXPECT_EQ(ranges().modules.size(), 6u);
  // What else is made meanwhile goes elsewhere.
  EXPECT_EQ(ranges().take(3 * kChunk), chunk(6));
  EXPECT_TRUE(places->aim(1, kModule));
  EXPECT_EQ(ranges().take(kChunk), chunk(5));
  EXPECT_FALSE(places->aim(1, kModule));
  const auto outcome = places->let_go();
  EXPECT_EQ(outcome.wanted, 1u);
  EXPECT_EQ(outcome.found, 1u);
  EXPECT_EQ(outcome.modules, 7u);
  EXPECT_TRUE(ranges().modules.empty());
}

TEST_F(VariablePlacesTest, WhatWasFreedMeanwhileIsNotTakenInItsPlace) {
  const std::uint64_t before = ranges().take(2 * kChunk);
  places->hold(1, {variable(chunk(4), 64)});
  ranges().taken.erase(before);
  EXPECT_TRUE(places->aim(1, kModule));
  EXPECT_EQ(ranges().take(kChunk), chunk(4));
}

TEST_F(VariablePlacesTest, FurtherPlacesAreGivenBackWhenTheirCodeComes) {
  places->hold(1, {variable(chunk(1), 64), variable(chunk(4) + 64, 64, 0x20),
                   variable(chunk(2), kChunk + 1, 0x30)});
  EXPECT_EQ(ranges().modules.size(), 5u);
  // The first code of all has no variables, and may have constants.
  EXPECT_TRUE(places->aim(1, 0x99));
  EXPECT_EQ(ranges().take(kChunk), chunk(1));
  EXPECT_FALSE(places->aim(1, kModule));
  EXPECT_FALSE(places->aim(1, 0x98));
  EXPECT_EQ(ranges().take(kChunk), chunk(5));
  EXPECT_TRUE(places->aim(1, 0x20));
  EXPECT_EQ(ranges().take(kChunk), chunk(4));
  EXPECT_TRUE(places->aim(1, 0x30));
  EXPECT_EQ(ranges().take(2 * kChunk), chunk(2));
  EXPECT_EQ(places->let_go().found, 3u);
}

TEST_F(VariablePlacesTest, TwoPlacesOfOneModuleAreFreeTogether) {
  places->hold(1, {variable(chunk(1), 64), variable(chunk(3), 2 * kChunk)});
  EXPECT_TRUE(places->aim(1, kModule));
  EXPECT_EQ(ranges().take(kChunk), chunk(1));
  EXPECT_EQ(ranges().take(2 * kChunk), chunk(3));
}

TEST_F(VariablePlacesTest, CodeOfNoContextFreesTheFirstPlaceOnly) {
  const std::vector<SavedVariable> saved = {variable(chunk(1), 64),
                                            variable(chunk(3), 64, 0x20, 2)};
  places->hold(1, saved);
  places->hold(2, saved);
  EXPECT_TRUE(places->aim(0, 0));
  EXPECT_EQ(ranges().take(kChunk), chunk(1));
  EXPECT_FALSE(places->aim(0, 0));
  EXPECT_TRUE(places->aim(2, 0));
  EXPECT_EQ(ranges().take(kChunk), chunk(3));
}

TEST_F(VariablePlacesTest, AContextTakesItsModulesAlong) {
  const std::vector<SavedVariable> saved = {variable(chunk(1), 64),
                                            variable(chunk(3), 64, 0x20, 2)};
  places->hold(2, saved);
  places->hold(1, saved);
  places->forget_context(2);
  // They had the one that was wanted in the other one, too.
  EXPECT_TRUE(ranges().modules.empty());
  EXPECT_FALSE(places->aim(2, 0x20));
  EXPECT_FALSE(places->aim(1, kModule));
  places->hold(1, saved);
  EXPECT_TRUE(places->aim(1, kModule));
  EXPECT_EQ(ranges().take(kChunk), chunk(1));
}

TEST_F(VariablePlacesTest, AContextThatIsGoneIsNotEntered) {
  ranges().gone = 1;
  places->hold(1, {variable(chunk(1), 64)});
  EXPECT_EQ(ranges().loads, 0u);
  ranges().gone = 0;
  places->hold(1, {variable(chunk(1), 64)});
  ranges().gone = 1;
  places->forget_context(1);
  EXPECT_FALSE(places->aim(1, kModule));
  // They went with it.
  EXPECT_EQ(ranges().modules.size(), 2u);
  ranges().modules.clear();
}

TEST_F(VariablePlacesTest, ADriverThatDoesItDifferentlyIsLeftAlone) {
  ranges().shift = 512;
  places->hold(1, {variable(chunk(5), 64)});
  EXPECT_EQ(ranges().loads, 1u);
  EXPECT_TRUE(ranges().modules.empty());
  places->hold(1, {variable(chunk(5), 64)});
  EXPECT_EQ(ranges().loads, 1u);
  EXPECT_FALSE(places->aim(1, kModule));
}

TEST_F(VariablePlacesTest, ARefusalIsTheEnd) {
  ranges().loads_max = 0;
  places->hold(1, {variable(chunk(5), 64)});
  EXPECT_FALSE(places->aim(1, kModule));
}

TEST_F(VariablePlacesTest, ARefusalWhileItAimsIsTheEnd) {
  places->hold(1, {variable(chunk(1), 64), variable(chunk(2), 64, 0x20)});
  ranges().loads_max = ranges().loads;
  EXPECT_TRUE(places->aim(1, kModule));
  EXPECT_TRUE(ranges().modules.empty());
  EXPECT_FALSE(places->aim(1, 0x20));
  EXPECT_EQ(places->let_go().found, 0u);
}

TEST_F(VariablePlacesTest, WhatIsOutOfReachIsGivenUp) {
  places->hold(1, {variable(chunk(100'000), 64)});
  EXPECT_EQ(ranges().loads, VariablePlaces::kBytesMax / kChunk);
  EXPECT_TRUE(ranges().modules.empty());
}

TEST_F(VariablePlacesTest, HalfOfWhatIsFreeIsLeft) {
  ranges().free_bytes = 10 * kChunk;
  places->hold(1, {variable(chunk(2), 64), variable(chunk(5), 64, 0x20)});
  EXPECT_EQ(ranges().modules.size(), 5u);
  EXPECT_TRUE(places->aim(1, 0x20));
  EXPECT_EQ(ranges().take(kChunk), chunk(2));
  const auto outcome = places->let_go();
  EXPECT_EQ(outcome.wanted, 2u);
  EXPECT_EQ(outcome.found, 1u);
}

TEST_F(VariablePlacesTest, NothingIsDoneForNothingAndForGarbage) {
  places->hold(1, {});
  EXPECT_FALSE(places->aim(1, kModule));
  for (const auto& [address, bytes] :
       {std::pair(std::uint64_t{0}, std::uint64_t{8}),
        std::pair(~std::uint64_t{0}, std::uint64_t{8}), std::pair(kBase, ~std::uint64_t{0})}) {
    VariablePlaces other(driver, [](std::uint32_t) { return CUDA_SUCCESS; });
    other.hold(1, {variable(kBase, 8), variable(address, bytes)});
  }
  std::vector<SavedVariable> many;
  for (std::uint64_t i = 0; i <= VariablePlaces::kPlacesMax; ++i) {
    many.push_back(variable(chunk(i), 8));
  }
  VariablePlaces other(driver, [](std::uint32_t) { return CUDA_SUCCESS; });
  other.hold(1, many);
  EXPECT_EQ(ranges().loads, 0u);
}

TEST_F(VariablePlacesTest, NothingIsHeldAfterTheEnd) {
  EXPECT_EQ(places->let_go().wanted, 0u);
  places->hold(1, {variable(chunk(1), 64)});
  EXPECT_EQ(ranges().loads, 0u);
}

}  // namespace
}  // namespace flyt::server
