#include "server/sm_grant.h"

#include <gtest/gtest.h>

namespace flyt::server {
namespace {

using Groups = std::vector<std::uint32_t>;

// 132 multiprocessors in 15 groups of 8, and 12 that make none.
constexpr SmFacts kHopper{132, 8, 15};

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
                                         const CUdevResource*, CUdevResource*, unsigned int,
                                         unsigned int) {
    if (out == nullptr) *count = 15;
    for (unsigned i = 0; out != nullptr && i < *count; ++i) out[i].sm.smCount = 8;
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
  EXPECT_EQ(sm_facts(hopper(), 0), kHopper);
  driver::Table without = hopper();
  without.cuDevSmResourceSplitByCount = [](CUdevResource*, unsigned int*, const CUdevResource*,
                                           CUdevResource*, unsigned int,
                                           unsigned int) { return CUDA_ERROR_NOT_SUPPORTED; };
  EXPECT_EQ(sm_facts(without, 0), (SmFacts{132, 0, 0}));
}

TEST(SmGrant, RoundsUpToGroups) {
  EXPECT_EQ(granted(0), (SmGrant{0, 132, {}}));
  EXPECT_EQ(granted(1), (SmGrant{1, 8, {0}}));
  EXPECT_EQ(granted(8), (SmGrant{8, 8, {0}}));
  EXPECT_EQ(granted(9), (SmGrant{9, 16, {0, 1}}));
  EXPECT_EQ(granted(120).granted, 120U);
  EXPECT_EQ(granted(121), (SmGrant{121, 132, {}}));
  EXPECT_EQ(granted(132), (SmGrant{132, 132, {}}));
}

TEST(SmGrant, TakesNamedGroups) {
  EXPECT_EQ(granted(0, {14, 3}), (SmGrant{16, 16, {3, 14}}));
  EXPECT_EQ(granted(9, {5, 6}), (SmGrant{9, 16, {5, 6}}));
}

TEST(SmGrant, RefusesWhatThereIsNot) {
  EXPECT_FALSE(grant_sms(kHopper, 133, {}).ok());
  EXPECT_FALSE(grant_sms(kHopper, ~0U, {}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {15}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {~0U}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 0, {1, 1}).ok());
  EXPECT_FALSE(grant_sms(kHopper, 9, {1}).ok());
  EXPECT_FALSE(grant_sms({132, 0, 0}, 8, {}).ok());
  EXPECT_FALSE(grant_sms({132, 0, 0}, 0, {0}).ok());
  EXPECT_TRUE(grant_sms({132, 0, 0}, 0, {}).ok());
  EXPECT_TRUE(grant_sms({132, 0, 0}, 132, {}).ok());
}

}  // namespace
}  // namespace flyt::server
