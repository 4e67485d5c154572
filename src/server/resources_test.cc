#include "server/resources.h"

#include <gtest/gtest.h>

#include <cstring>

namespace flyt::server {
namespace {

CUdevResource resource_with(unsigned char inside) {
  CUdevResource resource;
  std::memset(&resource, 0, sizeof resource);
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource._internal_padding[40] = inside;
  resource.sm.smCount = 8;
  return resource;
}

TEST(Resources, KeepsTheDriversBytesBehindANumber) {
  Resources resources;
  const CUdevResource one = resource_with(1);
  const std::uint64_t number = resources.number_of(one);
  ASSERT_NE(number, 0u);
  const auto found = resources.find(number);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(std::memcmp(&*found, &one, sizeof one), 0);
}

TEST(Resources, NamesEqualOnesAlikeAndOthersApart) {
  Resources resources;
  const std::uint64_t first = resources.number_of(resource_with(1));
  EXPECT_EQ(resources.number_of(resource_with(1)), first);
  EXPECT_NE(resources.number_of(resource_with(2)), first);
}

TEST(Resources, NamesNothingElse) {
  Resources resources;
  CUdevResource other = resource_with(1);
  other.type = CU_DEV_RESOURCE_TYPE_INVALID;
  EXPECT_EQ(resources.number_of(other), 0u);
  EXPECT_FALSE(resources.find(0).has_value());
  EXPECT_FALSE(resources.find(1).has_value());
  EXPECT_FALSE(resources.find(~std::uint64_t{0}).has_value());
}

TEST(Resources, ForgetsTheOldestWhenThereAreTooMany) {
  Resources resources;
  const std::uint64_t first = resources.number_of(resource_with(0));
  std::uint64_t last = 0;
  for (std::size_t i = 1; i <= Resources::kResourcesMax; ++i) {
    CUdevResource next = resource_with(1);
    std::memcpy(next._internal_padding, &i, sizeof i);
    last = resources.number_of(next);
  }
  EXPECT_FALSE(resources.find(first).has_value());
  EXPECT_TRUE(resources.find(last).has_value());
  // A new number: the old one must not mean something else one day.
  EXPECT_GT(resources.number_of(resource_with(0)), last);
}

}  // namespace
}  // namespace flyt::server
