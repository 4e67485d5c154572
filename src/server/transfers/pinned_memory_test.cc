// PinnedStock: nobody who takes a block waits for the driver, and what dies with a context is
// registered anew.
#include "server/transfers/pinned_memory.h"

#include <gtest/gtest.h>

#include <set>

namespace flyt::server {
namespace {

// What the driver has registered, and what it answers.
struct Registrations {
  std::set<const void*> now;
  int calls = 0;
  CUresult answer = CUDA_SUCCESS;
};

// Tables hold plain functions; each test starts with its own record.
Registrations& registrations() {
  static Registrations record;
  return record;
}

CUresult register_memory(void* memory, std::size_t, unsigned int) {
  ++registrations().calls;
  if (registrations().answer != CUDA_SUCCESS) return registrations().answer;
  return registrations().now.insert(memory).second ? CUDA_SUCCESS
                                                   : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult unregister_memory(void* memory) {
  return registrations().now.erase(memory) == 1 ? CUDA_SUCCESS
                                                : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

class PinnedStockTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kMax = 4;

  PinnedStockTest() {
    registrations() = {};
    driver.cuMemHostRegister_v2 = &register_memory;
    driver.cuMemHostUnregister = &unregister_memory;
    stock = std::make_unique<PinnedStock>(driver, PinnedStock::Sizes{4096, 2});
    stock->on_shortage([this] { ++shortages; });
  }

  static CUcontext context(std::uint64_t number) {
    return static_cast<CUcontext>(pointer_at(number));
  }

  driver::Table driver;
  std::unique_ptr<PinnedStock> stock;
  int shortages = 0;
};

TEST_F(PinnedStockTest, WithoutAContextBlocksAreJustMemory) {
  const auto block = stock->take(kMax);
  ASSERT_TRUE(block);
  EXPECT_FALSE(stock->pinned(*block));
  EXPECT_EQ(stock->bytes(*block).size(), 4096U);
  EXPECT_EQ(registrations().calls, 0);
  EXPECT_EQ(shortages, 0);
}

TEST_F(PinnedStockTest, ABlockInUseIsRegisteredTooAndTheReserveIsFilled) {
  const auto early = stock->take(kMax);
  stock->restock(context(1));
  EXPECT_TRUE(stock->pinned(*early));
  EXPECT_EQ(registrations().now.size(), 3U);
}

TEST_F(PinnedStockTest, TakingNeverRegistersButAsksOnce) {
  stock->restock(context(1));
  const int before = registrations().calls;
  const auto first = stock->take(kMax);
  ASSERT_TRUE(first);
  EXPECT_TRUE(stock->pinned(*first));
  ASSERT_TRUE(stock->take(kMax));
  EXPECT_EQ(registrations().calls, before);
  EXPECT_EQ(shortages, 1);
}

TEST_F(PinnedStockTest, WhenHelpDoesNotComeABlockIsGivenAnyway) {
  stock->restock(context(1));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(stock->take(kMax));
  const auto late = stock->take(kMax);
  ASSERT_TRUE(late);
  EXPECT_FALSE(stock->pinned(*late));
}

TEST_F(PinnedStockTest, PreparesAsManyBlocksAsAreWanted) {
  stock->on_shortage([this] { stock->restock(context(1)); });
  EXPECT_EQ(3U, stock->prepare(3, kMax));
  EXPECT_EQ(3U, registrations().now.size());
  EXPECT_EQ(3U, stock->prepare(1, kMax));
  for (int i = 0; i < 3; ++i) {
    const auto block = stock->take_registered(kMax);
    ASSERT_TRUE(block);
    EXPECT_TRUE(stock->pinned(*block));
  }
  EXPECT_EQ(kMax, stock->prepare(100, kMax));
}

TEST_F(PinnedStockTest, TellsHowManyThereAreIfTheDriverLetsItWait) {
  stock->restock(context(1));
  EXPECT_EQ(2U, stock->prepare(kMax, kMax));
  EXPECT_EQ(1, shortages);
  stock->restock(context(1));
  EXPECT_EQ(kMax, stock->prepare(kMax, kMax));
}

TEST_F(PinnedStockTest, WhereNothingCanBeRegisteredNothingHasToBePrepared) {
  registrations().answer = CUDA_ERROR_OUT_OF_MEMORY;
  stock->on_shortage([this] { stock->restock(context(1)); });
  EXPECT_EQ(kMax, stock->prepare(2, kMax));
  EXPECT_EQ(1, registrations().calls);
}

TEST_F(PinnedStockTest, WhatWasPreparedRestsAsWell) {
  stock->on_shortage([this] { stock->restock(context(1)); });
  EXPECT_EQ(kMax, stock->prepare(kMax, kMax));
  while (stock->rest_one()) {
  }
  EXPECT_EQ(2U, registrations().now.size());
  stock->restock(context(1));
  EXPECT_EQ(2U, registrations().now.size());
}

TEST_F(PinnedStockTest, WhoDoesNotWaitGetsOnlyWhatIsRegistered) {
  EXPECT_FALSE(stock->take_registered(kMax));
  stock->restock(context(1));
  EXPECT_TRUE(stock->take_registered(kMax));
  EXPECT_TRUE(stock->take_registered(kMax));
  EXPECT_FALSE(stock->take_registered(kMax));
  EXPECT_EQ(1, shortages);
}

TEST_F(PinnedStockTest, ThereAreNeverMoreBlocksThanAllowed) {
  for (std::size_t i = 0; i < kMax; ++i) ASSERT_TRUE(stock->take(kMax));
  EXPECT_FALSE(stock->take(kMax));
  stock->restock(context(1));
  EXPECT_FALSE(stock->take(kMax));
  stock->give(2);
  EXPECT_EQ(stock->take(kMax), std::optional<std::size_t>(2));
}

TEST_F(PinnedStockTest, WhatDiesWithItsContextIsRegisteredAnew) {
  stock->restock(context(1));
  const auto kept = stock->take(kMax);
  stock->restock(context(2));
  ASSERT_TRUE(stock->pinned(*kept));
  const int asked = shortages;
  registrations().now.clear();
  stock->forget(context(2));
  EXPECT_TRUE(stock->pinned(*kept));
  stock->forget(context(1));
  EXPECT_FALSE(stock->pinned(*kept));
  EXPECT_EQ(shortages, asked + 1);
  stock->restock(context(3));
  EXPECT_TRUE(stock->pinned(*kept));
}

TEST_F(PinnedStockTest, WhatIsBeyondTheReserveRestsUntilItIsTaken) {
  for (std::size_t i = 0; i < kMax; ++i) ASSERT_TRUE(stock->take(kMax));
  stock->restock(context(1));
  for (std::size_t i = 0; i < kMax; ++i) *stock->bytes(i).data() = std::byte{7};
  EXPECT_FALSE(stock->may_rest()) << "all are in use";
  for (std::size_t i = 0; i < kMax; ++i) stock->give(i);
  ASSERT_TRUE(stock->may_rest());
  while (stock->rest_one()) {
  }
  EXPECT_FALSE(stock->may_rest());
  EXPECT_EQ(registrations().now.size(), 2U);
  std::size_t resting = 0;
  for (std::size_t i = 0; i < kMax; ++i) {
    // Who has its address may go on with it, and finds that the memory was given back.
    resting += *stock->bytes(i).data() == std::byte{0} ? 1 : 0;
    EXPECT_EQ(stock->pinned(i), *stock->bytes(i).data() == std::byte{7});
  }
  EXPECT_EQ(resting, kMax - 2);
}

TEST_F(PinnedStockTest, WhatRestsIsRegisteredOnlyForTheReserve) {
  for (std::size_t i = 0; i < kMax; ++i) ASSERT_TRUE(stock->take(kMax));
  stock->restock(context(1));
  for (std::size_t i = 0; i < kMax; ++i) stock->give(i);
  while (stock->rest_one()) {
  }
  const int asked = shortages;
  ASSERT_TRUE(stock->take(kMax));
  EXPECT_EQ(shortages, asked + 1);
  stock->restock(context(1));
  EXPECT_EQ(registrations().now.size(), 3U);
  // As many as before, and no more, however they come by their memory.
  for (std::size_t i = 1; i < kMax; ++i) ASSERT_TRUE(stock->take(kMax));
  EXPECT_FALSE(stock->take(kMax));
  stock->restock(context(1));
  EXPECT_EQ(registrations().now.size(), kMax);
}

TEST_F(PinnedStockTest, WhatTheDriverDoesNotLetGoStaysAsItIs) {
  for (std::size_t i = 0; i < kMax; ++i) ASSERT_TRUE(stock->take(kMax));
  stock->restock(context(1));
  for (std::size_t i = 0; i < kMax; ++i) *stock->bytes(i).data() = std::byte{7};
  for (std::size_t i = 0; i < kMax; ++i) stock->give(i);
  driver.cuMemHostUnregister = [](void*) { return CUDA_ERROR_ILLEGAL_ADDRESS; };
  EXPECT_FALSE(stock->rest_one());
  EXPECT_FALSE(stock->may_rest()) << "it would be asked again and again";
  for (std::size_t i = 0; i < kMax; ++i) {
    EXPECT_TRUE(stock->pinned(i));
    EXPECT_EQ(*stock->bytes(i).data(), std::byte{7});
  }
  driver.cuMemHostUnregister = &unregister_memory;
}

TEST_F(PinnedStockTest, ADriverThatRefusesIsNotAskedAgain) {
  registrations().answer = CUDA_ERROR_OUT_OF_MEMORY;
  stock->restock(context(1));
  const int calls = registrations().calls;
  EXPECT_EQ(calls, 1);
  for (std::size_t i = 0; i < kMax; ++i) ASSERT_TRUE(stock->take(kMax));
  EXPECT_EQ(shortages, 0);
  EXPECT_EQ(registrations().calls, calls);
}

}  // namespace
}  // namespace flyt::server
