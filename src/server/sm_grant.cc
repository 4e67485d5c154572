#include "server/sm_grant.h"

#include <algorithm>
#include <string>

namespace flyt::server {
namespace {

// All groups of the size that the chip has; empty where it cannot be divided.
std::vector<CUdevResource> groups_of(const driver::Table& driver, CUdevice device) {
  CUdevResource all{};
  unsigned int count = 0;
  CUresult result = driver.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
  if (result == CUDA_SUCCESS) {
    result = driver.cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 1);
  }
  if (result != CUDA_SUCCESS || count == 0) return {};
  count = std::min<unsigned int>(count, kSmGroupsMax);
  std::vector<CUdevResource> groups(count);
  CUdevResource rest{};
  result = driver.cuDevSmResourceSplitByCount(groups.data(), &count, &all, &rest, 0, 1);
  if (result != CUDA_SUCCESS) return {};
  groups.resize(std::min<std::size_t>(groups.size(), count));
  return groups;
}

}  // namespace

SmFacts sm_facts(const driver::Table& driver, CUdevice device) {
  int all = 0;
  driver.cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  SmFacts facts{.all = static_cast<std::uint32_t>(std::max(all, 0))};
  const auto groups = groups_of(driver, device);
  if (groups.empty()) return facts;
  facts.group = groups.front().sm.smCount;
  facts.groups = static_cast<std::uint32_t>(groups.size());
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
  const std::uint32_t needed = (sms + facts.group - 1) / facts.group;
  if (groups.empty() && needed > facts.groups) return whole;
  const bool named = !groups.empty();
  for (std::uint32_t group = 0; !named && group < needed; ++group) groups.push_back(group);
  std::sort(groups.begin(), groups.end());
  const bool twice = std::adjacent_find(groups.begin(), groups.end()) != groups.end();
  if (twice || groups.back() >= facts.groups) {
    return Error{ErrorCode::kInvalid, "a group twice, or one that there is not: there are " +
                                          std::to_string(facts.groups)};
  }
  const auto granted = static_cast<std::uint32_t>(groups.size()) * facts.group;
  if (granted < sms) {
    return Error{ErrorCode::kInvalid, "the groups have " + std::to_string(granted) +
                                          " multiprocessors, not " + std::to_string(sms)};
  }
  return SmGrant{sms == 0 ? granted : sms, granted, std::move(groups)};
}

CUresult describe_groups(const driver::Table& driver, CUdevice device,
                         const std::vector<std::uint32_t>& groups, CUdevResourceDesc& description) {
  const auto there = groups_of(driver, device);
  std::vector<CUdevResource> chosen;
  for (const std::uint32_t group : groups) {
    if (group >= there.size()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    chosen.push_back(there[group]);
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
