#include "server/lease/sm_grant.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

using Groups = std::vector<std::uint32_t>;

// 132 multiprocessors in 15 groups of 8, and a last one of 12.
constexpr SmFacts kHopper{132, 8, 15, 12};
// The same where the 12 make none.
constexpr SmFacts kWithout{132, 8, 15, 0};

template <unsigned rest>
driver::Table hopper() {
  driver::Table table{};
  table.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
    *value = 132;
    return CUDA_SUCCESS;
  };
  table.cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType) {
    *resource = {};
    return CUDA_SUCCESS;
  };
  table.cuDevSmResourceSplitByCount = [](CUdevResource* out, unsigned int* count,
                                         const CUdevResource*, CUdevResource* left, unsigned int,
                                         unsigned int) {
    if (out == nullptr) *count = 15;
    for (unsigned i = 0; out != nullptr && i < *count; ++i) out[i].sm.smCount = 8;
    if (left != nullptr) left->type = CU_DEV_RESOURCE_TYPE_SM;
    if (left != nullptr) left->sm.smCount = rest;
    return CUDA_SUCCESS;
  };
  table.cuDevResourceGenerateDesc = [](CUdevResourceDesc*, CUdevResource* of, unsigned int count) {
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(of[0].sm.smCount, 8U);
    EXPECT_EQ(of[1].sm.smCount, rest);
    return CUDA_SUCCESS;
  };
  return table;
}

SmGrant granted(std::uint32_t sms, const Groups& groups = {}) {
  const auto grant = grant_sms(kHopper, sms, groups);
  EXPECT_TRUE(grant.ok());
  return grant.ok() ? *grant : SmGrant{};
}

TEST(SmGrant, CountsTheGroupsOfTheChip) {
  EXPECT_EQ(sm_facts(hopper<12>(), 0), kHopper);
  EXPECT_EQ(sm_facts(hopper<8>(), 0), (SmFacts{132, 8, 15, 8}));
  EXPECT_EQ(sm_facts(hopper<7>(), 0), kWithout);
  driver::Table without = hopper<12>();
  without.cuDevSmResourceSplitByCount = [](CUdevResource*, unsigned int*, const CUdevResource*,
                                           CUdevResource*, unsigned int,
                                           unsigned int) { return CUDA_ERROR_NOT_SUPPORTED; };
  EXPECT_EQ(sm_facts(without, 0), (SmFacts{132, 0, 0, 0}));
}

TEST(SmGrant, LeavesOutARestThatTheDriverPutsTogetherWithNothing) {
  driver::Table table = hopper<12>();
  table.cuDevResourceGenerateDesc = [](CUdevResourceDesc*, CUdevResource*, unsigned int) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  };
  EXPECT_EQ(sm_facts(table, 0), kWithout);
}

TEST(SmGrant, RoundsUpToGroups) {
  EXPECT_EQ(granted(0), (SmGrant{0, 132, {}}));
  EXPECT_EQ(granted(1), (SmGrant{1, 8, {0}}));
  EXPECT_EQ(granted(8), (SmGrant{8, 8, {0}}));
  EXPECT_EQ(granted(9), (SmGrant{9, 16, {0, 1}}));
  EXPECT_EQ(granted(120).granted, 120U);
  EXPECT_EQ(granted(121).granted, 124U);
  EXPECT_EQ(granted(125), (SmGrant{125, 132, {}}));
  EXPECT_EQ(granted(132), (SmGrant{132, 132, {}}));
}

TEST(SmGrant, GivesTheLastGroupWhereThatComesCloser) {
  EXPECT_EQ(granted(12), (SmGrant{12, 16, {0, 1}}));
  EXPECT_EQ(granted(20), (SmGrant{20, 20, {0, 15}}));
  EXPECT_EQ(granted(64).groups.back(), 7U);
  EXPECT_EQ(granted(68), (SmGrant{68, 68, {0, 1, 2, 3, 4, 5, 6, 15}}));
  EXPECT_EQ(grant_sms(kWithout, 68, {})->granted, 72U);
  EXPECT_EQ(*grant_sms(kWithout, 121, {}), (SmGrant{121, 132, {}}));
}

TEST(SmGrant, TakesNamedGroups) {
  EXPECT_EQ(granted(0, {14, 3}), (SmGrant{16, 16, {3, 14}}));
  EXPECT_EQ(granted(9, {5, 6}), (SmGrant{9, 16, {5, 6}}));
  EXPECT_EQ(granted(64, {8, 9, 10, 11, 12, 13, 14, 15}).granted, 68U);
  Groups all;
  for (std::uint32_t group = 0; group < 16; ++group) all.push_back(group);
  EXPECT_EQ(granted(0, all), (SmGrant{132, 132, all}));
}

TEST(SmGrant, RefusesWhatThereIsNot) {
  EXPECT_FALSE(grant_sms(kHopper, 133, {}).ok());
  EXPECT_FALSE(grant_sms(kHopper, ~0U, {}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {16}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {15}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 21, {0, 15}).ok());
  EXPECT_FALSE(grant_sms(kWithout, 0, {0, 15}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {~0U}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {1, 1}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 9, {1}).ok());
  EXPECT_FALSE(grant_sms({132, 0, 0, 0}, 8, {}).ok());
  EXPECT_FALSE(grant_sms({132, 0, 0, 0}, 0, {0}).ok());
  EXPECT_TRUE(grant_sms({132, 0, 0, 0}, 0, {}).ok());
  EXPECT_TRUE(grant_sms({132, 0, 0, 0}, 132, {}).ok());
}

}  // namespace
}  // namespace flyt::server
