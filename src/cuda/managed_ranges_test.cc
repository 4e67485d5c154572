#include "cuda/managed_ranges.h"

#include <gtest/gtest.h>

#include <array>

namespace flyt::cuda {
namespace {

constexpr std::uint64_t kBase = 0x380000000000;
constexpr std::uint64_t kPage = ManagedRanges::kPageBytes;
constexpr CUmemLocation kDevice0{CU_MEM_LOCATION_TYPE_DEVICE, 0};
constexpr CUmemLocation kDevice1{CU_MEM_LOCATION_TYPE_DEVICE, 1};
constexpr CUmemLocation kHost{CU_MEM_LOCATION_TYPE_HOST, 0};

class ManagedRangesTest : public ::testing::Test {
 protected:
  void SetUp() override { ranges.add(kBase, 4 * kPage); }
  int ask(CUmem_range_attribute attribute, std::uint64_t address, std::uint64_t bytes) const {
    int value = -99;
    EXPECT_EQ(CUDA_SUCCESS, ranges.attribute(&value, 4, attribute, address, bytes));
    return value;
  }
  ManagedRanges ranges{2};
};

TEST_F(ManagedRangesTest, AnAttributeHoldsIfItDoesForAllPages) {
  EXPECT_EQ(0, ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, kBase, 4 * kPage));
  ASSERT_EQ(CUDA_SUCCESS,
            ranges.advise(kBase + kPage, 10, CU_MEM_ADVISE_SET_READ_MOSTLY, kDevice0));
  EXPECT_EQ(1, ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, kBase + kPage, kPage));
  EXPECT_EQ(0, ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, kBase + kPage, kPage + 1));
  ASSERT_EQ(CUDA_SUCCESS,
            ranges.advise(kBase, 4 * kPage, CU_MEM_ADVISE_UNSET_READ_MOSTLY, kDevice0));
  EXPECT_EQ(0, ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, kBase + kPage, kPage));
}

TEST_F(ManagedRangesTest, LocationsThatDifferAreNone) {
  EXPECT_EQ(CU_DEVICE_INVALID, ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBase, kPage));
  ASSERT_EQ(CUDA_SUCCESS,
            ranges.advise(kBase, kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kDevice1));
  ASSERT_EQ(CUDA_SUCCESS,
            ranges.advise(kBase + kPage, kPage, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, kHost));
  EXPECT_EQ(1, ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBase, kPage));
  EXPECT_EQ(CU_DEVICE_CPU, ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBase + kPage, 1));
  EXPECT_EQ(CU_DEVICE_INVALID, ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, kBase, 2 * kPage));
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE,
            ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, kBase, kPage));
  EXPECT_EQ(1, ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, kBase, kPage));
  ASSERT_EQ(CUDA_SUCCESS, ranges.prefetch(kBase, 4 * kPage, kDevice0));
  EXPECT_EQ(0, ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, kBase, 4 * kPage));
}

TEST_F(ManagedRangesTest, AccessorsAreListedAndTheRestIsInvalid) {
  for (const CUmemLocation& location : {kDevice1, kHost}) {
    ASSERT_EQ(CUDA_SUCCESS, ranges.advise(kBase, kPage, CU_MEM_ADVISE_SET_ACCESSED_BY, location));
  }
  std::array<int, 3> list{};
  ASSERT_EQ(CUDA_SUCCESS, ranges.attribute(list.data(), sizeof list,
                                           CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, kBase, kPage));
  EXPECT_EQ((std::array<int, 3>{1, CU_DEVICE_CPU, CU_DEVICE_INVALID}), list);
}

TEST_F(ManagedRangesTest, WhatIsNotManagedIsRefused) {
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ranges.prefetch(kBase, 4 * kPage + 1, kDevice0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ranges.prefetch(kBase - 1, 1, kDevice0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ranges.prefetch(kBase, 0, kDevice0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ranges.prefetch(kBase, ~std::uint64_t{0}, kDevice0));
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE, ranges.prefetch(kBase, 1, {CU_MEM_LOCATION_TYPE_DEVICE, 2}));
  ranges.remove(kBase, 4 * kPage);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, ranges.prefetch(kBase, 1, kDevice0));
}

TEST(BatchLocations, ServeTheOperationsFromTheirIndexOn) {
  const CUmemLocation locations[] = {kDevice0, kHost};
  const std::size_t indices[] = {0, 2};
  const BatchLocations batch(locations, indices, 2, 4);
  ASSERT_TRUE(batch.valid());
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_DEVICE, batch.of(1).type);
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_HOST, batch.of(2).type);
  EXPECT_EQ(CU_MEM_LOCATION_TYPE_HOST, batch.of(3).type);
  EXPECT_FALSE(BatchLocations(locations, indices, 2, 2).valid());
  EXPECT_FALSE(BatchLocations(locations, indices + 1, 1, 4).valid());
  EXPECT_FALSE(BatchLocations(locations, indices, 0, 4).valid());
}

}  // namespace
}  // namespace flyt::cuda
