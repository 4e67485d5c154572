#include "server/lease/sm_grant.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

namespace flyt::server {
namespace {

// One split of the chip. Only what came of one may be put together.
struct Split {
  std::vector<CUdevResource> groups;  // Of the size that the chip has; empty: it has none.
  CUdevResource rest{};
};

Split split(const driver::Table& driver, CUdevice device) {
  CUdevResource all{};
  unsigned int count = 0;
  CUresult result = driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver.cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 1);
  }
  if (result != CUDA_SUCCESS || count == 0) return {};
  count = std::min<unsigned int>(count, kSmGroupsMax);
  Split made{.groups = std::vector<CUdevResource>(count)};
  result = driver.cuDevSmResourceSplitByCount(made.groups.data(), &count, &all, &made.rest, 0, 1);
  if (result != CUDA_SUCCESS) return {};
  made.groups.resize(std::min<std::size_t>(made.groups.size(), count));
  return made;
}

// Less than a group is too little to be one more.
bool makes_group(const Split& made) {
  return made.rest.type == CU_DEV_RESOURCE_TYPE_SM && made.groups.size() < kSmGroupsMax &&
         made.rest.sm.smCount >= made.groups.front().sm.smCount;
}

// Whether what is left over may be put together with groups of its split is the driver's to say.
bool takes_rest(const driver::Table& driver, const Split& made) {
  std::array both{made.groups.back(), made.rest};
  CUdevResourceDesc description = nullptr;
  return driver.cuDevResourceGenerateDesc(&description, both.data(), both.size()) == CUDA_SUCCESS;
}

std::vector<std::uint32_t> numbers_of(const SmFacts& facts, const SmShare& share) {
  std::vector<std::uint32_t> numbers(share.groups);
  std::iota(numbers.begin(), numbers.end(), 0U);
  if (share.rest) numbers.push_back(facts.groups);
  return numbers;
}

// Ascending.
Status check_named(const SmFacts& facts, const std::vector<std::uint32_t>& groups) {
  const bool twice = std::adjacent_find(groups.begin(), groups.end()) != groups.end();
  if (twice || groups.back() >= facts.numbers()) {
    return Error{ErrorCode::kInvalid, "a group twice, or one that there is not: there are " +
                                          std::to_string(facts.numbers())};
  }
  if (groups.front() < facts.groups) return {};
  return Error{ErrorCode::kInvalid,
               "group " + std::to_string(facts.groups) +
                   " is what the chip has left over, and goes with another one only"};
}

}  // namespace

SmCut SmFacts::cut() const {
  return {.group = group,
          .groups = groups,
          .rest = group == 0 ? 0 : all - std::min(all, group * groups),
          .rest_is_group = last != 0};
}

SmFacts sm_facts(const driver::Table& driver, CUdevice device) {
  int all = 0;
  driver.cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  SmFacts facts{.all = static_cast<std::uint32_t>(std::max(all, 0))};
  const Split made = split(driver, device);
  if (made.groups.empty()) return facts;
  facts.group = made.groups.front().sm.smCount;
  facts.groups = static_cast<std::uint32_t>(made.groups.size());
  if (makes_group(made) && takes_rest(driver, made)) facts.last = made.rest.sm.smCount;
  return facts;
}

Result<SmGrant> grant_sms(const SmFacts& facts, std::uint32_t sms,
                          std::vector<std::uint32_t> groups) {
  const SmGrant whole{.asked = sms, .granted = facts.all};
  if (sms == 0 && groups.empty()) return whole;
  if (sms > facts.all) {
    return Error{ErrorCode::kLimit, "the GPU has " + std::to_string(facts.all) +
                                        " multiprocessors, not " + std::to_string(sms)};
  }
  if (facts.group == 0) {
    if (groups.empty() && sms == facts.all) return whole;
    return Error{ErrorCode::kUnsupported, "this GPU's multiprocessors cannot be divided"};
  }
  const SmCut cut = facts.cut();
  if (groups.empty()) {
    const auto share = cut.share(sms);
    if (!share || (share->rest && share->groups == facts.groups)) return whole;
    groups = numbers_of(facts, *share);
  }
  std::sort(groups.begin(), groups.end());
  if (Status status = check_named(facts, groups); !status) return status.error();
  const bool last = groups.back() == facts.groups;
  const std::uint32_t granted =
      cut.sms_of({static_cast<std::uint32_t>(groups.size()) - (last ? 1 : 0), last});
  if (granted < sms) {
    return Error{ErrorCode::kInvalid, "the groups have " + std::to_string(granted) +
                                          " multiprocessors, not " + std::to_string(sms)};
  }
  return SmGrant{sms == 0 ? granted : sms, granted, std::move(groups)};
}

CUresult describe_groups(const driver::Table& driver, CUdevice device,
                         const std::vector<std::uint32_t>& groups, CUdevResourceDesc& description) {
  const Split there = split(driver, device);
  std::vector<CUdevResource> chosen;
  for (const std::uint32_t group : groups) {
    const bool last = group == there.groups.size() && !there.groups.empty() && makes_group(there);
    if (group >= there.groups.size() && !last) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    chosen.push_back(last ? there.rest : there.groups[group]);
  }
  return driver.cuDevResourceGenerateDesc(&description, chosen.data(),
                                          static_cast<unsigned int>(chosen.size()));
}

CUresult confine(const driver::Table& driver, CUdevice device, CUdevResourceDesc description,
                 Confined& confined) {
  CUresult result =
      driver.cuGreenCtxCreate(&confined.green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuCtxFromGreenCtx(&confined.context, confined.green);
  if (result != CUDA_SUCCESS) driver.cuGreenCtxDestroy(confined.green);
  return result;
}

CUresult confine(const driver::Table& driver, CUdevice device, const SmGrant& grant,
                 Confined& confined) {
  CUdevResourceDesc description = nullptr;
  const CUresult result = describe_groups(driver, device, grant.groups, description);
  return result == CUDA_SUCCESS ? confine(driver, device, description, confined) : result;
}

}  // namespace flyt::server
